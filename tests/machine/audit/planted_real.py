"""Faults in a log of real brokers: each makes it wrong in one way, and names the one check that must see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from events.catalog import Cause, LogDirsChanged, PartitionChanged, PlaceholderFilled, Recorded
from events.names import BrokerId, Offset

Log = list[Recorded]
DIRECTORY = b"d" * 16
REAL_FAULTS: list[tuple[str, Callable[[Log], Log]]] = []
"""The check that must see it, and the fault."""


def _caught_by(check: str) -> Callable[[Callable[[Log], Log]], Callable[[Log], Log]]:
    def plant(fault: Callable[[Log], Log]) -> Callable[[Log], Log]:
        REAL_FAULTS.append((check, fault))
        return fault

    return plant


def _with(log: Log, has: Callable[[PartitionChanged], bool], **changed: Any) -> Log:
    """The log with other fields in the first step that is so."""
    at = next(n for n, one in enumerate(log) if isinstance(one.event, PartitionChanged) and has(one.event))
    return [*log[:at], replace(log[at], event=replace(log[at].event, **changed)), *log[at + 1 :]]


@_caught_by("leader-in-isr")
def in_sync_is_no_replica(log: Log) -> Log:
    return _with(log, lambda step: step.isr is not None and step.leader is None, isr=(BrokerId(1), BrokerId(9)))


@_caught_by("leaders-unfenced")
def elected_while_fenced(log: Log) -> Log:
    return _with(log, lambda step: step.leader == 2, leader=BrokerId(1), isr=(BrokerId(1), BrokerId(3)))


@_caught_by("replicas-distinct")
def moved_to_the_same_broker_twice(log: Log) -> Log:
    def moves(step: PartitionChanged) -> bool:
        return step.replicas is not None

    at = next(one.event for one in log if isinstance(one.event, PartitionChanged) and moves(one.event))
    assert isinstance(at, PartitionChanged)
    return _with(log, moves, replicas=(*(at.replicas or ()), (at.replicas or ())[0]))


@_caught_by("epochs-never-go-back")
def led_anew_in_the_old_epoch(log: Log) -> Log:
    last = [one.event for one in log if isinstance(one.event, PartitionChanged)][-1]
    return _with(log, lambda step: step == last, partition_epoch=last.partition_epoch - 1)


def while_cordoned(log: Log, at: int, broker_id: BrokerId) -> Log:
    """The log with all log directories of a broker cordoned for one event."""
    during = log[at]

    def dirs_changed(*cordoned: bytes) -> Recorded:
        event = LogDirsChanged(broker_id, 1, (DIRECTORY,), cordoned)
        return replace(during, cause=Cause("ChangeLogDirs", during.cause.request_id), event=event)

    planted = [*log[:at], dirs_changed(DIRECTORY), during, dirs_changed(), *log[at + 1 :]]
    return [replace(one, offset=Offset(number)) for number, one in enumerate(planted)]


@_caught_by("placeholders-filled")
def filled_by_a_cordoned_broker(log: Log) -> Log:
    at = next(n for n, one in enumerate(log) if isinstance(one.event, PlaceholderFilled))
    filled = log[at].event
    assert isinstance(filled, PlaceholderFilled)
    return while_cordoned(log, at, filled.broker_id)
