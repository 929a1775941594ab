"""Compares the live state with the state rebuilt from the events, by a hash for each topic (`replay compare`).

A log has events, and the state that was committed with them. If the two differ, one of them is wrong: a topic changed
without an event, an event was written without its change, or a byte on the disk flipped.

Method. The live side is fixed first, then topics are rebuilt from events up to the same offsets, however busy the
service is. Topics that differ are then reported one by one, with both sides and the first event after which they differ
(`first_difference`). Brokers and settings are compared too, under the empty shard key. The rebuild of a data
directory begins at its newest snapshot, if any, and so checks only later events; `from_scratch` checks all.

A log in Kafka has no state. `--data DIR` is then the data folder of a gateway or worker, live or a copy: a log for each
partition, in `partition-00000` and so on. A worker has only the partitions that it owned; others are not compared.

A side has parts: the fields of a topic, its partitions, brokers. If the live side still has a part as it was before an
event, it missed that event.

Non-goal: points in time in the past, because the live side has only the current state.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from controller.machine.apply import apply_cluster, apply_topic
from controller.machine.state import Cluster, Topic
from controller.store.store import TopicStore
from controller.store.stored_topics import TOPIC, decode_topic, each_stored, encode_topic, stored_values
from events.catalog import Recorded
from events.codec import decode_event
from events.logs.log import read_one, shard_offsets
from events.names import CLUSTER_SHARD, BrokerId, ShardKey
from projections.replay.log.kafka_scan import KafkaRef, Stored, scan
from projections.replay.log.log_ref import Ends, LogRef, Ref, as_of, offsets_row
from projections.replay.log.secondary import FrozenLog, frozen_log
from projections.replay.outcome import Options, Outcome, ReplayError
from projections.replay.rebuild.rebuild import HASHES, beginning, begun_at, folded, hash_rows, state_hash
from projections.replay.runner import Runner
from projections.replay.shards import AT_FIRST, STORED, Beginning, cluster_events, fold_shards, rows_of, stored_rows
from projections.text.names import topic_id_text
from projections.text.wording import event_text, many

NOTHING = "nothing"
UNEXPLAINED = "no event in the log leads to the live state"
SEARCHED_MAX = 500
"""The first missed event is searched for at most so many topics."""
HASH_SHOWN = 16
SIDES_SHOWN = 12  # fields of one difference
Side = Topic | Cluster | None
Found = tuple[int | None, str]
"""The first event that the live side does not reflect: its offset, and its text. The offset is None if no event leads
to the live state."""
Difference = dict[str, Any]
"""A row for a topic whose sides differ; the shard "" has brokers and settings."""
Key = tuple[int, str]
"""A log partition and a shard key."""


def check_compare(ref: Ref, options: Options) -> None:
    """Check, before Spark starts, that both sides are named. Raises ReplayError."""
    if isinstance(ref, KafkaRef) and options.data is None:
        raise ReplayError(
            "the events topic holds no state to compare with: name --data DIR, the data folder of a gateway or worker"
        )
    if isinstance(ref, LogRef) and options.data is not None:
        raise ReplayError("--data is for a log in Kafka: a data directory has its own live state")


def run_compare(runner: Runner, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay compare`: compare both sides of every topic; `found` is true if a topic differs.

    For a log in Kafka, `options.data` names the live side, the folder of a gateway or worker. Raises ReplayError.
    """
    if isinstance(ref, LogRef):
        with frozen_log(ref.path) as log:
            end: Ends = {ref.partition: log.next_offset}
            begin = beginning(ref, end, options)
            return begun_at(_with_logs(runner, ref, {ref.partition: log}, end, begin, options), begin, end)
    data = Path(options.data or "")
    with ExitStack() as opened:
        logs = _logs_in(data, ref, opened)
        ref, ends = _reaching(ref, {partition: log.next_offset for partition, log in logs.items()}, data)
        return _with_logs(runner, ref, logs, ends, AT_FIRST, options)


def _with_logs(
    runner: Runner, ref: Ref, logs: Mapping[int, FrozenLog], ends: Ends, begin: Beginning, options: Options
) -> Outcome:
    """Compare with the state in `logs`, by log partition. Raises ReplayError."""
    live = {
        (partition, shard): state_hash(_whole(values))
        for partition, log in logs.items()
        for shard, values in each_stored(log.scan(TOPIC))
    }
    rows = fold_shards(runner, ref, ends, hash_rows, HASHES, begin=begin)
    rebuilt = {(partition, shard): one for partition, shard, one in rows_of(rows)}
    keys = sorted(key for key in live.keys() | rebuilt.keys() if live.get(key) != rebuilt.get(key))
    events = _events_of(runner, ref, logs, ends, keys[:SEARCHED_MAX])
    differences = []
    for key in keys:
        found, sides = (
            _searched(events[key], stored_values(logs[key[0]], ShardKey(key[1]))) if key in events else _LATER
        )
        differences.append({**_row(key, found, sides), "rebuilt_hash": rebuilt.get(key), "live_hash": live.get(key)})
    clusters = cluster_events(ref, ends)
    for partition, log in logs.items():
        steps = list(_steps(apply_cluster, Cluster(), clusters[partition]))
        sides = steps[-1][1] if steps else Cluster(), TopicStore(log).durable_cluster
        if sides[0] != sides[1]:
            differences.append(_row((partition, CLUSTER_SHARD), first_difference(steps, *sides), sides))
    differences.sort(key=itemgetter("log_partition", "shard"))
    compared = {partition: ends[partition] for partition in logs}
    lines = list(_lines(differences, len(live), compared, options.limit))
    return Outcome(differences, bool(differences), lines, {**offsets_row(compared), "topics": len(live)})


_LATER: tuple[Found, tuple[Side, Side]] = (None, f"not searched: more than {SEARCHED_MAX} topics differ"), (None, None)


def _whole(values: Sequence[bytes]) -> bytes:
    if len(values) == 1:
        return values[0]
    try:
        return encode_topic(decode_topic(values))
    except msgspec.DecodeError:
        return b"".join(values)


def _events_of(
    runner: Runner, ref: Ref, logs: Mapping[int, FrozenLog], ends: Ends, keys: Sequence[Key]
) -> dict[Key, list[Stored]]:
    """The events of some shards. The index of a data directory names them; a log in Kafka is read once more."""
    events: dict[Key, list[Stored]] = {key: [] for key in keys}
    if isinstance(ref, LogRef):
        for (partition, shard), some in events.items():
            log = logs[partition]
            some.extend((offset, read_one(log, offset)) for offset in shard_offsets(log, ShardKey(shard), 0))
    elif keys:
        rows = fold_shards(runner, ref, ends, stored_rows, STORED, only=frozenset(shard for _, shard in keys))
        for partition, shard, offset, value in rows_of(rows):
            if (partition, shard) in events:
                events[partition, shard].append((offset, value))
    return events


def _searched(events: Sequence[Stored], stored: Sequence[bytes]) -> tuple[Found, tuple[Side, Side]]:
    """The first missed event of a topic, and the topic rebuilt and live. Raises CannotApply."""
    rebuilt = folded(events)
    try:
        live = decode_topic(stored) if stored else None
    except msgspec.DecodeError as error:
        return (None, f"the live side cannot be read: {error}"), (rebuilt, None)
    return first_difference(topic_steps(events), rebuilt, live), (rebuilt, live)


def _logs_in(data: Path, ref: KafkaRef, opened: ExitStack) -> dict[int, FrozenLog]:
    """The logs in a folder, by log partition. Raises LogError and ReplayError."""
    logs = {}
    for one in ref.partitions:
        folder = data / f"partition-{one.partition:05}"
        if folder.is_dir():
            logs[one.partition] = opened.enter_context(frozen_log(folder))
    if not logs:
        raise ReplayError(
            f"{data} holds no partition of {ref.text}: name the folder that `topicwright gateway --data`, or "
            "`topicwright worker --data`, was given"
        )
    return logs


def _reaching(ref: KafkaRef, reached: Ends, data: Path) -> tuple[KafkaRef, Ends]:
    """The events topic, scanned again if its scan lacks the events up to `reached`, and the end of each partition."""

    def missing(ref: KafkaRef) -> list[int]:
        return [one.partition for one in ref.partitions if one.end < reached.get(one.partition, 0)]

    if missing(ref):
        ref = scan(ref.topic)
        for partition in missing(ref):
            raise ReplayError(
                f"{data} has {reached[partition]} events of partition {partition}, which {ref.text} does not have: "
                "it is the folder of another topic, or the topic has lost events"
            )
    return ref, {one.partition: reached.get(one.partition, 0) for one in ref.partitions}


_S = TypeVar("_S")


def _steps(apply: Callable[[_S, Recorded], _S], side: _S, events: Iterable[Stored]) -> Iterator[tuple[Recorded, _S]]:
    for offset, value in events:
        record = decode_event(offset, value)
        side = apply(side, record)
        yield record, side


def topic_steps(events: Iterable[Stored]) -> Iterator[tuple[Recorded, Topic | None]]:
    """Each event of a shard, with the topic after it. Raises CannotApply."""
    return _steps(apply_topic, None, events)


def first_difference(steps: Iterable[tuple[Recorded, Side]], rebuilt: Side, live: Side) -> Found:
    """The first event that the live side (None: no topic) does not reflect, from each event with the side after it;
    `rebuilt` is the last of these. Only the parts that are shown are followed. Raises CannotApply."""
    wanted = {name: _part(live, name) for name in islice(_differing(rebuilt, live), SIDES_SHOWN)}
    before, skipped = dict[str, Any](), dict[str, Recorded]()
    """By part that the live side has as it was earlier: the event that changed it."""
    for record, side in steps:
        now = {name: _part(side, name) for name in wanted}
        for name, part in wanted.items():
            if now[name] == part:
                skipped.pop(name, None)
            elif before.get(name, NOTHING) == part:
                skipped[name] = record
        before = now
    first = min(skipped.values(), key=attrgetter("offset"), default=None)
    return (None, UNEXPLAINED) if first is None else (first.offset, event_text(first.event))


def _row(key: Key, found: Found, sides: tuple[Side, Side]) -> Difference:
    """The row of a topic; `sides` are the rebuilt and the live one, each None without a topic."""
    rebuilt, live = sides
    names = list(_differing(rebuilt, live))
    known = next((side.name for side in sides if isinstance(side, Topic)), f"under the key {key[1]}")
    return {
        "log_partition": key[0],
        "shard": key[1],
        "topic": "brokers and settings" if key[1] == CLUSTER_SHARD else known,
        "rebuilt_hash": None,
        "live_hash": None,
        "differs": [{"what": name, "rebuilt": _shown(rebuilt, name), "live": _shown(live, name)} for name in names],
        "offset": found[0],
        "event": found[1],
    }


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


def _differing(rebuilt: Side, live: Side) -> Iterator[str]:
    """The names of the parts that differ."""
    names = dict.fromkeys(name for side in (rebuilt, live) for name in _names(side))
    return (name for name in names if _part(rebuilt, name) != _part(live, name))


def _names(side: Side) -> Iterator[str]:
    """The names of the parts of a side, without those that are derived from others."""
    if side is None:
        return
    yield from (name for name in side.__struct_fields__ if name not in _NOT_SHOWN)
    if isinstance(side, Topic):
        yield from (f"partition {number}" for number in range(len(side.partitions)))
    else:
        yield from ("settings", *(f"broker {number}" for number in sorted(side.brokers)))


def _part(side: Side, name: str) -> Any:
    """A part of a side; NOTHING if it has none of this name."""
    if side is None:
        return NOTHING
    kind, _, number = name.partition(" ")
    if isinstance(side, Cluster) and kind == "broker":
        return side.brokers.get(BrokerId(int(number)), NOTHING)
    if isinstance(side, Topic) and kind == "partition":
        return side.partitions[int(number)] if int(number) < len(side.partitions) else NOTHING
    return dict(side.settings_pairs) if isinstance(side, Cluster) and name == "settings" else getattr(side, name)


_NOT_SHOWN = frozenset(
    ("partitions", "brokers", "settings", "settings_pairs", "live", "usable", "usable_racks", "last_broker_epoch")
)
_SECRETS = frozenset(("scram", "login_secret", "resource_configs"))


def _shown(side: Side, name: str) -> Any:
    return "a secret" if name in _SECRETS else _plain(_part(side, name))


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
