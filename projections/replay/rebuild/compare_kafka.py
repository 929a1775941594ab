"""Comparing what an events topic comes to with what a gateway, or a worker, makes of it.

`--data DIR` names the data folder of a gateway or worker, live or a copy: a log for each partition, in
`partition-00000` and so on, of which each topic is compared by the hash of its whole state, and brokers and settings
too. A worker has the partitions that it owned; what is not there is not compared.

`--http HOST:PORT` names a gateway. It shows less of a topic than its state has (not who still waits, nor which brokers
have applied a creation), so that is left out on both sides. Each of its answers says as of which event it is: a topic
that seems to differ is fetched again, and held against its events up to just that one, so it may change meanwhile.

Method. The live side is looked at first, then the topic is folded to an end that is not before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from controller.machine.state import Topic
from events.catalog import Partition
from events.codec import decode_event
from events.logs.events_topic import partition_of
from events.logs.log import LogError
from events.names import ShardKey, TopicId, shard_key
from projections.replay.errors import ReplayError
from projections.replay.log.log_ref import Ends, KafkaRef, scanned
from projections.replay.log.secondary import Look
from projections.replay.outcome import Options, Outcome
from projections.replay.rebuild.differences import (
    Difference,
    cluster_difference,
    difference,
    different,
    live_hashes,
    outcome,
)
from projections.replay.rebuild.explaining import Excerpt
from projections.replay.rebuild.folded_topics import state_hash
from projections.replay.rebuild.gateway_topics import GatewayTopics, Shown
from projections.replay.rebuild.parting import History, Parting, parting
from projections.replay.rebuild.rebuild import rebuilt_topics
from projections.replay.spark.folding import cluster_events
from projections.replay.spark.source import events_frame
from projections.store.store import TopicStore
from projections.store.stored_topics import encode_topic, stored_values
from projections.text.names import topic_id_bytes

PARTED_MAX = 500
"""Of so many topics that differ it is found out where they part."""
ROUNDS = 3
"""How often a gateway is asked for a topic that seems to differ."""
_NOT_LOOKED_INTO = Parting(None, f"not looked into: more than {PARTED_MAX} topics differ")
_Key = tuple[int, str]


def compare_kafka(session: SparkSession, ref: KafkaRef, options: Options) -> Outcome:
    """Compare the topics of an events topic with the live side in `options.more`. Raises ReplayError."""
    data, http = options.more.get("data"), options.more.get("http")
    if data is not None:
        return _with_folder(session, ref, Path(data), options)
    with GatewayTopics(str(http)) as gateway:
        return _with_gateway(session, ref, gateway, options)


# --- with a folder


def _with_folder(session: SparkSession, ref: KafkaRef, data: Path, options: Options) -> Outcome:
    with ExitStack() as opened:
        looks = _looks(ref, data, opened)
        ref, ends = _reaching(ref, {partition: log.next_offset for partition, log in looks.items()}, data)
        live = {key: each for partition, log in looks.items() for key, each in live_hashes(log, partition).items()}
        rebuilt = rebuilt_topics(session, ref, ends).where(f"log_partition in ({', '.join(map(str, looks))})")
        rows = [row.asDict() for row in different(session, rebuilt, live).orderBy("log_partition", "shard").collect()]
        histories = _histories(session, ref, [(row["log_partition"], row["shard"]) for row in rows[:PARTED_MAX]], ends)
        differences = [_differing(histories, looks, row) for row in rows]
        for partition, stored in cluster_events(ref, ends).items():
            if partition in looks:
                records = (decode_event(offset, value) for offset, value in stored)
                differences += cluster_difference(records, TopicStore(looks[partition]).durable_cluster, partition)
    return outcome(differences, len(live), {partition: ends[partition] for partition in looks}, options)


def _looks(ref: KafkaRef, data: Path, opened: ExitStack) -> dict[int, Look]:
    """The logs that are in a folder. Raises ReplayError."""
    looks = {}
    for one in ref.scan.partitions:
        folder = data / f"partition-{one.partition:05}"
        if folder.is_dir():
            try:
                looks[one.partition] = Look(folder)
            except LogError as error:
                raise ReplayError(str(error)) from error
            opened.callback(looks[one.partition].close)
    if not looks:
        raise ReplayError(
            f"{data} holds no partition of {ref.text}: name the folder that `topicwright gateway --data`, or "
            "`topicwright worker --data`, was given"
        )
    return looks


def _reaching(ref: KafkaRef, reached: Ends, data: Path) -> tuple[KafkaRef, Ends]:
    """The topic as of when it had these events, looked at again where it had not yet, and where to stop."""
    if _ends_before(ref, reached):
        ref = scanned(ref.topic)
        missing = _ends_before(ref, reached)
        if missing:
            raise ReplayError(
                f"{data} has {reached[missing[0]]} events of partition {missing[0]}, which {ref.text} does not have: "
                "it is the folder of another topic, or the topic has lost events"
            )
    return ref, {one.partition: reached.get(one.partition, 0) for one in ref.scan.partitions}


def _ends_before(ref: KafkaRef, reached: Ends) -> list[int]:
    return [one.partition for one in ref.scan.partitions if one.end < reached.get(one.partition, 0)]


def _differing(histories: Mapping[_Key, History], looks: Mapping[int, Look], row: Mapping[str, Any]) -> Difference:
    partition, shard = row["log_partition"], row["shard"]
    history = histories.get((partition, shard))
    if history is None:
        return Difference(shard, None, None, row["state_hash"], row["live_hash"], _NOT_LOOKED_INTO, partition)
    return difference(history, stored_values(looks[partition], shard), row)


def _histories(
    session: SparkSession, ref: KafkaRef, keys: Sequence[_Key], ends: Ends, kind: type[History] = History
) -> dict[_Key, History]:
    """The events of some shards, by log partition and shard key."""
    if not keys:
        return {}
    logs = {partition: Excerpt(end) for partition, end in ends.items()}
    columns = ("log_partition", "offset", "shard", "request_id", "value")
    frame = events_frame(session, ref, columns=columns, end=ends, shards=sorted({shard for _, shard in keys}))
    for row in sorted(frame.collect(), key=lambda row: (row.log_partition, row.offset)):
        logs[row.log_partition].add(row.offset, row.shard, row.request_id, bytes(row.value))
    return {(partition, shard): kind(logs[partition], shard) for partition, shard in keys}


# --- with a gateway


def _with_gateway(session: SparkSession, ref: KafkaRef, gateway: GatewayTopics, options: Options) -> Outcome:
    live: dict[str, Shown] = {shard_key(one.topic.name): one for one in gateway.all()}
    ref = scanned(ref.topic)
    ends = {one.partition: one.end for one in ref.scan.partitions}
    rebuilt = {row.shard: _topic_of(row) for row in rebuilt_topics(session, ref, ends).collect()}
    shards = [shard for shard in sorted({*live, *rebuilt}) if _sides_differ(rebuilt.get(shard), live.get(shard))]
    differences: list[Difference] = []
    for _ in range(ROUNDS):
        if not shards:
            break
        answers = {shard: gateway.one(_name(shard, rebuilt, live)) for shard in shards[:PARTED_MAX]}
        ref = scanned(ref.topic)
        differences = list(_settled(session, ref, shards, answers))
        shards = [one.shard for one in differences]
    return outcome(differences, len(live), ends, options)


def _name(shard: str, rebuilt: Mapping[str, Topic], live: Mapping[str, Shown]) -> str:
    return live[shard].topic.name if shard in live else rebuilt[shard].name


def _settled(
    session: SparkSession, ref: KafkaRef, shards: Sequence[str], answers: Mapping[str, Shown | None]
) -> Iterator[Difference]:
    """What of these still differs from the events up to the one as of which the gateway has answered."""
    count = len(ref.scan.partitions)
    places = {shard: partition_of(ShardKey(shard), count) for shard in shards}
    ends = {one.partition: one.end for one in ref.scan.partitions}
    histories = _histories(session, ref, [(places[shard], shard) for shard in answers], ends, _ShownHistory)
    for shard in shards:
        partition = places[shard]
        history = histories.get((partition, shard))
        if history is None:
            yield Difference(shard, None, None, None, None, _NOT_LOOKED_INTO, partition)
            continue
        shown = answers[shard]
        if shown is not None:
            history.offsets = [offset for offset in history.offsets if offset <= shown.as_of]
        rebuilt = history.after(len(history.offsets))
        live = None if shown is None else shown.topic
        if _sides_differ(rebuilt, shown):
            yield Difference(shard, rebuilt, live, _hash(rebuilt), _hash(live), parting(history, live), partition)


class _ShownHistory(History):
    """A history of what a gateway shows."""

    def after(self, count: int) -> Topic | None:
        return _plain(super().after(count))


def _sides_differ(rebuilt: Topic | None, shown: Shown | None) -> bool:
    return rebuilt != (None if shown is None else shown.topic)


def _hash(topic: Topic | None) -> str | None:
    return None if topic is None else state_hash(encode_topic(topic))


def _plain(topic: Topic | None) -> Topic | None:
    """A topic as a gateway shows it."""
    if topic is None:
        return None
    configs = tuple(sorted(topic.configs))
    return msgspec.structs.replace(topic, configs=configs, propagated=(), pending_create=None)


def _topic_of(row: Any) -> Topic:
    """A topic of the rebuilt ones, as a gateway shows it."""
    partitions = tuple(
        Partition(tuple(one.replicas), tuple(one.isr), one.leader, one.leader_epoch, one.partition_epoch)
        for one in row.partitions
    )
    return Topic(
        row.topic,
        TopicId(topic_id_bytes(row.topic_id)),
        partitions,
        tuple(sorted(row.configs.items())),
        row.created_at_ms,
        row.created_offset,
        row.ready_at_ms,
    )
