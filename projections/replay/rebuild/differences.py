"""Differences between the live and the rebuilt state, for `replay compare`: as values, as lines for people, as rows.

`first_difference` finds the first event that the live side of a topic does not reflect: the first after which the
rebuilt topic is ahead of the live one. Until a topic is deleted, each of its parts only advances: every change of a
partition raises its epoch, partitions are only added, brokers only confirm the creation, a waiting request is answered
once, and configs are counted by their changes. So the live side missed an event if a part of the rebuilt topic is ahead
of the live part, or is at the same epoch or count with other content.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from controller.machine.apply import apply_cluster, apply_topic
from controller.machine.state import Cluster, Topic
from controller.store.stored_topics import TOPIC, decode_topic, each_stored, encode_topic
from events import catalog
from events.catalog import Recorded
from events.codec import decode_event
from events.logs.log import EventLog, read_one, shard_offsets
from events.names import CLUSTER_SHARD, ShardKey
from projections.replay.log.log_ref import Ends, Ref, as_of, offsets_row
from projections.replay.log.secondary import FrozenLog
from projections.replay.outcome import Options, Outcome
from projections.replay.rebuild.explaining import Excerpt
from projections.replay.rebuild.rebuild import state_hash
from projections.replay.runner import Runner
from projections.replay.shards import STORED, fold_shards, rows_of, stored_rows
from projections.text.names import topic_id_text
from projections.text.wording import event_text, many

UNEXPLAINED = "no event in the log leads to the live state"


class FirstDifference(msgspec.Struct, frozen=True):
    """The first event that the live side does not reflect: its offset and its text.

    `offset` is None if no event leads to the live state.
    """

    offset: int | None
    event: str


SEARCHED_MAX = 500
"""For a log in Kafka, `first_difference` runs for at most so many topics."""
NOT_SEARCHED = FirstDifference(None, f"not searched: more than {SEARCHED_MAX} topics differ")


class History:
    """The events of one shard before `end`, and the topic after each of them; `view` is applied to each topic."""

    def __init__(
        self,
        log: EventLog,
        shard: str,
        end: int | None = None,
        view: Callable[[Topic | None], Topic | None] = lambda topic: topic,
    ) -> None:
        self._log = log
        self._view = view
        self.offsets = list(shard_offsets(log, ShardKey(shard), 0, end))

    def steps(self) -> Iterator[tuple[Recorded, Topic | None]]:
        """Each event in order, with the topic after it. Raises CannotApply."""
        topic: Topic | None = None
        for offset in self.offsets:
            record = decode_event(offset, read_one(self._log, offset))
            topic = apply_topic(topic, record)
            yield record, self._view(topic)

    def topic(self) -> Topic | None:
        """The topic after all events. Raises CannotApply."""
        newest: Topic | None = None
        for _, topic in self.steps():
            newest = topic
        return newest


def first_difference(history: History, live: Topic | None) -> FirstDifference:
    """The first event after which the rebuilt topic is ahead of the live one (None: no topic). Raises CannotApply."""
    first = _newest_creation(history) if live is None else _first_past(history, live)
    return (
        FirstDifference(None, UNEXPLAINED) if first is None else FirstDifference(first.offset, event_text(first.event))
    )


def _newest_creation(history: History) -> Recorded | None:
    created, existed = None, False
    for record, topic in history.steps():
        if topic is not None and not existed:
            created = record
        existed = topic is not None
    return created


def _first_past(history: History, live: Topic) -> Recorded | None:
    """The first event after which the topic is ahead of `live`; None if there is none."""
    ahead: list[Recorded] = []
    unseen: list[Recorded] = []
    """The config changes, creation included, after the newest one that led to the configs of `live`."""
    for record, topic in history.steps():
        event = record.event
        if record.offset < live.created_offset:
            continue
        if topic is None or topic.created_offset != live.created_offset:
            ahead.append(record)
            break
        if isinstance(event, catalog.TopicCreated | catalog.TopicConfigsChanged | catalog.TopicDiscovered):
            unseen = [] if event.configs == live.configs else [*unseen, record]
        if not ahead and is_ahead(topic, live):
            ahead.append(record)
    return min((*ahead, *unseen), key=attrgetter("offset"), default=None)


def is_ahead(topic: Topic, live: Topic) -> bool:
    """True if a part of a topic, except its configs, is ahead of the part in `live`, or equally far with another
    content."""
    if (topic.name, topic.created_at_ms) != (live.name, live.created_at_ms):
        return True
    if topic.topic_id != live.topic_id and (topic.ready_at_ms is not None or topic.propagated):
        return True  # until then the target cluster may still assign another id
    if len(topic.partitions) > len(live.partitions):
        return True
    for mine, theirs in zip(topic.partitions, live.partitions, strict=False):
        if mine != theirs and mine.partition_epoch >= theirs.partition_epoch:
            return True
    if topic.ready_at_ms is not None:
        if topic.ready_at_ms != live.ready_at_ms:
            return True
    elif live.ready_at_ms is None and topic.propagated != live.propagated[: len(topic.propagated)]:
        return True
    return live.pending_create is not None and topic.pending_create != live.pending_create


HASH_SHOWN = 16
SIDES_SHOWN = 12  # fields of one difference

Side = Topic | Cluster | None
Difference = dict[str, Any]
"""A row for a topic whose sides differ; the shard "" has brokers and settings."""


def difference_of(
    log_partition: int,
    shard: str,
    first: FirstDifference,
    sides: tuple[Side, Side] = (None, None),
    hashes: tuple[str | None, str | None] = (None, None),
) -> Difference:
    """The row of a topic; `sides` are the rebuilt and the live one, each None without a topic."""
    rebuilt, live = map(_parts, sides)
    names = dict.fromkeys((*rebuilt, *live))
    parts = ((name, rebuilt.get(name, "nothing"), live.get(name, "nothing")) for name in names)
    known = next((side.name for side in sides if isinstance(side, Topic)), f"under the key {shard}")
    return {
        "log_partition": log_partition,
        "shard": shard,
        "topic": "brokers and settings" if shard == CLUSTER_SHARD else known,
        "rebuilt_hash": hashes[0],
        "live_hash": hashes[1],
        "differs": [{"what": what, "rebuilt": mine, "live": theirs} for what, mine, theirs in parts if mine != theirs],
        "offset": first.offset,
        "event": first.event,
    }


def outcome(differences: list[Difference], topics: int, ends: Ends, options: Options) -> Outcome:
    """The outcome of a comparison of `topics` topics, with these differences."""
    differences.sort(key=itemgetter("log_partition", "shard"))
    lines = _lines(differences, topics, ends, options.limit)
    about = {**offsets_row(ends), "topics": topics}
    return Outcome(differences, bool(differences), list(lines), about)


def live_hashes(log: FrozenLog, partition: int) -> dict[tuple[int, str], str]:
    """The hash of every topic's stored state, by log partition and shard key. The blocks of a large topic are joined
    first."""
    return {(partition, key): state_hash(_whole(values)) for key, values in each_stored(log.scan(TOPIC))}


def _whole(values: Sequence[bytes]) -> bytes:
    if len(values) == 1:
        return values[0]
    try:
        return encode_topic(decode_topic(values))
    except msgspec.DecodeError:
        return b"".join(values)


def difference(
    history: History, stored: Sequence[bytes], log_partition: int, shard: str, hashes: tuple[str | None, str | None]
) -> Difference:
    """The difference of a topic, from its events and its stored values; `hashes` are those of the rebuilt and of the
    live topic."""
    rebuilt = history.topic()
    try:
        live = decode_topic(stored) if stored else None
    except msgspec.DecodeError as error:
        unreadable = FirstDifference(None, f"the live side cannot be read: {error}")
        return difference_of(log_partition, shard, unreadable, (rebuilt, None), hashes)
    return difference_of(log_partition, shard, first_difference(history, live), (rebuilt, live), hashes)


def cluster_difference(records: Iterable[Recorded], live: Cluster, log_partition: int) -> list[Difference]:
    """The difference of brokers and settings, if there is one."""
    rebuilt = Cluster()
    seen, unseen = live == rebuilt, FirstDifference(None, UNEXPLAINED)
    for record in records:
        rebuilt = apply_cluster(rebuilt, record)
        if rebuilt == live:
            seen = True
        elif seen:
            seen, unseen = False, FirstDifference(record.offset, event_text(record.event))
    return [] if rebuilt == live else [difference_of(log_partition, CLUSTER_SHARD, unseen, (rebuilt, live))]


def _lines(differences: Sequence[Difference], topics: int, ends: Ends, limit: int) -> Iterator[str]:
    if not differences:
        yield f"The live state of {many(topics, 'topic')} matches the events, as of {as_of(ends)}."
        return
    yield f"{many(len(differences), 'difference')} between the live state and the events, as of {as_of(ends)}:"
    for one in differences[:limit]:
        of_topic = one["shard"] != CLUSTER_SHARD
        where = f", partition {one['log_partition']}" if list(ends) != [0] else ""
        rebuilt, live = (
            (one[side] or "no topic")[:HASH_SHOWN] if of_topic else "differs" for side in ("rebuilt_hash", "live_hash")
        )
        yield ""
        yield f"{'topic ' if of_topic else ''}{one['topic']}{where}: rebuilt {rebuilt}, live {live}"
        for part in one["differs"][:SIDES_SHOWN]:
            yield f"  {part['what']}: rebuilt {part['rebuilt']}, live {part['live']}"
        since = "" if one["offset"] is None else f"they differ from offset {one['offset']} on: "
        yield f"  {since}{one['event']}"
    if len(differences) > limit:
        yield f"… and {len(differences) - limit} more: --json shows all"


def _parts(side: Side) -> dict[str, Any]:
    """A side by the names of its parts."""
    match side:
        case None:
            return {}
        case Cluster():
            brokers = {f"broker {number}": _plain(broker) for number, broker in sorted(side.brokers.items())}
            return {"settings": dict(side.settings_pairs), "release": side.release, **brokers}
        case Topic():
            parts: dict[str, Any] = _plain(side)
            partitions = parts.pop("partitions")
            return parts | {f"partition {number}": one for number, one in enumerate(partitions)}


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return topic_id_text(value)
        case msgspec.Struct():
            return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        case tuple():
            return [_plain(each) for each in value]
        case _:
            return value


def excerpts(runner: Runner, ref: Ref, ends: Ends, shards: Collection[str]) -> Mapping[int, EventLog]:
    """The events of some shards before `ends`, by log partition. Raises ReplayError."""
    found = {partition: Excerpt(end) for partition, end in ends.items()}
    if shards:
        rows = fold_shards(runner, ref, ends, stored_rows, STORED, only=frozenset(shards))
        for log_partition, shard, offset, value in rows_of(rows):
            found[log_partition].add(offset, shard, None, value)
    return found
