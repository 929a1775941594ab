"""What Kafka's wire and HTTP use of whoever decides: the controller in the process, or a front of stream workers.

A front node does not decide: it has its asks decided by the workers and follows what became of them. Both answer the
same questions in the same way, so the handlers do not know which of them they work with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Sized
from typing import Protocol

from controller.machine.commands import Asked
from controller.machine.decision import Answer
from controller.runtime.mutation_quotas import Throttle
from controller.runtime.refusals import RefusalRecords
from events.names import RequestId
from projections.reading import TopicReader


class LogSeen(Protocol):
    """The log, as far as it is told about."""

    @property
    def cluster_id(self) -> str:
        """The id of the cluster whose log this is."""
        ...

    @property
    def durable_offset(self) -> int:
        """How many events are durable."""
        ...


class Waiting(Protocol):
    """The topics that were never complete yet."""

    @property
    def waiting(self) -> Sized: ...


class ControllerPort(Protocol):
    """Who has asks decided, and shows what is durable."""

    @property
    def store(self) -> TopicReader:
        """Topics, brokers and settings as of the newest event that may be seen."""
        ...

    @property
    def log(self) -> LogSeen: ...

    @property
    def state(self) -> Waiting: ...

    @property
    def replies(self) -> Sized:
        """The requests that are not answered yet."""
        ...

    @property
    def storage_error(self) -> str | None:
        """Why the log cannot be written now; None when it can."""
        ...

    @property
    def failure(self) -> BaseException | None:
        """What ended the service; None while it works."""
        ...

    @property
    def refusals(self) -> RefusalRecords:
        """Where denials are counted that lead to no command."""
        ...

    def now_ms(self) -> int:
        """The time to stamp on a command."""
        ...

    def new_request_id(self, origin: str = "") -> RequestId:
        """An id that no other request has; `origin` says where it comes from."""
        ...

    def ask(
        self, commands: Sequence[Asked], timeout_ms: int = 0, throttle: Throttle | None = None
    ) -> asyncio.Future[list[Answer]]:
        """Put the commands of one request, one a topic; the future gets their answers in the same order. `throttle` is
        told for how long the asker's mutation quota is exhausted (KIP-599)."""
        ...
