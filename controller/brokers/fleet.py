"""The port between the controller and the brokers that carry its decisions out."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

from controller.machine.apply import apply
from controller.machine.commands import AnyCommand
from controller.machine.state import State
from events.catalog import Recorded
from events.names import Offset, RequestId, ShardKey
from projections.store import TopicStore


class Projector(Protocol):
    """Keeps, with every commit, what else follows from its events: the metadata log that real brokers follow."""

    def apply(self, state: State, record: Recorded) -> ShardKey:
        """Bring the state past an event, as `machine.apply` does, and take what follows from it."""
        ...

    def changes(self) -> Mapping[bytes, bytes | None]:
        """The state keys to write with the events applied since the last call; None deletes."""
        ...


class EventsAlone:
    """Nothing but the machine's own state follows from events."""

    apply = staticmethod(apply)

    def changes(self) -> Mapping[bytes, bytes | None]:
        """None."""
        return {}


EVENTS_ALONE = EventsAlone()


class CommandSink(Protocol):
    """What a fleet reports to: the controller."""

    store: TopicStore

    @property
    def last_offset(self) -> Offset:
        """The offset of the newest durable event, -1 in an empty log."""
        ...

    def has_waiting_topics(self) -> bool:
        """Whether a topic is not complete yet, so that confirmations matter."""
        ...

    def is_settled(self) -> bool:
        """Whether every topic has been looked at since the last broker came or went."""
        ...

    def now_ms(self) -> int:
        """The time to stamp on a command."""
        ...

    def new_request_id(self, origin: str) -> RequestId:
        """An id for a command that no client asked for; `origin` says where it comes from."""
        ...

    def observe(self, command: AnyCommand) -> None:
        """Put a command that nobody waits for. It is dropped while the log cannot be written: see `Fleet.resume`."""
        ...

    async def decided(self) -> None:
        """Wait until all that was put so far is decided and durable, or dropped: what puts much waits in between."""
        ...

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something until it ends or the controller stops; what it raises stops the controller."""
        ...


class Fleet(Protocol):
    """Brokers. Everything it is told is durable."""

    def start(self, controller: CommandSink) -> None:
        """Register the brokers and begin to report. What the log holds already is not told by `learn`: a process that
        died may have left any of it without a report."""
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
