"""ACLs, SCRAM credentials and quotas are changed through a Kafka broker and enforced by it."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from controller.cli.work.users import alter_offline, credential
from controller.kafka.messages import ApiKey, access
from controller.settings.load import load_settings
from tests.brokers.kraft.guarded import GUARDED, call, set_quota
from tests.support.churn import QUIET
from tests.support.ports import free_ports
from tests.support.real_brokers import CLUSTER_ID, RealCluster, real_cluster, until

PASSWORD = "alice-PLANTED"
BROKERS_PASSWORD = "broker-PLANTED"
BROKER_LOGIN = f'username="broker" password="{BROKERS_PASSWORD}"'


class Secured:
    """A cluster of one broker that authenticates to the controller. The administrator connects without login, others
    use SCRAM."""

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster = cluster
        self.clear, self.sasl = (f"127.0.0.1:{port}" for port in free_ports(2))
        jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        listeners = f"PLAINTEXT://{self.clear},SASL://{self.sasl}"
        self.broker = cluster.add(
            settings={
                "advertised.listeners": listeners,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
                "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
                "listener.name.controller.scram-sha-512.sasl.jaas.config": f"{jaas} {BROKER_LOGIN};",
                "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{jaas};",
                **GUARDED,
                "offsets.topic.replication.factor": "1",
            }
        )
        cluster.wait_live()

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.clear, **QUIET})

    def alice(self, password: str = PASSWORD) -> dict[str, Any]:
        """The client properties of alice."""
        login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": password}
        return {"bootstrap.servers": self.sasl, "security.protocol": "SASL_PLAINTEXT", **login, **QUIET}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    settings = {
        "listeners": "SASL_PLAINTEXT://CONTROLLER",
        "http.authentication": "none",
        **GUARDED,
        "super.users": "User:ANONYMOUS;User:broker",
    }
    folder = tmp_path_factory.mktemp("access")
    with real_cluster(folder, brokers=0, settings=settings, prepare=_add_the_brokers_user) as cluster:
        yield Secured(cluster)


def _add_the_brokers_user(cluster: RealCluster) -> None:
    settings = load_settings(overrides=[f"cluster.id={CLUSTER_ID}"])
    broker = credential("broker", "SCRAM-SHA-512", BROKERS_PASSWORD, 4096)
    assert alter_offline(cluster.data, settings, broker).error_code == 0


def _binding(operation: AclOperation, kind: ResourceType, name: str) -> AclBinding:
    pattern = ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)


WRITE = _binding(AclOperation.WRITE, ResourceType.TOPIC, "orders")
CREATE = _binding(AclOperation.CREATE, ResourceType.TOPIC, "orders")


def _filter(*what: Any) -> AclBindingFilter:
    """ACLs by resource type, name, pattern type and operation."""
    kind, name, pattern, operation = what
    anybody: Any = None
    return AclBindingFilter(kind, name, pattern, anybody, anybody, operation, AclPermissionType.ANY)


def _grant(admin: AdminClient, binding: AclBinding) -> None:
    admin.create_acls([binding], request_timeout=20)[binding].result(30)


def _create(secured: Secured) -> int:
    """Create the topic as alice; returns the controller's error code."""
    admin = AdminClient(secured.alice())
    try:
        admin.create_topics([NewTopic("orders", 1, 1)], request_timeout=20)["orders"].result(30)
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def _write(secured: Secured) -> int:
    """Write a record as alice; returns the error code."""
    producer = Producer({**secured.alice(), "message.timeout.ms": 15_000, "enable.idempotence": False})
    codes: list[int] = []
    producer.produce("orders", b"x", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    producer.flush(20)
    return codes[0]


def _may_log_in(secured: Secured, password: str = PASSWORD) -> bool:
    errors: list[KafkaError] = []
    client = AdminClient({**secured.alice(password), "error_cb": errors.append})  # type: ignore[dict-item]
    try:
        client.list_topics(timeout=5)
    except KafkaException:
        return False
    return not any(error.code() == KafkaError._AUTHENTICATION for error in errors)


def _quotas(secured: Secured) -> dict[str, float]:
    component = access.ComponentData(entity_type="user", match_type=0, match="alice")
    request = access.DescribeClientQuotasRequest(components=(component,), strict=True)
    answer = call(secured.clear, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, request)
    return {value.key: value.value for entry in answer.entries for value in entry.values}


def _entries(secured: Secured) -> list[AclBinding]:
    every = _filter(ResourceType.ANY, None, ResourcePatternType.ANY, AclOperation.ANY)
    admin = secured.admin()
    return sorted(admin.describe_acls(every, request_timeout=20).result(30), key=str)


def test_scram_acls_and_quotas_set_through_a_broker_are_enforced(secured: Secured) -> None:
    assert not _may_log_in(secured)
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsert = UserScramCredentialUpsertion("alice", credential, PASSWORD.encode())
    admin = secured.admin()
    admin.alter_user_scram_credentials([upsert], request_timeout=20)["alice"].result(30)
    until(lambda: _may_log_in(secured), 120, "alice logs in")
    assert not _may_log_in(secured, "wrong")

    assert _create(secured) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        _grant(AdminClient(secured.alice()), CREATE)
    _grant(admin, CREATE)
    until(lambda: _create(secured) in (0, KafkaError.TOPIC_ALREADY_EXISTS), 120, "alice creates a topic")
    assert _write(secured) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    _grant(admin, WRITE)
    until(lambda: _write(secured) == 0, 120, "alice writes")
    set_quota(secured.clear, {"user": "alice"}, "producer_byte_rate", 1e6)
    until(lambda: _quotas(secured) == {"producer_byte_rate": 1e6}, 120, "the broker knows the quota")

    wanted = _filter(ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, AclOperation.WRITE)
    gone = admin.delete_acls([wanted], request_timeout=20)[wanted].result(30)
    assert gone == [WRITE]
    _grant(admin, WRITE)
    until(lambda: _entries(secured) == sorted([CREATE, WRITE], key=str), 120, "the entry is there again")
    assert _write(secured) == 0
    _without_secrets_and_faults(secured)


def _without_secrets_and_faults(secured: Secured) -> None:
    controller, broker = secured.cluster.controller, secured.broker.process
    assert controller is not None
    assert broker is not None
    for password in (PASSWORD, BROKERS_PASSWORD):
        assert password not in controller.output
    assert "Error publishing" not in broker.output
    assert "already exists" not in broker.output.replace("TopicExistsException", "")
