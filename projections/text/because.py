"""Which change of brokers an event of a topic follows from.

Topics are looked at after brokers changed, and several may have changed by then. So a change of a partition is compared
with how the partition stood: what took a broker out of it (it was fenced, it began to leave, it came back after an
unclean end, ...) is looked for among the changes of the brokers that are out, what brought one in among those of the
brokers that are in. The newest of these is named.

What it does not do: it knows no rule by which a partition changes, and names nothing that is not in the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

import msgspec

from events import catalog
from events.catalog import Event, Partition, Recorded
from events.names import BrokerId, TopicName
from projections.queries.query import Query
from projections.text.wording import in_words

_REVIEW = "ReviewTopics"
_REPORT = "AlterPartition"
"""What a leader reports may come of a change of brokers, or of a replica that is slow."""
_OUT = (
    catalog.BrokerFenced,
    catalog.BrokerUnregistered,
    catalog.BrokerLeaving,
    catalog.BrokerRegistered,
    catalog.LogDirsChanged,
)
_CHANGES = (*_OUT, catalog.BrokerUnfenced)
_OfPartition = catalog.LeaderElected | catalog.IsrChanged | catalog.PartitionChanged
_NOBODY: frozenset[BrokerId] = frozenset()


class _Stand(msgspec.Struct, frozen=True):
    """Who leads a partition (-1 for nobody), is in sync, and may lead if nobody is in sync."""

    leader: BrokerId
    isr: frozenset[BrokerId]
    eligible: frozenset[BrokerId] = _NOBODY


class Because:
    """Names the change of brokers that an event follows from. Events of a topic are given in order."""

    def __init__(self, part: Query, end: int) -> None:
        self.partition = part.partition
        self._all: list[Recorded] = []
        self._of_broker: dict[BrokerId, list[Recorded]] = {}
        self._stands: dict[tuple[TopicName, int], _Stand] = {}
        for record in part.broker_events(end):
            event = record.event
            if isinstance(event, _CHANGES) and _is_change(event):
                self._all.append(record)
                self._of_broker.setdefault(event.broker_id, []).append(record)

    def of(self, record: Recorded) -> str:
        """The change in words; "" where the event follows from none."""
        out, into = self._moved(record.event)
        if record.cause.command not in (_REVIEW, _REPORT):
            return ""
        before = record.offset
        if out or into:
            found = [*self._taking(out, before, record.cause.command), *self._bringing(into, before)]
            change = max(found, key=lambda one: one.offset, default=None)
        else:
            change = self._newest(None, before) if record.cause.command == _REVIEW else None
        return f"{in_words(change.event)} at offset {change.offset}" if change is not None else ""

    def _taking(self, brokers: Iterable[BrokerId], before: int, command: str) -> Iterator[Recorded]:
        """What took each of these out, the newest of each. A report of one that is back is of a slow replica."""
        for broker_id in brokers:
            newest = self._newest(broker_id, before)
            if command == _REPORT and newest is not None and isinstance(newest.event, catalog.BrokerUnfenced):
                continue
            yield from self._last(broker_id, before, _OUT)

    def _bringing(self, brokers: Iterable[BrokerId], before: int) -> Iterator[Recorded]:
        for broker_id in brokers:
            yield from self._last(broker_id, before, (catalog.BrokerUnfenced,))

    def _last(self, broker_id: BrokerId, before: int, kinds: tuple[type, ...]) -> Iterator[Recorded]:
        """The newest change of a broker that is of these kinds, if there is one."""
        changes = self._of_broker.get(broker_id, [])
        for number in range(_count(changes, before), 0, -1):
            if isinstance(changes[number - 1].event, kinds):
                yield changes[number - 1]
                return

    def _newest(self, broker_id: BrokerId | None, before: int) -> Recorded | None:
        """The newest change of a broker, or of any."""
        changes = self._all if broker_id is None else self._of_broker.get(broker_id, [])
        count = _count(changes, before)
        return changes[count - 1] if count else None

    def _moved(self, event: Event) -> tuple[frozenset[BrokerId], frozenset[BrokerId]]:
        """The brokers that the event takes out of a partition, and those that it brings in; it is kept how the
        partition stands after it."""
        match event:
            case catalog.TopicCreated() | catalog.TopicDiscovered():
                self._note(event.topic, 0, event.partitions)
            case catalog.PartitionsAdded():
                self._note(event.topic, event.first, event.partitions)
            case catalog.PlaceholderFilled():
                return _NOBODY, frozenset((event.broker_id,))
            case catalog.LeaderElected() | catalog.IsrChanged() | catalog.PartitionChanged():
                key = (event.topic, event.partition)
                stood = self._stands.get(key)
                after = self._stands[key] = _after(stood, event)
                return _difference(stood, after) if stood is not None else (_NOBODY, _NOBODY)
            case _:
                pass
        return _NOBODY, _NOBODY

    def _note(self, topic: TopicName, first: int, partitions: Iterable[Partition]) -> None:
        for index, one in enumerate(partitions, first):
            eligible = _NOBODY if one.upkeep is None else frozenset(one.upkeep.elr)
            self._stands[topic, index] = _Stand(one.leader, frozenset(one.isr), eligible)


def _is_change(event: Event) -> bool:
    """Whether partitions may stand otherwise for it; they do for a registration only after an unclean end."""
    return not isinstance(event, catalog.BrokerRegistered) or (event.details is not None and not event.details.clean)


def _count(changes: list[Recorded], before: int) -> int:
    """How many of these are before an offset."""
    return bisect_left(changes, before, key=lambda one: one.offset)


def _after(stood: _Stand | None, event: _OfPartition) -> _Stand:
    kept = stood or _Stand(BrokerId(-1), _NOBODY)
    return _Stand(
        kept.leader if event.leader is None else event.leader,
        kept.isr if event.isr is None else frozenset(event.isr),
        kept.eligible if not isinstance(event, catalog.PartitionChanged) or event.elr is None else frozenset(event.elr),
    )


def _difference(stood: _Stand, after: _Stand) -> tuple[frozenset[BrokerId], frozenset[BrokerId]]:
    """Who is out, and who is in. Where somebody comes into sync, others may cease to be eligible only for that."""
    out, into = stood.isr - after.isr, after.isr - stood.isr
    if after.leader != stood.leader:
        if stood.leader >= 0:
            out |= {stood.leader}
        elif after.leader >= 0:
            into |= {after.leader}
    if not into:
        out |= stood.eligible - after.eligible - after.isr
    return out, into
