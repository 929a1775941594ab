"""A real Kafka with its StandardAuthorizer, and Topicwright in front of it with `authorizer.class.name=ClusterAcls`."""

from collections.abc import Iterator

import pytest

from tests.brokers.cluster.acls.calls import MORE, PRINCIPALS
from tests.brokers.cluster.acls.served import SETTINGS, client_properties, described
from tests.reference.access_servers import kafka_with_users, logged_in
from tests.reference.access_table import ADMIN, USERS
from tests.reference.cases import topic
from tests.security.certificates import Authority
from tests.support.real_brokers import until
from tests.support.reference_kafka import TRANSACTIONS
from tests.support.topicwright import Topicwright, topicwright
from tests.support.wire import Wire


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    module = "org.apache.kafka.common.security"
    of_tokens = f'{module}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{ADMIN}";'
    of_scram = {"sasl_jaas_config": f"{module}.scram.ScramLoginModule required;", "connections_max_reauth_ms": "4000"}
    more = {
        "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener_name_broker_oauthbearer_sasl_jaas_config": of_tokens,
        **{f"listener_name_broker_scram-sha-512_{key}": value for key, value in of_scram.items()},
    }
    with kafka_with_users(tmp_path_factory.mktemp("acls") / "kafka", **more, **TRANSACTIONS) as at:
        yield at


@pytest.fixture(scope="package")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="package")
def here(kafka: str, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    folder = tmp_path_factory.mktemp("here")
    own = {
        **SETTINGS,
        "listeners": f"{SETTINGS['listeners']},SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.issue("server").keystore),
        "ssl.truststore.location": str(authority.file),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "super.users": f"User:{ADMIN}",
        "cluster.watch.interval.ms": "200",
        "cluster.client.properties.file": str(client_properties(folder)),
    }
    with topicwright(folder, own, brokers=f"cluster:{kafka}") as running:
        _prepare(kafka, running)
        yield running


def _prepare(kafka: str, here: Topicwright) -> None:
    creations = [
        {**each, "principal": f"User:{user}"} for user in PRINCIPALS for each in (*USERS[user], *MORE.get(user, ()))
    ]
    with logged_in(kafka, ADMIN) as admin:
        created = admin.call(
            "CreateTopics",
            7,
            topics=[topic(name) for name in ("a.one", "a.two", "public", "b", "secret")],
            timeout_ms=60_000,
            validate_only=False,
        )
        assert all(each["error_code"] == 0 for each in created["topics"]), created
        made = admin.call("CreateAcls", 3, creations=creations)
        assert all(each["error_code"] == 0 for each in made["results"]), made
        until(lambda: _coordinated(admin, 0, "g.one") and _coordinated(admin, 1, "tx.one"), 120, "coordinators")
    with logged_in(here.kafka, "reader") as reader:
        until(lambda: "a.one" in described(reader), 60, "Topicwright has read topics and ACLs")


def _coordinated(admin: Wire, kind: int, key: str) -> bool:
    found = admin.call("FindCoordinator", 4, key_type=kind, coordinator_keys=[key])["coordinators"][0]
    return bool(found["error_code"] == 0)
