"""On a listener for real brokers nobody acts as a broker, or reads the metadata log, who may not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any
from unittest.mock import Mock

import pytest

from controller.kafka.handling import RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.access import DescribeAclsRequest, DescribeUserScramCredentialsRequest
from controller.serving.real_brokers import real_broker_listener
from events.catalog import Endpoint


class Denying:
    """A gateway that grants nothing, and remembers the operations it was called for."""

    advertised = Endpoint("PLAINTEXT", "127.0.0.1", 9093)
    cluster_id = "cluster"

    def __init__(self) -> None:
        self.operations: list[str] = []

    def grants(self, _: RequestContext, operation: str) -> bool:
        self.operations.append(operation)
        return False


@pytest.mark.parametrize(
    ("key", "operation"),
    [
        (ApiKey.FETCH, "ClusterAction"),
        (ApiKey.FETCH_SNAPSHOT, "ClusterAction"),
        (ApiKey.VOTE, "ClusterAction"),
        (ApiKey.BEGIN_QUORUM_EPOCH, "ClusterAction"),
        (ApiKey.END_QUORUM_EPOCH, "ClusterAction"),
        (ApiKey.UPDATE_RAFT_VOTER, "ClusterAction"),
        (ApiKey.CONTROLLER_REGISTRATION, "ClusterAction"),
        (ApiKey.ADD_RAFT_VOTER, "Alter"),
        (ApiKey.REMOVE_RAFT_VOTER, "Alter"),
        (ApiKey.BROKER_REGISTRATION, "ClusterAction"),
        (ApiKey.BROKER_HEARTBEAT, "ClusterAction"),
        (ApiKey.ENVELOPE, "ClusterAction"),
        (ApiKey.DESCRIBE_QUORUM, "Describe"),
        (ApiKey.UNREGISTER_BROKER, "Alter"),
        (ApiKey.DESCRIBE_ACLS, "Describe"),
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "Describe"),
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, "DescribeConfigs"),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else "",
)
def test_what_one_needs(key: ApiKey, operation: str) -> None:
    api: Any = Denying()
    handler = real_broker_listener(Mock(), "PLAINTEXT", api, {})[key]
    answer = asyncio.run(_answer(handler.handle(RequestContext(int(key), handler.max_version), _request(key))))
    assert (answer.error_code, api.operations) == (31, [operation])


@pytest.mark.parametrize("name", ["CONTROLLER", "CLIENTS"])
def test_envelopes_are_taken_on_the_controllers_listener_alone(name: str) -> None:
    api = Mock(advertised=Endpoint(name, "127.0.0.1", 9093))
    assert (ApiKey.ENVELOPE in real_broker_listener(Mock(), "CONTROLLER", api, {})) == (name == "CONTROLLER")


async def _answer(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer


def _request(key: ApiKey) -> Any:

    # Codes are looked at before permissions, as Kafka reads them with the request.
    one = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    return {
        ApiKey.DESCRIBE_ACLS: one,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DescribeUserScramCredentialsRequest(),
    }.get(key)
