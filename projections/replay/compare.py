"""Comparing what the events come to with what the live projection has, topic by topic, by the hash of their state.

A log holds both: events, and the state that was committed with them. If they ever disagree, one of the two is wrong:
a topic changed without an event, an event came without its change, or a byte on the disk turned.

Method. One look at the folder fixes both sides at the same offset, however busy the service is. Spark rebuilds every
topic from the events alone; the live side is hashed as it is stored. Topics that differ are then told one by one, with
both sides and the first event after which they part (see `parting`). Brokers and settings are compared too, under the
empty shard key.

What it does not do: look at moments of the past. The live side is as it is now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from controller.machine.apply import apply_cluster, concerns_topic
from controller.machine.state import Cluster, Topic
from events.catalog import Partition
from events.codec import decode_event
from events.names import CLUSTER_SHARD
from projections.names import topic_id_text
from projections.replay.errors import ReplayError
from projections.replay.log_ref import LogRef, looked_at
from projections.replay.outcome import Options, Outcome
from projections.replay.parting import UNEXPLAINED, History, Parting, parting
from projections.replay.rebuild import rebuilt_topics, state_hash
from projections.replay.secondary import Look
from projections.store import TOPIC, TopicStore
from projections.wording import in_words, many

HASH_SHOWN = 16
SIDES_SHOWN = 12
_LIVE = pa.schema([("shard", pa.string()), ("live_hash", pa.string())])
_decode_topic = msgspec.msgpack.Decoder(Topic).decode
Side = Topic | Cluster | None


class Difference(msgspec.Struct, frozen=True):
    """What is not the same on both sides; None stands for no topic, shard "" for brokers and settings."""

    shard: str
    rebuilt: Side
    live: Side
    rebuilt_hash: str | None
    live_hash: str | None
    parting: Parting


def run_compare(session: SparkSession, ref: LogRef, options: Options) -> Outcome:
    """The sub-command: both sides of every topic; differences are found. Raises ReplayError."""
    if options.at is not None:
        raise ReplayError("compare goes without --at: the live projection is as it is now")
    with looked_at(ref) as log:
        end, live = log.next_offset, live_hashes(log)
        rows = different(session, rebuilt_topics(session, ref, end), live).collect()
        told = [_difference(log, row["shard"], row["state_hash"], row["live_hash"]) for row in rows]
        told += _cluster_difference(log)
    told.sort(key=lambda one: one.shard)
    lines = _lines(told, len(live), end, options.limit)
    return Outcome([_as_row(one) for one in told], bool(told), list(lines))


def live_hashes(log: Look) -> dict[str, str]:
    """The hash of every topic's state as it is stored, by shard key."""
    return {key[len(TOPIC) :].decode(): state_hash(value) for key, value in log.scan(TOPIC)}


def different(session: SparkSession, rebuilt: DataFrame, live: dict[str, str]) -> DataFrame:
    """The shards whose hash is not the same on both sides: shard, state_hash, live_hash; null is no topic."""
    stored = pa.Table.from_pydict({"shard": list(live), "live_hash": list(live.values())}, schema=_LIVE)
    both = rebuilt.select("shard", "state_hash").join(session.createDataFrame(stored), "shard", "full_outer")
    return both.where("not (state_hash <=> live_hash)")


def _difference(log: Look, shard: str, rebuilt_hash: str | None, live_hash: str | None) -> Difference:
    history, stored = History(log, shard), log.get(TOPIC + shard.encode())
    try:
        live = None if stored is None else _decode_topic(stored)
    except msgspec.DecodeError as error:
        unreadable = Parting(None, f"the live side cannot be read: {error}")
        return Difference(shard, history.after(len(history.offsets)), None, rebuilt_hash, live_hash, unreadable)
    rebuilt = history.after(len(history.offsets))
    return Difference(shard, rebuilt, live, rebuilt_hash, live_hash, parting(history, live))


def _cluster_difference(log: Look) -> list[Difference]:
    """Brokers and settings, if they are not the same on both sides."""
    live, rebuilt = TopicStore(log).durable_cluster, Cluster()
    seen, unseen = live == rebuilt, Parting(None, UNEXPLAINED)
    for record in (decode_event(offset, log.read_one(offset)) for offset in log.shard_offsets(CLUSTER_SHARD)):
        if concerns_topic(record.event):
            continue  # an ask for a topic without a name
        rebuilt = apply_cluster(rebuilt, record)
        if rebuilt == live:
            seen = True
        elif seen:
            seen, unseen = False, Parting(record.offset, in_words(record.event))
    return [] if rebuilt == live else [Difference(CLUSTER_SHARD, rebuilt, live, None, None, unseen)]


# --- telling


def _lines(told: Sequence[Difference], topics: int, end: int, limit: int) -> Iterator[str]:
    if not told:
        yield f"The live state of {many(topics, 'topic')} is what the events come to, as of offset {end - 1}."
        return
    yield f"{many(len(told), 'difference')} between the live state and the events, as of offset {end - 1}:"
    for one in told[:limit]:
        yield ""
        yield f"{_name(one)}: rebuilt {_shown(one.rebuilt_hash, one.rebuilt)}, live {_shown(one.live_hash, one.live)}"
        for what, rebuilt, live in list(_sides(one))[:SIDES_SHOWN]:
            yield f"  {what}: rebuilt {rebuilt}, live {live}"
        if one.parting.offset is None:
            yield f"  {one.parting.event}"
        else:
            yield f"  they part at offset {one.parting.offset}: {one.parting.event}"
    if len(told) > limit:
        yield f"… and {len(told) - limit} more: --json shows all"


def _name(one: Difference) -> str:
    if one.shard == CLUSTER_SHARD:
        return "brokers and settings"
    known = next((side for side in (one.rebuilt, one.live) if isinstance(side, Topic)), None)
    return f"topic {known.name}" if known is not None else f"topic under the key {one.shard}"


def _shown(full_hash: str | None, side: Side) -> str:
    if full_hash is not None:
        return full_hash[:HASH_SHOWN]
    return "no topic" if side is None else "differs"


def _sides(one: Difference) -> Iterator[tuple[str, object, object]]:
    """What is not the same: its name, and how it is on each side."""
    rebuilt, live = _parts(one.rebuilt), _parts(one.live)
    for name in dict.fromkeys((*rebuilt, *live)):
        mine, theirs = rebuilt.get(name, "nothing"), live.get(name, "nothing")
        if mine != theirs:
            yield name, mine, theirs


def _parts(side: Side) -> dict[str, Any]:
    """A side in parts that can be told one by one."""
    match side:
        case None:
            return {}
        case Cluster():
            brokers = {f"broker {number}": _fields(broker) for number, broker in sorted(side.brokers.items())}
            return {"settings": dict(side.settings_pairs), "release": side.release, **brokers}
        case Topic():
            parts = _fields(side)
            partitions = parts.pop("partitions")
            return parts | {f"partition {number}": _fields(one) for number, one in enumerate(partitions)}


def _fields(one: Any) -> dict[str, Any]:
    return {name: _plain(getattr(one, name)) for name in one.__struct_fields__}


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return topic_id_text(value)
        case tuple() if value and isinstance(value[0], Partition):
            return value
        case msgspec.Struct():
            return _fields(value)
        case tuple():
            return [_plain(each) for each in value]
        case _:
            return value


def _as_row(one: Difference) -> dict[str, Any]:
    return {
        "shard": one.shard,
        "topic": _name(one).removeprefix("topic "),
        "rebuilt_hash": one.rebuilt_hash,
        "live_hash": one.live_hash,
        "differs": [{"what": what, "rebuilt": mine, "live": theirs} for what, mine, theirs in _sides(one)],
        "offset": one.parting.offset,
        "event": one.parting.event,
    }
