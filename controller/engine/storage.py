"""The event log and the state that the engine (`group_commit`) decides with, across disk failures and leader changes.

After a failed write the state in memory is ahead of the disk. The state is loaded again from the log as soon as the log
can be written. With a replicated log this also happens when this process loses leadership: the event log never has
uncommitted events, and the new leader's commits continue from its end.

A slow disk must not block the event loop, but on a fast disk a round trip through the loop takes longer than an fsync.
For a single command `Flusher` therefore blocks the loop for up to `WAIT_S`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from controller.brokers.kraft.replication import QuorumReplication
from controller.machine.state import State
from controller.store.recorder import Projector, Recorder
from controller.store.store import TopicStore
from events.catalog import Recorded
from events.codec import decode_event
from events.logs.log import EventLog, LogClosed, LogCorrupted, LogError

RECOVER_AFTER_S = 1.0
"""Pause between attempts to recover the log."""

WAIT_S: Final = 0.002
"""The longest time that the event loop is blocked by an fsync, in seconds."""
FREE_AFTER_SLOW: Final = 32
"""Number of commits after a slow fsync that do not block the event loop."""
Flush = Callable[[], Awaitable[object]]


class Storage:
    """Records events in a log and makes them durable. The constructor loads the state and raises LogError."""

    def __init__(
        self,
        log: EventLog,
        flush: Flush,
        flush_alone: Flush,
        projector: Projector,
        replication: QuorumReplication | None,
        partitions_cached: int,
    ) -> None:
        self.log = log
        self.error: str | None = None
        """The reason why the log cannot be written now, or None."""
        self.recoveries = -1
        """The number of times that the state was loaded again."""
        self._flush, self._flush_alone = flush, flush_alone
        self._projector = projector
        self._replication = replication
        self._partitions_cached = partitions_cached
        self.load()

    def load(self) -> None:
        """Load the state from the log. Raises LogError."""
        self._projector.reload()
        if self._replication is not None:
            self._replication.reload()
        store = TopicStore(self.log, self._partitions_cached)
        recorder = Recorder(self.log, store, self._projector)
        self.store, self.recorder = store, recorder
        self._seen_end = self.log.next_offset
        self.recoveries += 1

    @property
    def state(self) -> State:
        return self.recorder.state

    @property
    def leads(self) -> bool:
        return self._replication is None or self._replication.leads

    @property
    def leader(self) -> str:
        """A sentence that names the process that decides instead of this one (`QuorumReplication.leader`)."""
        return "" if self._replication is None else self._replication.leader

    async def write(self, alone: bool) -> None:
        """Make the recorded events durable; `alone` if no other work waits. After LogError the caller must call
        `recover`, after LeadLost `load`."""
        if self._replication is None:
            self.recorder.commit()
            await (self._flush_alone if alone else self._flush)()
        else:
            await self._replication.commit(self.recorder.take_commit())

    async def follow(self, stopping: asyncio.Event) -> list[Recorded] | None:
        """Apply the leader's next commit and return its events (`QuorumReplication.follow`); None without a quorum."""
        return None if self._replication is None else await self._replication.follow(self.recorder, stopping)

    def publish(self) -> None:
        """Make the durable state visible to readers."""
        self.store.became_durable(self.state)
        self._seen_end = self.log.next_offset

    async def recover(self, why: LogError, stopping: asyncio.Event) -> list[Recorded] | None:
        """Wait until the log can be written again, and load its state. Returns the unpublished events that did reach
        the disk, or None if stopped before. Raises LogErrors that a retry does not cure."""
        self.error = str(why)
        while not stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), RECOVER_AFTER_S)
                break
            try:
                self.log.recover()
                survivors = [decode_event(offset, value) for offset, value in self.log.read(self._seen_end)]
                self.load()
            except (LogCorrupted, LogClosed):
                raise
            except LogError as error:
                self.error = str(error)
            else:
                self.error = None
                return survivors
        return None


class Flusher:
    """Calls the blocking `flush` in a thread, one at a time; calls `flushed` on the loop after each."""

    def __init__(self, flush: Callable[[], object], flushed: Callable[[], object]) -> None:
        self._flush, self._flushed = flush, flushed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="flush")
        self._free = 0

    async def flush(self) -> None:
        """Make all writes so far durable without blocking the loop. Raises what `flush` raises."""
        await asyncio.wrap_future(self._thread.submit(self._flush))
        self._flushed()

    async def flush_alone(self) -> None:
        """Like `flush`, for a commit of a single command: may block the event loop."""
        if self._free:
            self._free -= 1
            await self.flush()
            return
        flushing = self._thread.submit(self._flush)
        try:
            flushing.result(WAIT_S)
        except TimeoutError:
            self._free = FREE_AFTER_SLOW
            await asyncio.wrap_future(flushing)
        self._flushed()

    def close(self) -> None:
        self._thread.shutdown()
