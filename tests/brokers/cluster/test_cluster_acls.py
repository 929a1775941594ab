"""`authorizer.class.name=ClusterAcls` in front of a real Kafka with its StandardAuthorizer: the same answers through
Topicwright as directly."""

from __future__ import annotations

import base64
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not export these
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.reference.access_servers import kafka_with_users, logged_in, password_of, rows_of
from tests.reference.access_table import (
    ADMIN,
    ALL,
    ALLOW,
    ANY_ACL,
    DELETE,
    DENY,
    DESCRIBE,
    READ,
    USERS,
    WRITE,
)
from tests.reference.cases import topic
from tests.support.real_brokers import until
from tests.support.reference_kafka import TRANSACTIONS
from tests.support.stream import stream
from tests.support.topicwright import COMMAND, Topicwright, command, fetch, topicwright
from tests.support.wire import Wire

Body = dict[str, Any]
CLUSTER_AUTHORIZATION_FAILED = 31
PRINCIPALS = ("nobody", "reader", "almosteverything", "herenot", "clusterreader")
SETTINGS = {"node.id": "100", "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "authorizer.class.name": "ClusterAcls"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    module = "org.apache.kafka.common.security"
    of_tokens = f'{module}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{ADMIN}";'
    of_scram = {
        "sasl_jaas_config": f"{module}.scram.ScramLoginModule required;",
        "connections_max_reauth_ms": "4000",
    }
    more = {
        "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener_name_broker_oauthbearer_sasl_jaas_config": of_tokens,
        **{f"listener_name_broker_scram-sha-512_{key}": value for key, value in of_scram.items()},
    }
    with kafka_with_users(tmp_path_factory.mktemp("acls") / "kafka", **more, **TRANSACTIONS) as at:
        yield at


def client_properties(folder: Path) -> str:
    file = folder / "client.properties"
    file.write_text(
        "security.protocol=sasl_plaintext\nsasl.mechanism=PLAIN\n"
        f"sasl.username={ADMIN}\nsasl.password={password_of(ADMIN)}\n"
    )
    return str(file)


@pytest.fixture(scope="module")
def here(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    folder = tmp_path_factory.mktemp("here")
    own = {
        **SETTINGS,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "super.users": f"User:{ADMIN}",
        "cluster.watch.interval.ms": "200",
        "cluster.client.properties.file": client_properties(folder),
    }
    with topicwright(folder, own, brokers=f"cluster:{kafka}") as running:
        _prepare(kafka, running)
        yield running


def test_a_wrong_password_is_refused_by_the_cluster(kafka: str, here: Topicwright) -> None:
    answers = []
    for address in (kafka, here.kafka):
        with Wire(address) as wire:
            wire.call("SaslHandshake", 1, mechanism="PLAIN")
            answers.append(wire.call("SaslAuthenticate", 1, auth_bytes=b"\0reader\0wrong"))
    assert answers[0] == answers[1]
    with logged_in(here.kafka, "reader") as reader:
        assert reader.call("Metadata", 12, topics=None)["topics"] is not None


def test_a_gateway_applies_the_clusters_acls_and_logins(kafka: str, here: Topicwright, tmp_path: Path) -> None:
    properties = Path(client_properties(tmp_path))
    own = {key: value for key, value in SETTINGS.items() if key != "node.id"}
    own |= {"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER", "super.users": f"User:{ADMIN}"}
    with stream(tmp_path / "s", kafka, "acls-log", gateways=0, brokers="cluster", properties=properties) as running:
        gateway = running.start_gateway(own)
        with logged_in(gateway.kafka, "reader") as reader, logged_in(gateway.kafka, ADMIN) as admin:
            seen = until(lambda: _described(reader), 60, "the gateway has read topics and ACLs")
            assert seen == {"a.one", "a.two"}
            assert reader.call("DescribeAcls", 3, **ANY_ACL)["error_code"] == CLUSTER_AUTHORIZATION_FAILED
            assert admin.call("DescribeAcls", 3, **ANY_ACL)["resources"]
        by_token = _client(gateway, **UNSECURED)
        assert "secret" not in by_token.list_topics(timeout=60).topics
        groups = by_token.describe_consumer_groups(["g.one", "other"], request_timeout=60)
        assert groups["g.one"].result(60).group_id == "g.one", "forwarded under the client's own name"
        with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
            groups["other"].result(60)


def test_the_acls_command_changes_the_clusters_acls(kafka: str, here: Topicwright, tmp_path: Path) -> None:
    config = ("--command-config", client_properties(tmp_path))
    acl = ("User:visitor", "Describe", "Topic:a.one")
    assert command("acls", "add", *acl, "--bootstrap", here.kafka, *config).returncode == 0
    for address in (kafka, here.kafka):
        listed = command("acls", "list", "--principal", "User:visitor", "--bootstrap", address, *config, "-o", "name")
        assert listed.stdout == "User:visitor may Describe Topic:a.one\n", listed.stderr
    refused = command("acls", "remove", "User:visitor", "Read", "Topic:a.one", "--bootstrap", here.kafka, *config)
    assert (refused.returncode, "there is no such ACL" in refused.stderr) == (1, True)
    assert command("acls", "remove", *acl, "--bootstrap", here.kafka, *config).returncode == 0


def _serve(folder: Path, kafka: str, properties: str, **more: str) -> str:
    """The error with which a start fails."""
    own = {**SETTINGS, "sasl.enabled.mechanisms": "PLAIN", **more}
    if properties:
        (folder / "other.properties").write_text(properties)
        own["cluster.client.properties.file"] = str(folder / "other.properties")
    settings = [word for key, value in own.items() for word in ("--set", f"{key}={value}")]
    argv: list[Any] = [COMMAND, "serve", "--http", "127.0.0.1:0", "--data", folder / "d", "--brokers", kafka, *settings]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 2, done
    return str(done.stdout + done.stderr)


def test_a_start_without_a_cluster_or_its_acls_names_the_reason(kafka: str, here: Topicwright, tmp_path: Path) -> None:
    assert "ClusterAcls needs a target cluster: --brokers cluster:HOST:PORT" in _serve(tmp_path, "simulated:1", "")
    as_nobody = Path(client_properties(tmp_path)).read_text().replace(ADMIN, "nobody")
    (tmp_path / "d2").mkdir()
    assert "the cluster's ACLs cannot be read: " in _serve(tmp_path / "d2", f"cluster:{kafka}", as_nobody)


# The same answers: random calls, each directly and through Topicwright.

GROUP, TRANSACTIONAL_ID, LITERAL, PREFIXED = 3, 5, 3, 4


def _on(kind: int, pattern: int, name: str, operation: int, permission: int = ALLOW) -> Body:
    named = {"resource_type": kind, "resource_pattern_type": pattern, "resource_name": name, "host": "*"}
    return {**named, "operation": operation, "permission_type": permission}


MORE: dict[str, list[Body]] = {
    "reader": [_on(GROUP, PREFIXED, "g.", READ), _on(TRANSACTIONAL_ID, LITERAL, "tx.one", DESCRIBE)],
    "almosteverything": [
        *(_on(GROUP, LITERAL, "*", ALL), _on(GROUP, LITERAL, "g.two", READ, DENY)),
        *(_on(TRANSACTIONAL_ID, LITERAL, "*", ALL), _on(TRANSACTIONAL_ID, PREFIXED, "tx.t", WRITE, DENY)),
    ],
    "herenot": [_on(GROUP, LITERAL, "g.one", DESCRIBE), _on(TRANSACTIONAL_ID, LITERAL, "tx.two", WRITE)],
    "clusterreader": [_on(GROUP, LITERAL, "gone", DELETE)],
}
"""ACLs of groups and transactional ids, in addition to those of the table."""
TOPICS = ("a.one", "a.two", "public", "b", "missing")
GROUPS = ("g.one", "g.two", "other")
IDS = ("tx.one", "tx.two", "else")
VOLATILE = {"throttle_time_ms", "producer_id", "producer_epoch", "total_bytes", "usable_bytes", "partition_size"}
VOLATILE |= {"log_end_offset", "high_watermark", "last_fetch_timestamp", "last_caught_up_timestamp"}


def _some(rng: random.Random, names: tuple[str, ...]) -> list[str]:
    return rng.sample(names, rng.randint(1, len(names)))


def _calls(rng: random.Random) -> dict[tuple[str, int], Body]:
    """One body for each API and version. No call changes data that the answer to another call has."""
    topics, groups, ids = _some(rng, TOPICS), _some(rng, GROUPS), _some(rng, IDS)
    group, transactional_id = groups[0], ids[0]
    dry = {"timeout_ms": 10_000, "validate_only": True}
    of_topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in topics]
    commits = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
    at = {"partition_index": 0, "current_leader_epoch": -1}
    member = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    nothing = {**ANY_ACL, "principal_filter": "User:stranger"}
    resources = [{"resource_type": 2, "resource_name": name} for name in topics]
    step = [{"name": "retention.ms", "config_operation": 0, "value": "5"}]
    return {
        ("FindCoordinator", 4): {"key_type": 0, "coordinator_keys": groups},
        ("FindCoordinator", 5): {"key_type": 1, "coordinator_keys": ids},
        ("ListGroups", 4): {"states_filter": []},
        ("DescribeGroups", 5): {"groups": groups, "include_authorized_operations": True},
        ("DeleteGroups", 2): {"groups_names": ["gone", "g.gone"]},
        ("OffsetFetch", 8): {
            "groups": [{"group_id": each, "topics": None} for each in groups],
            "require_stable": False,
        },
        ("OffsetCommit", 8): {**member, "topics": [{"name": name, "partitions": commits} for name in topics]},
        ("OffsetDelete", 0): {"group_id": group, "topics": of_topics[:0]},
        ("ListOffsets", 7): {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": name, "partitions": [{**at, "timestamp": -1}]} for name in topics],
        },
        ("DeleteRecords", 2): {
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]} for name in topics],
            "timeout_ms": 10_000,
        },
        ("InitProducerId", 4): {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": 10_000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        ("EndTxn", 3): {
            "transactional_id": transactional_id,
            "producer_id": 12345,
            "producer_epoch": 0,
            "committed": True,
        },
        ("DescribeTransactions", 0): {"transactional_ids": ids},
        ("ListTransactions", 0): {"state_filters": [], "producer_id_filters": []},
        ("DescribeProducers", 0): {"topics": [{"name": name, "partition_indexes": [0]} for name in topics]},
        ("DescribeLogDirs", 4): {"topics": []},
        ("DescribeQuorum", 1): {
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        },
        ("ListPartitionReassignments", 0): {"timeout_ms": 1000, "topics": None},
        ("ElectLeaders", 2): {
            "election_type": 0,
            "topic_partitions": [{"topic": name, "partitions": [0]} for name in topics],
            "timeout_ms": 10_000,
        },
        ("DescribeUserScramCredentials", 0): {"users": [{"name": "stranger"}]},
        ("AlterUserScramCredentials", 0): {"deletions": [{"name": "stranger", "mechanism": 1}], "upsertions": []},
        ("DescribeAcls", 3): ANY_ACL,
        ("DeleteAcls", 3): {"filters": [nothing]},
        ("Metadata", 12): {
            "topics": [{"name": name} for name in topics],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
        ("DescribeCluster", 0): {"include_cluster_authorized_operations": True},
        ("DescribeTopicPartitions", 0): {
            "topics": [{"name": name} for name in sorted(topics)],
            "response_partition_limit": 100,
            "cursor": None,
        },
        ("CreateTopics", 7): {"topics": [topic(f"new.{name}") for name in topics], **dry},
        ("CreatePartitions", 3): {"topics": [{"name": n, "count": 3, "assignments": None} for n in topics], **dry},
        ("DeleteTopics", 6): {
            "topics": [{"name": name, "topic_id": None} for name in ("missing", "a.missing")],
            "timeout_ms": 10_000,
        },
        ("DescribeConfigs", 4): {"resources": [{**each, "configuration_keys": None} for each in resources]},
        ("IncrementalAlterConfigs", 1): {
            "resources": [{**each, "configs": step} for each in resources],
            "validate_only": True,
        },
    }


def _answer(wire: Wire, api: str, version: int, body: Body) -> object:
    answer = wire.call(api, version, **body)
    if api in COMPARED_BY_ROW:
        return rows_of(api, answer, {})
    return _without_volatile(answer)


COMPARED_BY_ROW = {"Metadata", "DescribeCluster", "DescribeTopicPartitions", "CreateTopics", "CreatePartitions"}
COMPARED_BY_ROW |= {"DeleteTopics", "DescribeConfigs", "IncrementalAlterConfigs"}
"""Their answers name the brokers, or have error messages and default values that are not the cluster's."""


def _without_volatile(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_volatile(each) for key, each in value.items() if key not in VOLATILE}
    if isinstance(value, str) and value.startswith("Request Request("):
        return "Kafka's own description of the request"
    if isinstance(value, list | tuple):
        return sorted((_without_volatile(each) for each in value), key=repr)
    return value


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
        until(lambda: "a.one" in _described(reader), 60, "Topicwright has read topics and ACLs")


def _coordinated(admin: Wire, kind: int, key: str) -> bool:
    found = admin.call("FindCoordinator", 4, key_type=kind, coordinator_keys=[key])["coordinators"][0]
    return bool(found["error_code"] == 0)


def _described(reader: Wire) -> set[str]:
    answer = reader.call("Metadata", 12, topics=None, allow_auto_topic_creation=False)
    return {each["name"] for each in answer["topics"]}


def test_a_thousand_random_calls_get_the_same_answers_as_directly(kafka: str, here: Topicwright) -> None:
    rng, seen = random.Random(40), Counter[str]()
    with ExitStack() as held:
        directly = {user: held.enter_context(logged_in(kafka, user)) for user in PRINCIPALS}
        through = {user: held.enter_context(logged_in(here.kafka, user)) for user in PRINCIPALS}
        for _ in range(1000):
            user = rng.choice(PRINCIPALS)
            (api, version), body = rng.choice(sorted(_calls(rng).items(), key=lambda each: each[0]))
            expected = _answer(directly[user], api, version, body)
            found = _answer(through[user], api, version, body)
            assert found == expected, (user, api, version, body)
            seen[api] += 1
    assert len(seen) >= 30, seen


def test_http_logs_in_at_the_cluster_too(here: Topicwright) -> None:
    _, body = fetch(here.http, "/v1/topics", authorization=_basic("reader", password_of("reader")))
    assert "a.one" in body
    assert "secret" not in body
    status, body = fetch(here.http, "/v1/topics", authorization=_basic("reader", "wrong"))
    assert status == 401, body


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_created_and_deleted_acls_are_followed(here: Topicwright) -> None:
    with logged_in(here.kafka, ADMIN) as admin, logged_in(here.kafka, "nobody") as nobody:
        acl = {**_on(2, PREFIXED, "sec", DESCRIBE), "principal": "User:nobody"}
        assert admin.call("CreateAcls", 3, creations=[acl])["results"][0]["error_code"] == 0
        until(lambda: "secret" in _described(nobody), 60, "the new ACL applies")
        removed = {**ANY_ACL, "resource_name_filter": "sec", "principal_filter": "User:nobody"}
        assert admin.call("DeleteAcls", 3, filters=[removed])["filter_results"][0]["error_code"] == 0
        until(lambda: "secret" not in _described(nobody), 60, "the deleted ACL applies no longer")
    metrics = fetch(here.http, "/metrics", authorization=_basic(ADMIN, password_of(ADMIN)))[1]
    age = re.search(r"^topicwright_cluster_acls_age_seconds (\S+)$", metrics, re.MULTILINE)
    assert age is not None
    assert float(age[1]) < 30


UNSECURED = {
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "sasl.oauthbearer.config": "principal=reader",
}
"""The cluster accepts tokens without a signature, and is alone responsible for that."""


def _client(here: Topicwright, **properties: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": here.kafka, "security.protocol": "sasl_plaintext", **properties})


def test_librdkafka_logs_in_at_the_cluster_by_each_mechanism(kafka: str, here: Topicwright) -> None:
    admin = _client(here, **_named("PLAIN", ADMIN))
    known = UserScramCredentialUpsertion("reader", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"by-scram")
    admin.alter_user_scram_credentials([known])["reader"].result(60)
    ways = [_named("PLAIN", "reader"), {**_named("SCRAM-SHA-512", "reader"), "sasl.password": "by-scram"}, UNSECURED]
    for way in ways:
        client = _client(here, **way)
        seen = until(lambda client=client: client.list_topics(timeout=60).topics, 60, "metadata")  # type: ignore[misc]
        assert {"a.one", "a.two"} <= set(seen) <= {"a.one", "a.two", "public"}, way


def _named(mechanism: str, user: str) -> dict[str, str]:
    return {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password_of(user)}


def test_a_session_ends_when_it_ends_at_the_cluster(kafka: str, here: Topicwright) -> None:
    """KIP-368: the brokers end a session by SCRAM after 4 s, and clients log in again on the same connection."""
    known = UserScramCredentialUpsertion(ADMIN, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"by-scram")
    admin = _client(here, **_named("PLAIN", ADMIN))
    admin.alter_user_scram_credentials([known])[ADMIN].result(60)
    client = _client(here, **{**_named("SCRAM-SHA-512", ADMIN), "sasl.password": "by-scram"})
    before, deadline = _scram_logins(here), time.monotonic() + 120
    while _scram_logins(here)["succeeded"] < before["succeeded"] + 5:
        assert time.monotonic() < deadline
        assert client.list_consumer_groups(request_timeout=60).result(60).errors == []
    assert _scram_logins(here)["failed"] == before["failed"]


def _scram_logins(here: Topicwright) -> Counter[str]:
    metrics = fetch(here.http, "/metrics", authorization=_basic(ADMIN, password_of(ADMIN)))[1]
    found = re.findall(r'^topicwright_logins_total.*mechanism="SCRAM-SHA-512",outcome="(\w+)"\} (\S+)$', metrics, re.M)
    return Counter({outcome: round(float(count)) for outcome, count in found})
