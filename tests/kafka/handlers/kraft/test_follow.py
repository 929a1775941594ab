"""What is told of fetches that are refused: each kind once in a while, with the reason."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from controller.brokers.kraft.fleet import KraftFleet
from controller.kafka.handlers.kraft.follow import TOLD_EVERY_S, FetchHandler
from controller.kafka.handling import ClientConnection, RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.fetch import FetchRequest, FetchResponse, ReplicaState


class Refusing:
    """A fleet that refuses every fetch with a code, and keeps what is told."""

    def __init__(self) -> None:
        self.code, self.now, self.cluster_id = 104, 0.0, "ours"
        self.told: list[dict[str, Any]] = []
        self.raft = SimpleNamespace(fetch=self._fetch)
        self.log = SimpleNamespace(warning=lambda event, **fields: self.told.append(fields))

    def clock(self) -> float:
        return self.now

    async def _fetch(self, version: int, request: FetchRequest) -> FetchResponse:
        return FetchResponse(error_code=self.code)


def test_a_refusal_is_told_once_in_a_while_for_each_broker_and_code() -> None:
    fleet = Refusing()
    handler = FetchHandler(cast("KraftFleet", fleet))

    def fetch(broker_id: int, port: int = 1) -> None:
        context = RequestContext(ApiKey.FETCH, 17, connection=ClientConnection(peer=f"10.0.0.1:{port}"))
        request = FetchRequest(cluster_id="theirs", replica_state=ReplicaState(replica_id=broker_id))
        assert asyncio.run(handler(context, request)).error_code == fleet.code

    for port in range(5):
        fetch(4, port)
    assert [(one["broker"], one["peer"], one["code"]) for one in fleet.told] == [(4, "10.0.0.1:0", 104)]
    assert "the broker is of cluster theirs, and this is ours" in fleet.told[0]["why"]
    fetch(5)
    fleet.code = 42
    fetch(4)
    assert [(one["broker"], one["code"]) for one in fleet.told[1:]] == [(5, 104), (4, 42)]
    fleet.now = TOLD_EVERY_S
    fetch(4)
    assert len(fleet.told) == 4
