"""Compares the live state with the state rebuilt from the events, by a hash for each topic (`replay compare`).

A log has events, and the state that was committed with them. If the two differ, one of them is wrong: a topic changed
without an event, an event was written without its change, or a byte on the disk flipped.

Method. The live side is fixed first, then topics are rebuilt from events up to the same offsets, however busy the
service is. Topics that differ are then reported one by one, with both sides and the first event after which they differ
(see `first_difference`). Brokers and settings are compared too, under the empty shard key. The rebuild of a data
directory begins at its newest snapshot, if any, and so checks only later events; `from_scratch` checks all.

A log in Kafka has no state. `--data DIR` is then the data folder of a gateway or worker, live or a copy: a log for each
partition, in `partition-00000` and so on. A worker has only the partitions that it owned; others are not compared.

Non-goal: points in time in the past, because the live side has only the current state.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from controller.store.store import TopicStore
from controller.store.stored_topics import stored_values
from events.codec import decode_event
from events.logs.log import EventLog
from events.names import ShardKey
from projections.replay.log.kafka_scan import KafkaRef, scan
from projections.replay.log.log_ref import Ends, LogRef, Ref
from projections.replay.log.secondary import FrozenLog, frozen_log
from projections.replay.outcome import Options, Outcome, ReplayError
from projections.replay.rebuild.differences import (
    NOT_SEARCHED,
    SEARCHED_MAX,
    History,
    cluster_difference,
    difference,
    difference_of,
    excerpts,
    live_hashes,
    outcome,
)
from projections.replay.rebuild.rebuild import HASHES, beginning, begun_at, hash_rows
from projections.replay.runner import Runner
from projections.replay.shards import AT_FIRST, Beginning, cluster_events, fold_shards, rows_of


def check_compare(ref: Ref, options: Options) -> None:
    """Check, before Spark starts, that both sides are named. Raises ReplayError."""
    if isinstance(ref, KafkaRef) and "data" not in options.more:
        raise ReplayError(
            "the events topic holds no state to compare with: name --data DIR, the data folder of a gateway or worker"
        )
    if isinstance(ref, LogRef) and "data" in options.more:
        raise ReplayError("--data is for a log in Kafka: a data directory has its own live state")


def run_compare(runner: Runner, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay compare`: compare both sides of every topic; `found` is true if a topic differs.

    For a log in Kafka, `options.more` names the live side: `data`, the folder of a gateway or worker. Raises
    ReplayError.
    """
    if isinstance(ref, LogRef):
        with frozen_log(ref.path) as log:
            end: Ends = {ref.partition: log.next_offset}
            begin = beginning(ref, end, options)
            return begun_at(_with_logs(runner, ref, {ref.partition: log}, end, begin, options), begin, end)
    data = Path(options.more["data"])
    with ExitStack() as opened:
        logs = _logs_in(data, ref, opened)
        ref, ends = _reaching(ref, {partition: log.next_offset for partition, log in logs.items()}, data)
        return _with_logs(runner, ref, logs, ends, AT_FIRST, options)


def _with_logs(
    runner: Runner, ref: Ref, logs: Mapping[int, FrozenLog], ends: Ends, begin: Beginning, options: Options
) -> Outcome:
    """Compare with the state in `logs`, by log partition. Raises ReplayError."""
    live = {key: one for partition, log in logs.items() for key, one in live_hashes(log, partition).items()}
    rows = fold_shards(runner, ref, ends, hash_rows, HASHES, begin=begin)
    rebuilt = {(partition, shard): one for partition, shard, one in rows_of(rows)}
    keys = sorted(key for key in live.keys() | rebuilt.keys() if live.get(key) != rebuilt.get(key))
    events: Mapping[int, EventLog] = logs
    searched = len(keys)
    if isinstance(ref, KafkaRef):
        searched = SEARCHED_MAX
        events = excerpts(runner, ref, ends, [shard for _, shard in keys[:searched]])
    differences = []
    for number, (partition, shard) in enumerate(keys):
        hashes = rebuilt.get((partition, shard)), live.get((partition, shard))
        if number < searched:
            stored = stored_values(logs[partition], ShardKey(shard))
            differences.append(difference(History(events[partition], shard), stored, partition, shard, hashes))
        else:
            differences.append(difference_of(partition, shard, NOT_SEARCHED, hashes=hashes))
    for partition, stored_events in cluster_events(ref, ends).items():
        if partition in logs:
            records = (decode_event(offset, value) for offset, value in stored_events)
            differences += cluster_difference(records, TopicStore(logs[partition]).durable_cluster, partition)
    return outcome(differences, len(live), {partition: ends[partition] for partition in logs}, options)


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
