"""Differences between the live and the rebuilt state, for `replay compare`: as values, as lines for people, as rows.

`first_difference` finds the first event that the live side does not reflect. A side has parts: the fields of a topic,
its partitions, brokers. If the live side still has a part as it was before an event, it missed that event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from controller.machine.apply import apply_cluster, apply_topic
from controller.machine.state import Cluster, Topic
from controller.store.stored_topics import TOPIC, decode_topic, each_stored, encode_topic
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
    """The events of one shard, and the topic after each of them."""

    def __init__(self, log: EventLog, shard: str) -> None:
        self._log = log
        self.offsets = list(shard_offsets(log, ShardKey(shard), 0))

    def steps(self) -> Iterator[tuple[Recorded, Topic | None]]:
        """Each event in order, with the topic after it. Raises CannotApply."""
        topic: Topic | None = None
        for offset in self.offsets:
            record = decode_event(offset, read_one(self._log, offset))
            topic = apply_topic(topic, record)
            yield record, topic

    def topic(self) -> Topic | None:
        """The topic after all events. Raises CannotApply."""
        newest: Topic | None = None
        for _, topic in self.steps():
            newest = topic
        return newest


Side = Topic | Cluster | None


def first_difference(steps: Iterable[tuple[Recorded, Side]], live: Side) -> FirstDifference:
    """The first event that the live side (None: no topic) does not reflect, from each event with the rebuilt side after
    it. Raises CannotApply."""
    wanted, before = {"all": live, **_parts(live)}, dict[str, Any]()
    missed = dict[str, Recorded]()
    """By part that the live side has as it was earlier: the event that changed it."""
    for record, side in steps:
        now = {"all": side, **_parts(side)}
        for name in now.keys() | before.keys() | wanted.keys():
            if now.get(name) == wanted.get(name):
                missed.pop(name, None)
            elif before.get(name) == wanted.get(name):
                missed[name] = record
        before = now
    first = min(missed.values(), key=attrgetter("offset"), default=None)
    return (
        FirstDifference(None, UNEXPLAINED) if first is None else FirstDifference(first.offset, event_text(first.event))
    )


HASH_SHOWN = 16
SIDES_SHOWN = 12  # fields of one difference

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
    names = [name for name in {**rebuilt, **live} if rebuilt.get(name) != live.get(name)]
    known = next((side.name for side in sides if isinstance(side, Topic)), f"under the key {shard}")
    return {
        "log_partition": log_partition,
        "shard": shard,
        "topic": "brokers and settings" if shard == CLUSTER_SHARD else known,
        "rebuilt_hash": hashes[0],
        "live_hash": hashes[1],
        "differs": [{"what": name, "rebuilt": _shown(rebuilt, name), "live": _shown(live, name)} for name in names],
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
    return difference_of(log_partition, shard, first_difference(history.steps(), live), (rebuilt, live), hashes)


def cluster_difference(records: Iterable[Recorded], live: Cluster, log_partition: int) -> list[Difference]:
    """The difference of brokers and settings, if there is one."""
    steps, rebuilt = list[tuple[Recorded, Side]](), Cluster()
    for record in records:
        rebuilt = apply_cluster(rebuilt, record)
        steps.append((record, rebuilt))
    if rebuilt == live:
        return []
    return [difference_of(log_partition, CLUSTER_SHARD, first_difference(steps, live), (rebuilt, live))]


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
    """A side by the names of its parts, without those that are derived from others."""
    if side is None:
        return {}
    parts = {name: getattr(side, name) for name in side.__struct_fields__ if name not in _NOT_SHOWN}
    if isinstance(side, Cluster):
        brokers = {f"broker {number}": one for number, one in sorted(side.brokers.items())}
        return {"settings": dict(side.settings_pairs), **parts, **brokers}
    return parts | {f"partition {number}": one for number, one in enumerate(side.partitions)}


_NOT_SHOWN = frozenset(
    ("partitions", "brokers", "settings", "settings_pairs", "live", "usable", "usable_racks", "last_broker_epoch")
)
_SECRETS = frozenset(("scram", "login_secret", "resource_configs"))


def _shown(parts: Mapping[str, Any], name: str) -> Any:
    return "nothing" if name not in parts else "a secret" if name in _SECRETS else _plain(parts[name])


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return topic_id_text(value)
        case msgspec.Struct():
            return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        case tuple():
            return [_plain(each) for each in value]
        case Mapping():
            return {str(key): _plain(each) for key, each in value.items()}
        case str() | int() | float() | None:
            return value
        case _:
            return str(value)


def excerpts(runner: Runner, ref: Ref, ends: Ends, shards: Collection[str]) -> Mapping[int, EventLog]:
    """The events of some shards before `ends`, by log partition. Raises ReplayError."""
    found = {partition: Excerpt(end) for partition, end in ends.items()}
    if shards:
        rows = fold_shards(runner, ref, ends, stored_rows, STORED, only=frozenset(shards))
        for log_partition, shard, offset, value in rows_of(rows):
            found[log_partition].add(offset, shard, None, value)
    return found
