"""The port between the controller and the brokers that carry its decisions out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypedDict

from controller.machine.commands.commands import AnyCommand
from controller.machine.state import Topic
from events.catalog import Recorded
from events.logs.log import Commit
from events.names import Offset, RequestId
from projections.store.recorder import Recorder
from projections.store.store import Part, TopicStore, parts_of, topic_slices


class Stamp(TypedDict):
    """What every command is stamped with."""

    request_id: RequestId
    at_ms: int


class Stamper(Protocol):
    """Who knows the time, and has ids to give."""

    def now_ms(self) -> int:
        """The time to stamp on a command."""
        ...

    def new_request_id(self, origin: str) -> RequestId:
        """An id that no other request has; `origin` says where it comes from."""
        ...


Slices = Callable[[Callable[[], TopicStore]], Iterator[list[Topic]]]
"""Durable topics in slices: `projections.store.store.topic_slices`, or `troubled_slices`."""


def stamp(controller: Stamper, origin: str) -> Stamp:
    """An id and the time, for a new command."""
    return {"request_id": controller.new_request_id(origin), "at_ms": controller.now_ms()}


async def walk(controller: CommandSink, slices: Slices = topic_slices) -> AsyncIterator[Part]:
    """All durable topics in parts, or those of other slices. Between two parts all that was put is decided, and others
    have their turn."""
    for topics in slices(lambda: controller.store):
        for part in parts_of(topics):
            yield part
            await asyncio.sleep(0)
            await controller.decided()


class LeadLost(Exception):
    """Another leads, or may lead soon: what was to be committed may yet be, or never is."""


class Replication(Protocol):
    """A log that several processes share, ahead of the event log of each: a commit counts when a majority has it."""

    on_lost: Callable[[], None]
    """Called when this process leads no longer."""

    @property
    def leads(self) -> bool:
        """Whether this process may decide: it leads, and has taken all that was committed before."""
        ...

    def reload(self) -> None:
        """Go on from where the event log is."""
        ...

    async def commit(self, commit: Commit) -> None:
        """Have a commit replicated, then written. Raises LeadLost, LogError."""
        ...

    async def follow(self, recorder: Recorder, stopping: asyncio.Event) -> list[Recorded] | None:
        """Take the next of what others committed, which is written when this returns; None when this process `leads`,
        or `stopping` is set. Raises LogError."""
        ...


class CommandSink(Protocol):
    """What a fleet reports to: the controller."""

    @property
    def store(self) -> TopicStore: ...

    @property
    def last_offset(self) -> Offset:
        """The offset of the newest durable event, -1 in an empty log."""
        ...

    def has_pending_creates(self) -> bool:
        """Whether a topic is not complete yet, so that confirmations matter."""
        ...

    def is_settled(self) -> bool:
        """Whether every topic has been looked at since the last broker came or went."""
        ...

    def now_ms(self) -> int:
        """The time to stamp on a command."""
        ...

    def new_request_id(self, origin: str) -> RequestId:
        """An id for a command that no client requested; `origin` says where it comes from."""
        ...

    def submit_internal(self, command: AnyCommand) -> None:
        """Put a command that nobody waits for. It is dropped while the log cannot be written: see `Fleet.resume`."""
        ...

    async def decided(self) -> None:
        """Wait until all that was put so far is decided and durable, or dropped: what puts much waits in between."""
        ...

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something until it ends or the controller stops; what it raises stops the controller."""
        ...


class Fleet(Protocol):
    """Brokers. Everything that it learns of is durable, and what it says at once counts when that is."""

    def start(self, controller: CommandSink) -> None:
        """Register the brokers and begin to report. What the log holds already does not come through `learn`: a
        process that died may have left any of it without a report."""
        ...

    def immediate_commands(self, records: Sequence[Recorded]) -> Sequence[AnyCommand]:
        """What brokers say of these events the moment that they are durable: it is decided with them, and committed in
        one, so that neither is there without the other."""
        ...

    def learn(self, records: Sequence[Recorded]) -> None:
        """Take note of committed events, which come in the order of the log and without gaps."""
        ...

    def resume(self) -> None:
        """Take up again after commands were dropped with a failed write: report anew whatever was reported since the
        write failed, or may have been lost with it."""
        ...

    async def stop(self) -> None:
        """Stop reporting and release what is held."""
        ...
