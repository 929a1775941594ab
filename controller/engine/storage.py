"""The log, and the state that is decided on, over failures of the disk and changes of who leads.

After a failed write the truth is what the disk has: the state is ahead of it, and is read anew from the log as soon as
that can be written again. Where the log is replicated it is the same when the lead is lost: what was not committed was
never in the event log, and what others commit is taken from there on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from controller.brokers.port import Replication
from controller.machine.state import State
from events.catalog import Recorded
from events.codec import decode_event
from events.logs.log import EventLog, LogClosed, LogCorrupted, LogError
from projections.store.recorder import Projector, Recorder
from projections.store.store import TopicStore

RECOVER_AFTER_S = 1.0
"""How long a disk that failed is left alone before the next try."""

Flush = Callable[[], Awaitable[object]]

_BEYOND_RECOVERY = (LogCorrupted, LogClosed)
"""Errors of the log that trying again does not cure."""


class Storage:
    """Records in a log and makes it durable. Made with the log's state read: raises LogError."""

    def __init__(
        self,
        log: EventLog,
        flush: Flush,
        flush_alone: Flush,
        projector: Projector,
        replication: Replication | None,
        partitions_cached: int,
    ) -> None:
        self.log = log
        self.error: str | None = None
        """Why the log cannot be written now; None when it can."""
        self.recoveries = -1
        """How often the state was read anew."""
        self._flush, self._flush_alone = flush, flush_alone
        self._projector = projector
        self._replication = replication
        self._partitions_cached = partitions_cached
        self.load()

    def load(self) -> None:
        """Take the state that the log has for ours. Raises LogError."""
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
        """The state that is decided on: ahead of the store's durable view during a commit."""
        return self.recorder.state

    @property
    def leads(self) -> bool:
        """Whether this process may decide."""
        return self._replication is None or self._replication.leads

    async def write(self, alone: bool) -> None:
        """Make what was recorded durable; `alone` if nothing else is to be done meanwhile. Raises LogError: then only
        `recover` may follow; LeadLost: then `load`."""
        if self._replication is None:
            self.recorder.commit()
            await (self._flush_alone if alone else self._flush)()
        else:
            await self._replication.commit(self.recorder.take_commit())

    async def follow(self, stopping: asyncio.Event) -> list[Recorded] | None:
        """See `Replication.follow`."""
        return None if self._replication is None else await self._replication.follow(self.recorder, stopping)

    def show(self) -> None:
        """Let readers see what is durable."""
        self.store.became_durable(self.state)
        self._seen_end = self.log.next_offset

    async def recover(self, why: LogError, stopping: asyncio.Event) -> list[Recorded] | None:
        """Wait until the log can be written again, and take its state for ours. Returns what had been written in vain
        and survived all the same, which nobody has seen yet; None if stopped before. Raises the LogErrors that stay.
        """
        self.error = str(why)
        while not stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), RECOVER_AFTER_S)
                break
            try:
                self.log.recover()
                survivors = [decode_event(offset, value) for offset, value in self.log.read(self._seen_end)]
                self.load()
            except _BEYOND_RECOVERY:
                raise
            except LogError as error:
                self.error = str(error)
            else:
                self.error = None
                return survivors
        return None
