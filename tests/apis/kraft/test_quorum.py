"""The quorum's APIs: refused fetches are logged at a limited rate, and a voter that does not lead answers
NOT_CONTROLLER."""

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from structlog.testing import capture_logs

from controller.apis.kraft.listener import kraft_listener
from controller.kafka.handling import ApiHandler, ClientConnection, RequestContext
from controller.kafka.messages import APIS, ApiKey, quorum
from events.catalog import Endpoint


async def test_rejected_fetches_are_rate_limited_by_node_and_code() -> None:
    code = 104

    async def answer(_: Any) -> quorum.FetchResponse:
        return quorum.FetchResponse(error_code=code)

    handle: Any = listener(leads=False, request=answer)[ApiKey.FETCH].handle

    async def fetch(node_id: int, port: int = 1) -> None:
        context = RequestContext(ApiKey.FETCH, 17, connection=ClientConnection(peer=f"10.0.0.1:{port}"))
        await handle(
            context, quorum.FetchRequest(cluster_id="theirs", replica_state=quorum.ReplicaState(replica_id=node_id))
        )

    with capture_logs() as logged:
        for port in range(5):
            await fetch(4, port)
        assert [(one["node"], one["peer"], one["code"]) for one in logged] == [(4, "10.0.0.1:0", 104)]
        assert "the node is of cluster theirs, and this is c" in logged[0]["why"]
        await fetch(5)
        code = 42
        await fetch(4)
        assert [(one["node"], one["code"]) for one in logged[1:]] == [(5, 104), (4, 42)]


def listener(leads: bool, request: Any = None) -> dict[int, ApiHandler]:
    """The listener of a voter of cluster c with broker 1. `request` replaces the `request` method of its node."""
    brokers = Mock(replication=SimpleNamespace(leads=leads, registered=None), node=Mock(request=request))
    api = Mock(advertised=Endpoint("C", "127.0.0.1", 9093), cluster_id="c", cluster=Mock(brokers={1: object()}))
    return kraft_listener(brokers, "C", api)


OF_WHOEVER = {
    ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DESCRIBE_CLUSTER,
    ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT,
    ApiKey.UPDATE_RAFT_VOTER, ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
}  # fmt: skip
"""APIs that a controller answers even if it does not lead."""


def test_kraft_apis_return_not_controller_without_leadership() -> None:
    table = listener(leads=False)
    said = set[int]()
    for key, handler in table.items():
        response: Any = APIS[key].response
        if key not in OF_WHOEVER and "error_code" in response.__struct_fields__:
            answer = handler.handle(RequestContext(key, handler.max_version), None)
            assert asyncio.run(_answer(answer)).error_code == 41, response
            said.add(key)
    assert {ApiKey.ENVELOPE, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.UNREGISTER_BROKER} <= said
    assert {ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.UPDATE_FEATURES} <= said


async def _answer(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.VOTE, ApiKey.DESCRIBE_QUORUM])
def test_quorum_apis_work_without_leadership(key: ApiKey) -> None:
    table = listener(leads=False, request=AsyncMock(return_value="the quorum's response"))
    answer = table[key].handle(RequestContext(int(key), table[key].max_version), "it")
    assert asyncio.run(_answer(answer)) == "the quorum's response"


@pytest.mark.parametrize(("node_id", "cluster_id", "code"), [(1, "c", 42), (1, None, 42), (1, "d", 0), (9, "c", 0)])
def test_add_raft_voter_rejects_a_registered_broker(node_id: int, cluster_id: str | None, code: int) -> None:
    handler = listener(leads=True, request=AsyncMock(return_value=quorum.AddRaftVoterResponse()))[ApiKey.ADD_RAFT_VOTER]
    wanted = quorum.AddRaftVoterRequest(cluster_id=cluster_id, voter_id=node_id)
    answered = asyncio.run(_answer(handler.handle(RequestContext(int(ApiKey.ADD_RAFT_VOTER), 1), wanted)))
    assert answered.error_code == code
    assert (answered.error_message or "").startswith("node 1 is a registered broker" if code else "")
