"""What Kafka's wire and HTTP use of whoever decides: the controller in the process, or a front of stream workers.

A front node does not decide: it has its commands decided by the workers and follows what became of them. Both answer
the same questions in the same way, so the handlers do not know which of them they work with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec

from controller.access.refusals import RefusalRecords
from controller.machine.commands.commands import ClientCommand
from controller.machine.decision import Answer
from events.names import RequestId
from projections.store.store import TopicReader


class Reply(msgspec.Struct, frozen=True, gc=False):
    """What a request is answered: an answer to each of its commands, in their order.

    Where it went beyond its sender's mutation quota (KIP-599), the sender is to be silent until `throttled_until_s` by
    the clock of the event loop.
    """

    answers: tuple[Answer, ...] = ()
    throttled_until_s: float = 0.0

    @property
    def silence_ms(self) -> int:
        """For how long from now the sender is to be silent."""
        return max(0, round((self.throttled_until_s - asyncio.get_running_loop().time()) * 1000))

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)


PARTITIONS_PER_PORTION = 500
"""Of so many partitions a request's parts are decided at once: others get in between."""
K = TypeVar("K")
V = TypeVar("V")


def in_portions(wanted: Iterable[tuple[K, Sequence[V]]]) -> Iterator[list[tuple[K, Sequence[V]]]]:
    """What is wanted of partitions of some topics, each topic once, in portions of which none has more than
    `PARTITIONS_PER_PORTION`, and each names a topic once."""
    portion: list[tuple[K, Sequence[V]]] = []
    room = PARTITIONS_PER_PORTION
    for topic, each in wanted:
        rest = each
        while len(rest) > room:
            yield [*portion, (topic, rest[:room])]
            rest, portion, room = rest[room:], [], PARTITIONS_PER_PORTION
        portion.append((topic, rest))
        room -= len(rest)
    if portion:
        yield portion


class Standing(msgspec.Struct, frozen=True):
    """How a controller stands at this moment, for health and figures.

    `storage_error` is why the log cannot be written now, `failure` what ended deciding; both are None while all is
    well.
    """

    events_durable: int
    topics_waiting: int
    requests_open: int
    storage_error: str | None
    failure: BaseException | None


class ControllerPort(Protocol):
    """Who has commands decided, and shows what is durable."""

    @property
    def store(self) -> TopicReader:
        """Topics, brokers and settings as of the newest event that may be seen."""
        ...

    @property
    def cluster_id(self) -> str:
        """The id of the cluster whose log this is."""
        ...

    def standing(self) -> Standing:
        """Its standing at this moment, for health and figures."""
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

    def submit(self, commands: Sequence[ClientCommand], timeout_ms: int = 0) -> asyncio.Future[Reply]:
        """Put the commands of one request, one a topic. With `timeout_ms` above 0 what is not answered by then is
        answered REQUEST_TIMED_OUT."""
        ...
