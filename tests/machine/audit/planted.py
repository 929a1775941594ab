"""A clean log with all types of events, and faults planted in it.

Each fault breaks the clean log in one way, and names the only check that must find it. Offsets are renumbered, and
causes and epochs adjusted.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from events import catalog
from events.names import BrokerId, Offset, RequestId
from tests.machine.tables import command, given

Log = list[catalog.Recorded]
Faults = dict[str, dict[str, Callable[[Log], Log]]]
"""Faults by name, grouped by the only check that must find them."""

STEPS = """
create a 2x3 id=q0
confirm 1 2
create a 1x1 id=q1
create a_b 1x1 id=q2 timeout=0
create a.b 1x1 id=q3
create slow 1x2 id=q4
expire slow id=q4 at=5000
partitions a to=3 id=q5
register 3 rack=z
unfence 3
reconcile a a_b slow
sync a
partitions a to=4 id=q6
partitions a to=1 id=q7
create hand on=0:1.3,1:3.1 id=q8
confirm 1 2 3
fence 2
reconcile a a_b slow hand
create onfenced on=0:1.2 id=q9 timeout=0
delete hand id=q10
create hand 3x1 id=q11
confirm 1 3
alter a set:min.insync.replicas=2 id=q12
create gone 1x1 id=q13
delete gone id=q14
settings 1.0 fewer policy
create refused 1x1 id=q15 verdict=refused
create failed 1x1 id=q16 verdict=failed
create kept 1x1 id=q17 verdict=allowed timeout=0
create auto 1x1 id=q18 api=Metadata verdict=allowed
confirm 1 3
unfence 2
reconcile a a_b slow hand onfenced kept auto
sync a
register 1 rack=x as=again
reconcile a a_b slow hand onfenced kept auto
unfence 1
reconcile a a_b slow hand onfenced kept auto
create under 1x4 id=q19 verdict=allowed
confirm 1 2 3
partitions under to=2 id=q20
register 4 rack=x
unfence 4
reconcile a a_b slow hand onfenced kept auto under
fence 4
unregister 4
reconcile a a_b slow hand onfenced kept auto under
create waits 1x1 id=q21 verdict=allowed
"""


def clean() -> Log:
    """A log without violations: brokers stop, start, register again and leave; it has placeholders, added partitions,
    deletions, timeouts and policies."""
    rig = given("1@x 2@y fewer")
    for line in STEPS.strip().splitlines():
        rig.put(command(rig, line))
    return rig.log


# Helpers.


def every(log: Log, kind: type, **fields: Any) -> list[int]:
    """Returns the indexes of events of a type with these fields."""
    return [
        index
        for index, record in enumerate(log)
        if isinstance(record.event, kind) and all(getattr(record.event, k) == v for k, v in fields.items())
    ]


def at(log: Log, kind: type, nth: int = 0, **fields: Any) -> int:
    """Returns the index of the first such event, or the nth."""
    return every(log, kind, **fields)[nth]


def changed(log: Log, index: int, **fields: Any) -> Log:
    """Returns the log with other fields in one event."""
    event = replace(log[index].event, **fields)
    return [*log[:index], replace(log[index], event=event), *log[index + 1 :]]


def renumbered(log: Log) -> Log:
    return [replace(record, offset=Offset(offset)) for offset, record in enumerate(log)]


def without(log: Log, *indices: int) -> Log:
    return renumbered([record for index, record in enumerate(log) if index not in indices])


def again(log: Log, index: int) -> Log:
    return renumbered([*log[: index + 1], log[index], *log[index + 1 :]])


def then(log: Log, by: str, request: str, *events: catalog.Event, at: int | None = None) -> Log:
    """Returns the log with the events of another decision, at its end or before an index."""
    place = len(log) if at is None else at
    made = [
        catalog.Recorded(Offset(0), log[place - 1].at_ms, catalog.Cause(by, RequestId(request)), event)
        for event in events
    ]
    return renumbered([*log[:place], *made, *log[place:]])


def with_partition(log: Log, index: int, **fields: Any) -> Log:
    """Returns the log with another first partition in a creation."""
    event: Any = log[index].event
    partition: catalog.Partition = replace(event.partitions[0], **fields)
    return changed(log, index, partitions=(partition, *event.partitions[1:]))


def as_requested(log: Log, topic: str) -> Log:
    """Returns the log with a create request that asks for exactly the created topic."""
    index = at(log, catalog.TopicCreated, topic=topic)
    created: Any = log[index].event
    factor = len(created.partitions[0].replicas)
    at_request = at(log, catalog.CreateRequested, topic=topic, request_id=created.request_id)
    request: Any = log[at_request].event
    by_hand = [
        catalog.Assignment(number, one.replicas) for number, one in enumerate(created.partitions) if request.assignments
    ]
    fields = {"assignments": tuple(by_hand)} if by_hand else {"replication_factor": factor}
    return changed(changed(log, index, replication_factor=factor), at_request, **fields)


def with_settings(log: Log, **pairs: str) -> Log:
    """Returns the log with other settings in its first event."""
    event: Any = log[0].event
    settings = dict(event.settings) | {key.replace("_", "."): value for key, value in pairs.items()}
    return changed(log, 0, settings=tuple(sorted(settings.items())))


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(one) for one in numbers)


def changes(log: Log, has: Callable[[catalog.PartitionChanged], object]) -> list[int]:
    """Returns the indexes of the matching partition changes."""
    return [n for n in every(log, catalog.PartitionChanged) if has(log[n].event)]  # type: ignore[arg-type]


def changed_to(log: Log, index: int, **fields: Any) -> Log:
    """Returns the log with other partition fields after a change, and before its next change."""
    event: Any = log[index].event
    after = replace(event.after, **fields)
    log = changed(log, index, after=after)
    later = next((n for n in range(index + 1, len(log)) if same_partition(log[index], log[n])), None)
    return log if later is None else changed(log, later, before=after)


def last_fill(log: Log, topic: str) -> int:
    """Returns the index of the last fill of a placeholder without later events of the partition."""
    for index in reversed(changes(log, lambda event: event.topic == topic and event.filled)):
        event: Any = log[index].event
        later = (record.event for record in log[index + 1 :])
        if not any((getattr(e, "topic", ""), getattr(e, "partition", -1)) == (topic, event.partition) for e in later):
            return index
    raise AssertionError(f"{topic} has no such fill")


def same_partition(one: catalog.Recorded, other: catalog.Recorded) -> bool:
    """True if `other` is a later record of the same partition."""
    first: Any = one.event
    second: Any = other.event
    if one.offset >= other.offset or not hasattr(second, "partition"):
        return False
    return (first.topic, first.partition) == (second.topic, second.partition)


def first_replicas(log: Log, topic: str) -> tuple[BrokerId, ...]:
    """Returns the first partition's replicas in the creation of a topic."""
    event: Any = log[at(log, catalog.TopicCreated, topic=topic)].event
    replicas: tuple[BrokerId, ...] = event.partitions[0].replicas
    return replicas
