"""The ports between the engine and its brokers. `Brokers` gets committed events, and reports to `CommandSink` with
commands. Simulated brokers, Kafka brokers (`kraft`) and a target cluster (`cluster`) implement `Brokers`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypedDict

from controller.access.refusals import Stamps
from controller.machine.commands.commands import AnyCommand, FenceBroker, RegisterBroker, UnfenceBroker
from controller.store.store import Part, TopicStore
from events.catalog import Endpoint, Fact, Recorded
from events.names import BrokerId, Offset, RequestId


class Stamp(TypedDict):
    """The request id and time that every command carries."""

    request_id: RequestId
    at_ms: int


def stamp(controller: Stamps, origin: str) -> Stamp:
    return {"request_id": controller.new_request_id(origin), "at_ms": controller.now_ms()}


async def walk(controller: CommandSink, parts: Iterable[Part]) -> AsyncIterator[Part]:
    """Iterate over parts. Between two of them the controller decides all commands submitted so far, and other tasks
    run."""
    for part in parts:
        yield part
        await asyncio.sleep(0)
        await controller.decided()


EventTypes = frozenset[type[Fact]]


class Subscriber(Protocol):
    """Follows the committed events of a log."""

    @property
    def handles(self) -> EventTypes: ...

    def on_events(self, records: Sequence[Recorded], end: Offset) -> None:
        """Handle the events of a commit whose types are in `handles`, perhaps none, in log order without gaps. `end` is
        the offset of the commit's last event."""


def publish(records: Sequence[Recorded], *subscribers: Subscriber) -> None:
    """Give the durable events of a commit to each subscriber."""
    end = records[-1].offset
    for each in subscribers:
        handles = each.handles
        each.on_events([record for record in records if type(record.event) in handles], end)


def report_live(
    sink: InternalCommands,
    broker_id: BrokerId,
    incarnation: str,
    rack: str | None,
    endpoints: tuple[Endpoint, ...],
    reason: str,
) -> None:
    """Register a broker and unfence it; without effect for a broker that is live and unchanged."""
    stamped = stamp(sink, f"broker-{broker_id}")
    sink.submit_internal(
        RegisterBroker(**stamped, broker_id=broker_id, incarnation=incarnation, rack=rack, endpoints=endpoints)
    )
    sink.submit_internal(UnfenceBroker(**stamped, broker_id=broker_id, reason=reason))


def report_failed(sink: InternalCommands, broker_id: BrokerId, reason: str) -> None:
    """Fence a broker."""
    sink.submit_internal(FenceBroker(**stamp(sink, f"broker-{broker_id}"), broker_id=broker_id, reason=reason))


class LeadLost(Exception):
    """Leadership was lost, or may be lost soon. The commit may still succeed later, or never."""


class InternalCommands(Stamps, Protocol):
    """Takes commands that have no client."""

    def submit_internal(self, command: AnyCommand) -> None:
        """Submit a command that nobody waits for. It is dropped while the log is not writable; see `Brokers.resume`."""


class CommandSink(InternalCommands, Protocol):
    """The controller, as brokers report to it."""

    def now_ms(self, at_least_ms: int = 0) -> int: ...

    @property
    def store(self) -> TopicStore: ...

    @property
    def last_offset(self) -> Offset:
        """The offset of the newest durable event; -1 in an empty log."""

    def has_pending_creates(self) -> bool:
        """True if some topic is not complete yet, so confirmations matter."""

    def is_reconciled(self) -> bool:
        """True if every topic was reconciled since the last broker change."""

    async def decided(self) -> None:
        """Wait until everything submitted so far is decided and durable, or dropped. Bulk senders wait in between."""

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task until it ends or the controller stops. An exception in it stops the controller."""


class Brokers(Subscriber, Protocol):
    """A set of brokers. All events that are passed to it are durable."""

    def start(self, controller: CommandSink) -> None:
        """Register the brokers and begin to report. Events that the log already holds are not passed to `on_events`; a
        process that died may have left any of them unreported."""

    def immediate_commands(self, records: Sequence[Recorded]) -> Sequence[AnyCommand]:
        """The commands with which brokers answer these events without delay. The engine decides them in the same commit
        as the events."""
        return ()

    def report_again(self, part: Part) -> None:
        """Report again on these partitions: one of their brokers changed, or this process has begun to decide."""
        return

    def resume(self) -> None:
        """Continue after a failed write dropped commands: submit all reports again that may have been dropped."""

    async def stop(self) -> None:
        """Stop reporting and release all resources."""
