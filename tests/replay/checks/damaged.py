"""Random damage of sound logs: events are dropped, repeated, swapped or changed in one field, up to three of them in a
log. Half of the logs have a gap where an event was dropped."""

import random
from typing import Any, NamedTuple

from msgspec.structs import replace

from events import catalog
from events.catalog import Recorded
from tests.machine.audit.planted import Log, clean, renumbered

FIELDS = {
    catalog.CreateRequested: ("num_partitions", "replication_factor", "timeout_ms", "deadline_ms", "request_id"),
    catalog.CreateRejected: ("error_code", "message", "rule", "request_id"),
    catalog.TopicCreated: ("replication_factor", "live_brokers", "request_id", "deadline_ms", "topic"),
    catalog.PartitionsAdded: ("first", "live_brokers", "topic"),
    catalog.PartitionChanged: (
        "partition", "topic", "after.leader", "after.isr", "after.replicas", "after.leader_epoch",
        "after.partition_epoch",
    ),
    catalog.MetadataPropagated: ("brokers", "topic"),
    catalog.TopicReady: ("topic",),
    catalog.TopicDeleted: ("topic", "request_id"),
    catalog.CreateAnswered: ("error_code", "message", "request_id", "topic"),
    catalog.BrokerRegistered: ("broker_id", "broker_epoch"),
    catalog.BrokerFenced: ("broker_id",),
    catalog.BrokerUnfenced: ("broker_id",),
}  # fmt: skip
"""The fields to change."""


class Damaged(NamedTuple):
    """A damaged log, and a description of its faults."""

    done: tuple[str, ...]
    log: Log


def damaged(seed: int) -> Damaged:
    """Returns a log with one to three faults. A seed always gives the same log."""
    rng, log, done = random.Random(seed), list(SOUND[seed % len(SOUND)]), list[str]()
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind, place = (
            rng.choice(("drop", "repeat", "swap", "change", "change", "change")),
            rng.randrange(1, len(log) - 1),
        )
        done.append(f"{kind} {type(log[place].event).__name__} at {place}")
        if kind == "drop":
            del log[place]
        elif kind == "repeat":
            log[place:place] = [log[place]]
            log = renumbered(log)
        elif kind == "swap":
            first, second = log[place : place + 2]
            log[place : place + 2] = replace(second, offset=first.offset), replace(first, offset=second.offset)
        else:
            log[place], field = changed(log[place], log, rng)
            done[-1] += f" {field}"
    return Damaged(tuple(done), log if rng.random() < 0.5 else renumbered(log))


SOUND = (clean(),)


def changed(record: Recorded, log: Log, rng: random.Random) -> tuple[Recorded, str]:
    """Returns the record with another value in one field, and the name of the field."""
    fields = FIELDS.get(type(record.event))
    if fields is None:
        return replace(record, cause=catalog.Cause("Guess", record.cause.request_id)), "cause"
    field = rng.choice(fields)
    outer, _, inner = field.partition(".")
    value: Any = getattr(record.event, outer)
    event: Any = replace(
        record.event,
        **{outer: replace(value, **{inner: other(getattr(value, inner), rng)}) if inner else other(value, rng)},
    )
    return replace(record, event=event), field


def other(value: Any, rng: random.Random) -> Any:
    """Returns another value of the same type."""
    if isinstance(value, str):
        return rng.choice(("a", "slow", "nobody", "q1"))
    if isinstance(value, tuple):
        return rng.choice(((), (*value, 9), value[1:], (*value[:1], *value[:1]), value[::-1], (3,)))
    return rng.choice((value + 1, value - 1, 0, 9))
