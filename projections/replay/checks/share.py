"""All events of a share of the shards, shard by shard in the order of offsets, as the checks look at them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from events.external_decision import FOLLOW
from events.names import shard_key
from projections.replay.checks.arrays import NONE, NOWHERE, Bools, Groups, Ints, Lists, coded, combined, numbers
from projections.replay.checks.check import Place
from projections.replay.checks.packs import CAUSES_KEPT, REVIEW, Pack, together
from projections.replay.checks.rows import ADOPTED, TYPES, is_one_of
from projections.replay.checks.timeline import Moments, Span

_SORTED = (
    "log_partition", "offset", "at_ms", "type", "cause", "error_code", "deadline_ms", "timeout_ms", "partition",
    "first", "leader", "leader_epoch", "partition_epoch", "kraft", "manual", "added", "own_min_isr",
    "num_partitions", "replication_factor",
)  # fmt: skip


class Share:
    """Events as columns; a row is the place of an event in all of them. `created` has a row for each partition that an
    event created, with the row of that event; `assigned` for each whose replicas an event assigns by hand."""

    def __init__(self, packs: Iterable[Pack], spans: Iterable[Span]) -> None:
        events, created, assigned = together(packs)
        columns = {name: _whole(events, name) for name in events.column_names}
        topics, self.topics = coded(columns["topic"])
        shards = _shards(self.topics, topics, numbers(columns["log_partition"]))
        order = np.lexsort((numbers(columns["offset"]), shards))
        self._columns = {name: numbers(columns[name])[order] for name in _SORTED}
        self.shard = shards[order]
        self.topic = topics[order]
        requests, self.requests = coded(columns["request_id"])
        self.request = requests[order]
        self.lists = Lists()
        self.isr, self.brokers, self.replicas, self.stood = (
            self.lists.column(columns[name])[order] for name in ("isr", "brokers", "replicas", "stood")
        )
        self.in_shard = Groups(self.shard)
        self.created = Created(created, np.argsort(order), self["first"], self.lists)
        self.assigned = Assigned(assigned, np.argsort(order), self.lists)
        self.moments = Moments(list(spans), self.lists)
        self.moment = self.moments.find(self["log_partition"], self["offset"])
        self.live = self.moments.live(self.moment)
        self.usable = self.moments.usable(self.moment)

    def __getitem__(self, name: str) -> Ints:
        return self._columns[name]

    def __len__(self) -> int:
        return len(self.shard)

    def of(self, *types: str) -> Bools:
        """Whether an event is of one of the types."""
        return is_one_of(self["type"], TYPES, types)

    @property
    def foreign(self) -> Bools:
        """Whether another controller decided what an event says: before its cluster was taken over, or while it was
        followed."""
        return is_one_of(self["cause"], CAUSES_KEPT, (ADOPTED, FOLLOW))

    @property
    def reviewed(self) -> Bools:
        """Whether an event came of a review of topics."""
        return is_one_of(self["cause"], CAUSES_KEPT, (REVIEW,))

    def name(self, topic: int) -> str:
        """The name of a topic; `none` where there is none."""
        return "none" if topic == NOWHERE else self.topics[topic]

    def type_name(self, row: int | np.int64) -> str:
        """The type of an event."""
        return TYPES[self["type"][row]]

    def place(self, row: int) -> Place:
        """Where an event stands."""
        topic = self.topics[self.topic[row]]
        return int(self["log_partition"][row]), shard_key(topic), int(self["offset"][row]), topic


class Chosen:
    """Rows that belong to events of a share: `event` has the place of each there."""

    def __init__(self, share: Share, event: Ints) -> None:
        self.share, self.event = share, event
        self._said: dict[str, Ints] = {}

    def __getitem__(self, name: str) -> Ints:
        said = self._said.get(name)
        if said is None:
            said = self._said[name] = self.share[name][self.event]
        return said

    def of(self, *types: str) -> Bools:
        """Whether an event is of one of the types."""
        return self.share.of(*types)[self.event]

    def place(self, row: int) -> Place:
        """Where an event stands."""
        return self.share.place(int(self.event[row]))


class Created:
    """The partitions that events created, in the order of those events."""

    def __init__(self, table: pa.Table, row_of: Ints, firsts: Ints, lists: Lists) -> None:
        event = row_of[numbers(_whole(table, "event"))]
        place = numbers(_whole(table, "place"))
        order = np.lexsort((place, event))
        self.event, self.place = event[order], place[order]
        first = firsts[self.event]
        self.partition = np.where(first == NONE, 0, first) + self.place
        self.replicas = lists.column(_whole(table, "replicas"))[order]
        self.isr = lists.column(_whole(table, "isr"))[order]
        self.leader, self.leader_epoch, self.partition_epoch = (
            numbers(_whole(table, name))[order] for name in ("leader", "leader_epoch", "partition_epoch")
        )


class Assigned:
    """The partitions whose replicas events assign by hand, in the order of those events and of their partitions."""

    def __init__(self, table: pa.Table, row_of: Ints, lists: Lists) -> None:
        event = row_of[numbers(_whole(table, "event"))]
        partition = numbers(_whole(table, "partition"))
        order = np.lexsort((partition, event))
        self.event = event[order]
        self._places = _place(self.event, partition[order])
        self.replicas = lists.column(_whole(table, "replicas"))[order]

    def find(self, event: Ints, partition: Ints) -> Ints:
        """What these events request as the replicas of these partitions, NOWHERE where they request none."""
        wanted = _place(event, partition)
        found = np.searchsorted(self._places, wanted)
        there = np.append(self._places, NOWHERE)[found] == wanted
        return np.where(there, np.append(self.replicas, NOWHERE)[found], NOWHERE)


def _place(event: Ints, partition: Ints) -> Ints:
    """One number for an event and a partition, in their order; below NOWHERE for no event."""
    return (event << 32) + partition


def _whole(table: pa.Table, name: str) -> pa.Array:
    """A column of a table in one piece."""
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _shards(names: list[str], topics: Ints, partitions: Ints) -> Ints:
    """A number for each shard of each log partition."""
    shards: dict[str, int] = {}
    by_topic = np.array([shards.setdefault(shard_key(name), len(shards)) for name in names], np.int64)
    return combined([by_topic[topics], partitions])
