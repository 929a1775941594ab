"""An action that raises counts as refused; the other actions of the round are applied."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from structlog import get_logger
from structlog.testing import capture_logs

from controller.brokers.cluster.actions import ActionRunner, AddPartitions, Create, Delete, SetConfigs
from controller.brokers.cluster.link import Refusal
from controller.machine.errors import ErrorCode
from events.catalog import Partition
from events.names import BrokerId, RequestId, TopicId, TopicName
from tests.simulation.virtual_time import on_virtual_time

PARTITION = Partition((BrokerId(1),), (BrokerId(1),), BrokerId(1), 0, 0)
EXISTS = Refusal(int(ErrorCode.TOPIC_ALREADY_EXISTS), "there")


class Link:
    """A cluster that accepts everything once, and raises for topics called `bad`."""

    def __init__(self) -> None:
        self.there: set[str] = set()

    async def create(self, topics: Sequence[Any]) -> dict[str, Refusal | None]:
        came = {topic.topic: EXISTS if topic.topic in self.there else None for topic in topics}
        self.there |= came.keys() - {"bad"}
        _raise_on("bad" in came)
        return came

    async def delete(self, names: Sequence[str]) -> dict[str, Refusal | None]:
        _raise_on("bad" in names)
        return dict.fromkeys(names)

    async def add_partitions(self, topics: Sequence[Any]) -> dict[str, Refusal | None]:
        _raise_on(topics[0].topic == "bad")
        return {topics[0].topic: None}

    async def configs(self, names: Sequence[str]) -> dict[str, Any]:
        _raise_on("bad" in names)
        return dict.fromkeys(names, ())


def _raise_on(wanted: bool) -> None:
    if wanted:
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")


class Listener:
    """The results of actions by topic: an error code, 0 for success."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def finished(self, action: Any, refusal: Refusal | None) -> None:
        self.seen[action.topic] = 0 if refusal is None else refusal.code

    def topic(self, name: TopicName) -> None:
        return None


def action(kind: type[Any], name: str) -> Any:
    topic, more = TopicName(name), {"topic_id": TopicId(bytes(16)), "request_id": RequestId("q"), "first": 1}
    more |= {"partitions": (PARTITION,), "configs": ()}
    return kind(topic=topic, **{key: value for key, value in more.items() if key in kind.__struct_fields__})


@on_virtual_time
async def test_an_action_that_raises_is_refused_alone() -> None:
    for kind in (Create, Delete, AddPartitions, SetConfigs):
        listener = Listener()
        runner = ActionRunner(Link(), listener, get_logger())  # type: ignore[arg-type]
        with capture_logs() as lines:
            running = asyncio.create_task(runner.run())
            for name in ("a", "bad", "b"):
                runner.enqueue(action(kind, name))
            await asyncio.sleep(60)
            assert listener.seen == {"a": 0, "bad": -1, "b": 0}, kind
            runner.enqueue(action(kind, "c"))
            await asyncio.sleep(1)
            assert listener.seen["c"] == 0
            assert runner.pending.total() == 0
            assert [(line["event"], line["action"], line["topic"]) for line in lines] == [
                ("action failed", kind.__name__, "bad")
            ]
        running.cancel()
