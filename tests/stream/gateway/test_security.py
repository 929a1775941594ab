"""SCRAM users, ACLs and quotas that are changed at one gateway apply at the others."""

import base64
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from controller.access.users import set_password
from controller.machine.errors import ErrorCode
from tests.security.service import shown_by_scram, users
from tests.stream.requests import create, until
from tests.support.reference_kafka import ReferenceKafka
from tests.support.stream import Stream, stream
from tests.support.topicwright import Topicwright

ROOT_PASSWORD, ALICE_PASSWORD = "root-PLANTED-1", "alice-PLANTED-2"


@pytest.fixture(scope="module")
def running(kafka44: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    """A worker and gateways with two listeners each: PLAINTEXT for anonymous clients, and SASL_PLAINTEXT."""
    folder = tmp_path_factory.mktemp("secured")
    set_password(folder / "users", "root", ROOT_PASSWORD)
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "users.file": str(folder / "users"),
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:root;User:ANONYMOUS",
    }
    with stream(folder / "s", kafka44.bootstrap, "secured", gateways=0) as one:
        for _ in range(2):
            one.start_gateway(settings)
        yield one


def secured_address(gateway: Topicwright) -> str:
    """Returns the address of the SASL_PLAINTEXT listener."""
    found = re.search(r"^ready kafka=.*SASL_PLAINTEXT://([\d.:]+)", gateway.process.output, re.MULTILINE)
    assert found is not None
    return found[1]


def properties(gateway: Topicwright, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured_address(gateway),
        "log_level": 0,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def outcome(admin: Any, topic: str) -> int:
    """Returns the error code of a create."""
    (future,) = admin.create_topics([NewTopic(topic, 1, 1)], request_timeout=30).values()
    try:
        future.result(40)
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def test_scram_users_and_acls_of_one_gateway_apply_at_the_other(running: Stream, tmp_path: Path) -> None:
    one, other = running.gateways[:2]
    as_root = properties(one, "PLAIN", "root", ROOT_PASSWORD)
    config = tmp_path / "root.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in as_root.items() if key != "bootstrap.servers"))
    there = ("--bootstrap", secured_address(one), "--command-config", config)
    added = users("add", "alice", *there, password=ALICE_PASSWORD)
    assert (added.returncode, added.stdout) == (0, "set SCRAM-SHA-512 of alice\n"), added.stderr
    listed = users("list", *there).stdout.split()
    assert listed == ["USER", "LOGIN", "ITERATIONS", "alice", "SCRAM-SHA-512", "4096"]

    alice = AdminClient(properties(other, "SCRAM-SHA-512", "alice", ALICE_PASSWORD))
    refused = [outcome(alice, "pay.orders") for _ in range(3)]
    assert refused == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 3
    entry = AclBinding(
        *(ResourceType.TOPIC, "pay.", ResourcePatternType.PREFIXED, "User:alice", "*"),
        *(AclOperation.CREATE, AclPermissionType.ALLOW),
    )
    admin = AdminClient(as_root)  # a reference is needed: without it the request is cancelled
    assert admin.create_acls([entry])[entry].result(30) is None
    until("the other gateway has the ACL", lambda: outcome(alice, "pay.orders") in {0, ErrorCode.TOPIC_ALREADY_EXISTS})
    assert outcome(alice, "orders") == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    events = json.dumps(events_at(one))
    assert "AclsCreated" in events
    assert ALICE_PASSWORD not in events
    assert '"stored_key": "(hidden)"' in events


def test_every_gateway_sends_the_same_fake_scram_salt(running: Stream) -> None:
    until(
        "the secret is in the log",
        lambda: "LoginSecretDrawn" in {each["type"] for each in events_at(running.gateways[0])},
    )
    gateways = [secured_address(gateway) for gateway in running.gateways[:2]]
    for user in ("nobody-1", "nobody-2"):
        shown = {shown_by_scram(address, "SCRAM-SHA-512", user) for address in gateways}
        assert len(shown) == 1, shown


def test_counted_refusals_are_recorded_when_a_gateway_stops(running: Stream) -> None:
    third = running.start_gateway(
        {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:root"}, folder="third"
    )
    assert [create(third.kafka, "counted") for _ in range(3)] == [{"counted": 29}] * 3
    assert third.process.stop(within_s=120) == 0

    def counts() -> list[int]:
        seen = [each["fields"] for each in events_at(running.gateways[0]) if each["type"] == "RequestsRefused"]
        return [fields["count"] for fields in seen if fields["resource"] == "Topic:counted"]

    until("the count is recorded", lambda: counts() == [2])


def events_at(gateway: Topicwright) -> list[Any]:
    """Returns all events of the cluster partition, over HTTP."""
    login = base64.b64encode(f"root:{ROOT_PASSWORD}".encode()).decode()
    path = f"http://{gateway.http}/v1/events?partition=0&from=0&limit=500"
    request = urllib.request.Request(path, headers={"Authorization": f"Basic {login}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        events: list[Any] = json.loads(answer.read())["events"]
    return events
