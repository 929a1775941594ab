"""How long a broker's channel is held: it forwards one request at a time, and gives up after 30 s."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from controller.kafka.handling import RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.topics import CreatableTopic, CreateTopicsRequest
from controller.machine.commands.commands import CreateTopic
from controller.serving.real_brokers import real_broker_listener
from events.catalog import Endpoint


class Submitted(Exception):
    """Commands were submitted; with what they say of waiting, and for how long the requester waits."""


class ControllerApi:
    """A gateway that raises what is submitted to it."""

    advertised = Endpoint("CONTROLLER", "127.0.0.1", 9093)
    cluster_id = "cluster"
    controller = SimpleNamespace(new_request_id=lambda: "q", now_ms=lambda: 0)

    def denial_of_create(self, context: RequestContext, topic: str) -> int:
        return 0

    async def submit(self, commands: Sequence[CreateTopic], timeout_ms: int) -> None:
        raise Submitted([one.timeout_ms for one in commands], timeout_ms)


@pytest.mark.parametrize(("wanted", "waited"), [(-1, -1), (20_000, 20_000), (60_000, 25_000), (2**31 - 1, 25_000)])
def test_no_create_is_held_longer_than_25_s(wanted: int, waited: int) -> None:
    api: Any = ControllerApi()
    handler = real_broker_listener(Mock(), "CONTROLLER", api, {})[ApiKey.CREATE_TOPICS]
    request = CreateTopicsRequest(topics=(CreatableTopic(name="t"), CreatableTopic(name="u")), timeout_ms=wanted)
    with pytest.raises(Submitted) as submitted:
        asyncio.run(_answer(handler.handle(RequestContext(ApiKey.CREATE_TOPICS, 7), request)))
    assert submitted.value.args == ([waited, waited], waited)


async def _answer(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer
