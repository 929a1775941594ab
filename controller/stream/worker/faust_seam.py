"""Changes Faust's consumer so that no command is lost, for `driver_faust`. All use of Faust's internals is here.

No other module overrides or reads a private part of Faust or of mode, its base. `test_faust.py` lists each part with
the reason, and fails when a release of Faust changes one.

Unchanged, Faust loses messages at rebalances. It seeks to the committed offsets and then clears every agent's queue, so
messages that were delivered in between are gone although they count as read. If two rebalances follow each other
closely, the end of the first lets messages flow during the second. It also drops messages below the last one that it
passed on, even if they never arrived. Therefore:

- `perform_seek` seeks each partition to the next command that the events prove. Fetches and seeks exclude each other.
- Each message has the number of seeks before its fetch (`seek`); older messages are dropped.
- Read offsets are not remembered: the engine drops decided commands, and detects missing ones.
- A fetch waits for less than Faust's fixed 1.5 s, because every rebalance waits for it.
- aiokafka's consumer is closed even without Kafka, where its own `stop` raises.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError
from faust.transport.drivers import aiokafka as transport

from controller.stream.log.transport import close_client

FETCH_WAIT_MS = 100
FETCH_TIMEOUT_S = 0.25
"""The limit of a fetch: a rebalance waits for it."""
IDLE_S = 0.05
"""Wait when there is no partition to fetch from: all are full, or none is assigned."""


class _NoOffsets(dict[Any, Any]):
    """A dict that stores nothing: it replaces Faust's record of the last offset read per partition."""

    def __missing__(self, key: Any) -> None:
        return None

    def __setitem__(self, key: Any, value: Any) -> None:
        return None


class _Thread(transport.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, of: Any) -> Any:
        consumer = super()._create_worker_consumer(of)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer

    async def on_thread_stop(self) -> None:
        await super(transport.AIOKafkaConsumerThread, self).on_thread_stop()
        if self._consumer is not None:
            await close_client(self._consumer)


class FaustConsumer(transport.Consumer):
    """The Faust consumer of a worker: seeks to the next command that the events prove, and drops older messages."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seeks = 0
        """The number of seeks; messages fetched before the last one are outdated."""
        self._fetching_or_seeking = asyncio.Lock()
        self._read_offset = _NoOffsets()

    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[Any, Any]]:
        """Fetch once, and yield the messages until the flow is suspended or a seek outdates them."""
        while not self.flow_active and not self.should_stop:
            await self.wait(self.can_resume_flow)  # type: ignore[arg-type]  # as Faust itself calls it
        records, seek = await self._fetched()
        for tp, record in self.scheduler.iterate(records):
            if not self.flow_active or self.seeks != seek or self.should_stop:
                return
            message: Any = self._to_message(tp, record)
            message.seek = seek
            yield tp, message

    async def _fetched(self) -> tuple[Mapping[Any, Any], int]:
        if not self._get_active_partitions():
            await self.sleep(IDLE_S)
        async with self._fetching_or_seeking:
            active = set(self._get_active_partitions())
            records = await self._getmany(active, FETCH_TIMEOUT_S) if active and not self.should_stop else {}
            return records, self.seeks

    def verify_event_path(self, now: float, tp: Any) -> None:
        """Disable Faust's check for stalled partitions, which fails in a rebalance; our metrics report those."""

    def hold(self) -> None:
        """Suspend the flow until `resume_flowing`, or until Faust resumes it after a rebalance."""
        self.stop_flow()
        self.app.flow_control.suspend()
        self.app.flow_control.clear()

    def resume_flowing(self) -> None:
        self.app.flow_control.resume()
        self.resume_flow()

    async def perform_seek(self) -> None:
        """Seek to the offsets that the events prove, not to the committed ones."""
        assert isinstance(self.transport, FaustTransport), "made by it"
        async with self._fetching_or_seeking:
            self.seeks += 1
            positions = self.transport.positions()
            to = {tp: positions[tp.partition] for tp in self.assignment() if tp.partition in positions}
            with suppress(IllegalStateError):  # assigned to somebody else meanwhile: the next rebalance is under way
                await self.seek_wait({TopicPartition(tp.topic, tp.partition): offset for tp, offset in to.items()})


class FaustTransport(transport.Transport):
    """Faust's transport with `FaustConsumer`."""

    Consumer = FaustConsumer
    positions: Callable[[], Mapping[int, int]]
    """The next command of each claimed partition."""


def crash_of(app: Any) -> BaseException | None:
    """Why Faust has stopped itself; None if it runs."""
    return app.crash_reason if app._crashed.is_set() else None
