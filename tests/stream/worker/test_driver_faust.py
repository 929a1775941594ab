"""What is changed in Faust's consumer: nothing is passed over, whenever rebalances and seeks come in between; and
partitions that are lost between rebalances are claimed anew.

Faust's own loop hands the messages on here, from a topic in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from faust.types.tuples import TP

from controller.stream.worker import driver_faust
from controller.stream.worker.driver import Group
from controller.stream.worker.driver_faust import FaustDriver
from controller.stream.worker.engine import Engine, IsCurrent, PartitionsLost
from controller.stream.worker.faust_seam import FaustConsumer
from controller.stream.worker.partition_decider import Sourced

HERE = TP("commands", 0)


class Feeding:
    """The consumer over one partition of `size` messages, and what it has handed on that is not old."""

    def __init__(self, driver: FaustDriver, consumer: Any, size: int, chance: random.Random) -> None:
        self.driver = driver
        self.consumer = consumer
        self.size = size
        self.decided = 0
        """What the events prove."""
        self.position = 0
        self.seen: list[int] = []
        self.blocked = asyncio.Event()
        self.blocked.set()
        self.running: asyncio.Task[None] | None = None
        self._chance = chance

    def poll(self) -> None:
        """Raise what has ended Faust's loop."""
        assert self.running is not None
        if self.running.done():
            self.running.result()

    async def fetch(self, active: Any, timeout: float) -> dict[Any, list[Any]]:
        await self._a_while()
        start, self.position = self.position, min(self.size, self.position + 10)
        await self._a_while()
        return {HERE: [_record(offset) for offset in range(start, self.position)]}

    async def seek(self, to: dict[Any, int]) -> None:
        await self._a_while()
        [self.position] = to.values()
        await self._a_while()

    async def hand_on(self, message: Any) -> None:
        """As Faust's conductor: it waits for room, and may be given up meanwhile."""
        await self.blocked.wait()
        await self._a_while()
        if message.seek == self.consumer.seeks:
            self.seen.append(message.offset)
            assert message.offset <= self.decided, f"command {self.decided} expected, got {message.offset}"
            self.decided += message.offset == self.decided

    async def _a_while(self) -> None:
        for _ in range(self._chance.randrange(3)):
            await asyncio.sleep(0)


def _record(offset: int) -> Any:
    fields: dict[str, Any] = dict.fromkeys(("headers", "key", "checksum", "serialized_key_size"))
    return SimpleNamespace(
        topic=HERE.topic,
        partition=HERE.partition,
        offset=offset,
        timestamp=0,
        timestamp_type=0,
        value=b"",
        serialized_value_size=0,
        **fields,
    )


@asynccontextmanager
async def feeding(monkeypatch: pytest.MonkeyPatch, size: int = 400, seed: int = 1) -> AsyncIterator[Feeding]:
    """Faust's loop under way, without Kafka."""
    engine: Any = SimpleNamespace(leaders={0}, data=Path())
    driver = FaustDriver(cast(Engine, engine), Group("127.0.0.1:1", "workers", HERE.topic, 1, 6000))
    app = driver._app = driver._make_app()
    consumer: FaustConsumer = app.consumer
    one = Feeding(driver, consumer, size, random.Random(seed))
    engine.next_source = lambda _: one.decided
    for name, what in (("_getmany", one.fetch), ("seek_wait", one.seek), ("assignment", lambda: {HERE})):
        monkeypatch.setattr(consumer, name, what)
    consumer.callback = one.hand_on
    consumer._set_active_tps({HERE})
    app.flow_control.resume()
    fetcher: Any = SimpleNamespace(_stopped=asyncio.Event())
    one.running = running = asyncio.create_task(consumer._drain_messages(fetcher))
    try:
        yield one
    finally:
        fetcher._stopped.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        app.consumer._thread.thread_loop.close()


async def until(what: Callable[[], bool], running: Feeding) -> None:
    for _ in range(20_000):
        if what():
            return
        running.poll()
        await asyncio.sleep(0)
    pytest.fail(f"it stands still at {running.decided}: {running.seen[-5:]}")


async def test_messages_after_a_seek_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust itself drops what lies before the last message that it has handed on, even if that did not arrive."""
    async with feeding(monkeypatch) as one:
        await until(lambda: one.decided > 20, one)
        one.blocked.clear()
        await asyncio.sleep(0.01)
        one.consumer.hold()
        await asyncio.sleep(0.01)
        one.decided = 5
        await one.consumer.perform_seek()
        one.blocked.set()
        one.consumer.resume_flowing()
        await until(lambda: one.decided == one.size, one)


async def test_messages_fetched_before_a_seek_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where messages flow all the while, as they do when one rebalance follows another."""
    async with feeding(monkeypatch) as one:
        await until(lambda: one.decided > 20, one)
        one.decided = 5
        await one.consumer.perform_seek()
        await until(lambda: one.decided == one.size, one)


@pytest.mark.parametrize("seed", range(8))
async def test_no_command_is_lost_at_rebalances(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Rebalances that stop the flow, or find it stopped, or going; seeks; messages that wait for room."""
    chance = random.Random(seed)
    async with feeding(monkeypatch, 1000, seed) as one:
        while one.decided < one.size:
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
            one.poll()
            (one.blocked.clear if chance.random() < 0.3 else one.blocked.set)()
            if chance.random() < 0.5:
                one.consumer.hold()
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            if not one.consumer.flow_active or chance.random() < 0.2:
                await one.consumer.perform_seek()
            one.consumer.resume_flowing()


class LosingEngine:
    """An engine that loses its partition at every hundredth command."""

    def __init__(self, one: Feeding) -> None:
        self.leaders = {0}
        self.claims: list[set[int]] = []
        self._one = one
        self._lost_at = 0

    def next_source(self, partition: int) -> int:
        return self._one.decided

    async def handle(self, commands: Sequence[Sourced]) -> None:
        for command in commands if self.leaders else ():
            if command.offset % 100 == 99 and command.offset > self._lost_at:
                self._lost_at = command.offset
                self.leaders = set()
                raise PartitionsLost("taken over")
            assert command.offset <= self._one.decided, f"{self._one.decided} expected, got {command.offset}"
            self._one.decided += command.offset == self._one.decided

    async def claim(self, partitions: Collection[int], still: IsCurrent) -> bool:
        self.claims.append(set(partitions))
        if len(self.claims) == 2:
            raise PartitionsLost("Kafka does not answer")
        self.leaders = set(partitions)
        return still()


async def test_lost_partitions_are_claimed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_faust, "RETRY_S", 0.01)
    claimed: list[int] = []
    async with feeding(monkeypatch) as one:
        driver, engine = one.driver, LosingEngine(one)
        driver._engine = cast(Engine, engine)
        driver._on_claimed = lambda: claimed.append(one.decided)

        async def into_the_inbox(message: Any) -> None:
            await driver._inbox.put(SimpleNamespace(message=message, ack=lambda: None))

        one.consumer.callback = into_the_inbox
        working = [asyncio.create_task(each) for each in (driver._drain(), driver._reclaim_lost())]
        for _ in range(2000):
            if one.decided == one.size or driver._failed.done():
                break
            await asyncio.sleep(0.01)
        for each in working:
            each.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    assert not driver._failed.done(), driver._failed.exception()
    assert engine.claims == [{0}] * 5, "one of them was in vain"
    assert claimed == [99, 199, 299, 399]
