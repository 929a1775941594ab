"""What is logged of fetches that are refused: each kind once in a while, with the reason."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.apis.kraft import follow
from controller.apis.kraft.follow import LOGGED_EVERY_S, FetchHandler
from controller.brokers.kraft.log.raft_fetch import RaftLog
from controller.front.front import Front
from controller.kafka.handling import ClientConnection, RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.fetch import FetchRequest, FetchResponse, ReplicaState


class Refusing:
    """A log that refuses every fetch with a code."""

    def __init__(self) -> None:
        self.code, self.now = 104, 0.0

    async def fetch(self, version: int, request: FetchRequest) -> FetchResponse:
        return FetchResponse(error_code=self.code)


def test_a_refusal_is_logged_once_in_a_while_for_each_broker_and_code(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, Any]] = []
    monkeypatch.setattr(follow, "logger", SimpleNamespace(warning=lambda event, **fields: logged.append(fields)))
    raft = Refusing()
    handler = FetchHandler(cast("Front", SimpleNamespace(cluster_id="ours")), cast("RaftLog", raft), lambda: raft.now)

    def fetch(broker_id: int, port: int = 1) -> None:
        context = RequestContext(ApiKey.FETCH, 17, connection=ClientConnection(peer=f"10.0.0.1:{port}"))
        request = FetchRequest(cluster_id="theirs", replica_state=ReplicaState(replica_id=broker_id))
        assert asyncio.run(handler(context, request)).error_code == raft.code

    for port in range(5):
        fetch(4, port)
    assert [(one["broker"], one["peer"], one["code"]) for one in logged] == [(4, "10.0.0.1:0", 104)]
    assert "the broker is of cluster theirs, and this is ours" in logged[0]["why"]
    fetch(5)
    raft.code = 42
    fetch(4)
    assert [(one["broker"], one["code"]) for one in logged[1:]] == [(5, 104), (4, 42)]
    raft.now = LOGGED_EVERY_S
    fetch(4)
    assert len(logged) == 4
