"""The listener of a controller in KRaft mode: its APIs, permissions and timeouts."""

import asyncio
import re
import zipfile
from collections.abc import Awaitable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from controller.apis.kraft.listener import FORWARDABLE, kraft_listener
from controller.controller_api import new_topic_ids
from controller.kafka.handling import RequestContext
from controller.kafka.messages import APIS, ApiKey, access
from controller.kafka.messages.topics import CreatableTopic, CreateTopicsRequest
from controller.machine.commands.commands import CreateTopic
from events.catalog import Endpoint
from tests.support.tools import KAFKA_SERVER, server_classpath

NOT_OFFERED = {38: "CreateDelegationToken", 39: "RenewDelegationToken", 40: "ExpireDelegationToken"} | {
    41: "DescribeDelegationToken"  # brokers answer it; Kafka's controller returns UNKNOWN_SERVER_ERROR
}
"""Delegation tokens are not supported."""
ADDED = {ApiKey.DESCRIBE_CLIENT_QUOTAS}
"""In Kafka, brokers answer it."""
FORWARDED = {
    19, 20, 30, 31, 33, 37, 43, 44, 45, 46, 49, 51, 55, 57, 64, 80, 81, 94,
}  # fmt: skip
"""The APIs that brokers 3.7 to 4.4 forward for clients: ApiKeys.forwardable, without AllocateProducerIds,
their own, and delegation tokens."""
ANN = b"\0\0\x05User\x04ann\0\0"


class Granting:
    """A `ControllerApi` that grants everything."""

    cluster_id = "cluster"

    def __init__(self, listener: str = "CONTROLLER") -> None:
        self.advertised = Endpoint(listener, "127.0.0.1", 9093)

    def grants(self, *_: object) -> bool:
        return True


def listener(name: str = "CONTROLLER") -> Any:
    api: Any = Granting(name)
    return kraft_listener(Mock(), "CONTROLLER", api)


def apis_of_kafkas_controller(but_not_of_brokers: bool = False) -> dict[int, tuple[str, int]]:
    """Name and newest stable version by API key, from the schemas in the jar of Kafka's clients."""
    (jar,) = Path(server_classpath().removesuffix("*")).glob("kafka-clients-*.jar")
    found = {}
    with zipfile.ZipFile(jar) as schemas:
        for name in schemas.namelist():
            if re.fullmatch(r"common/message/\w+Request\.json", name):
                text = schemas.read(name).decode()
                listeners = re.search(r'"listeners":\s*\[([^\]]*)\]', text)
                of_brokers = listeners is not None and '"broker"' in listeners[1]
                if listeners is not None and '"controller"' in listeners[1] and not (but_not_of_brokers and of_brokers):
                    facts = re.search(r'"apiKey":\s*(\d+).*?"validVersions":\s*"(?:\d+-)?(\d+)"', text, re.DOTALL)
                    assert facts is not None, f"{name} has a key and versions"
                    found[int(facts[1])] = (Path(name).stem.removesuffix("Request"), int(facts[2]))
    return found


def test_kraft_listener_has_every_api_of_kafkas_controller() -> None:
    kafkas, ours = apis_of_kafkas_controller(), listener()
    assert {key: kafkas[key][0] for key in kafkas.keys() - ours.keys()} == NOT_OFFERED, f"of Kafka {KAFKA_SERVER}"
    assert ours.keys() - kafkas.keys() == ADDED
    newest = {key: ours[key].max_version for key in kafkas.keys() & ours.keys()}
    assert newest == {key: kafkas[key][1] for key in newest}, "in Kafka's newest version"
    assert {APIS[key].name for key in newest} == {kafkas[key][0] for key in newest}


def test_client_listener_has_no_inter_broker_apis() -> None:
    not_for_clients = {*apis_of_kafkas_controller(but_not_of_brokers=True), ApiKey.FETCH}
    not_for_clients |= {ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER}
    assert listener("CLIENTS").keys() == listener().keys() - not_for_clients
    assert listener().keys() >= not_for_clients


def test_forwardable_apis_are_served_by_the_kraft_listener() -> None:
    assert {int(key) for key in FORWARDABLE} == FORWARDED | {ApiKey.DESCRIBE_CLUSTER}
    assert listener().keys() >= FORWARDED


class Denying(Granting):
    """A `ControllerApi` that denies everything, and records the requested operations."""

    def __init__(self) -> None:
        super().__init__("PLAINTEXT")
        self.operations: list[object] = []

    def grants(self, *of: object) -> bool:
        self.operations.append(of[1])
        return False


REQUIRED = {
    "ClusterAction": (
        ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT, ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH,
        ApiKey.UPDATE_RAFT_VOTER, ApiKey.CONTROLLER_REGISTRATION, ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT, ApiKey.ENVELOPE, ApiKey.ALTER_PARTITION, ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    ),
    "Alter": (
        ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER,
    ),
    "Describe": (
        ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_QUORUM, ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ),
    "DescribeConfigs": (
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ),
}  # fmt: skip
"""The APIs that need each operation on the cluster."""


@pytest.mark.parametrize(
    ("key", "operation"),
    [(key, operation) for operation, keys in REQUIRED.items() for key in keys],
    ids=lambda value: value.name if isinstance(value, ApiKey) else "",
)
def test_each_kraft_api_requires_its_cluster_operation(key: ApiKey, operation: str) -> None:
    api: Any = Denying()
    handler = kraft_listener(Mock(), "PLAINTEXT", api)[key]
    answer = asyncio.run(_answer(handler.handle(RequestContext(int(key), handler.max_version), _request(key))))
    assert (answer.error_code, api.operations) == (31, [operation])


@pytest.mark.parametrize("name", ["CONTROLLER", "CLIENTS"])
def test_envelope_is_served_only_on_the_controller_listener(name: str) -> None:
    api = Mock(advertised=Endpoint(name, "127.0.0.1", 9093))
    assert (ApiKey.ENVELOPE in kraft_listener(Mock(), "CONTROLLER", api)) == (name == "CONTROLLER")


async def _answer(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer


def _request(key: ApiKey) -> Any:

    # Codes are checked before permissions, because Kafka checks them when it parses the request.
    one = access.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    return {
        ApiKey.DESCRIBE_ACLS: one,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: access.DescribeUserScramCredentialsRequest(),
    }.get(key)


class Submitted(Exception):
    """Raised for submitted commands, with their timeouts and the timeout of the request."""


class Raising(Granting):
    """A `ControllerApi` that raises submitted commands as an error."""

    controller = SimpleNamespace(new_request_id=lambda _: "q", now_ms=lambda: 0)
    new_topic_ids = staticmethod(new_topic_ids)

    def allows(self, *_: object) -> bool:
        return True

    async def submit(self, commands: Sequence[CreateTopic], timeout_ms: int) -> None:
        raise Submitted([one.timeout_ms for one in commands], timeout_ms)


@pytest.mark.parametrize(("wanted", "waited"), [(-1, -1), (20_000, 20_000), (60_000, 25_000), (2**31 - 1, 25_000)])
def test_create_topics_timeout_is_capped_at_25_s(wanted: int, waited: int) -> None:
    api: Any = Raising()
    handler = kraft_listener(Mock(), "CONTROLLER", api)[ApiKey.CREATE_TOPICS]
    request = CreateTopicsRequest(topics=(CreatableTopic(name="t"), CreatableTopic(name="u")), timeout_ms=wanted)
    with pytest.raises(Submitted) as submitted:
        asyncio.run(_answer(handler.handle(RequestContext(ApiKey.CREATE_TOPICS, 7), request)))
    assert submitted.value.args == ([waited, waited], waited)
