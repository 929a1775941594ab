"""Compares the live state with the state rebuilt from the events, by a hash for each topic (`replay compare`).

A log has events, and the state that was committed with them. If the two differ, one of them is wrong: a topic changed
without an event, an event was written without its change, or a byte on the disk flipped.

Method. The live side is fixed first, then topics are rebuilt from events up to the same offsets, however busy the
service is. Topics that differ are then reported one by one, with both sides and the first event after which they differ
(see `first_difference`). Brokers and settings are compared too, under the empty shard key. The rebuild of a data
directory begins at its newest snapshot, if any, and so checks only later events; `from_scratch` checks all.

A log in Kafka has no state. `--data DIR` is then the data folder of a gateway or worker, live or a copy: a log for each
partition, in `partition-00000` and so on. A worker has only the partitions that it owned; others are not compared.

`--http` is the address of a running gateway, whose responses are then the live side. A response has only a part of a
topic's state. It lacks the pending create and the brokers that have applied the creation, so these are not compared.
Topics may change during the comparison: each response has the offset of the newest event that it reflects. A topic that
seems to differ is requested again, and compared with its state rebuilt up to that offset.

Non-goal: points in time in the past, because the live side has only the current state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from controller.machine.state import Topic
from controller.store.store import TopicStore
from controller.store.stored_topics import encode_topic, stored_values
from events.catalog import Partition
from events.codec import decode_event
from events.logs.events_topic import partition_of
from events.logs.log import EventLog
from events.names import BrokerId, Offset, ShardKey, TopicId, TopicName, shard_key
from projections.replay.log.kafka_scan import KafkaRef, scan
from projections.replay.log.log_ref import Ends, LogRef, Ref, ends_of
from projections.replay.log.secondary import FrozenLog, frozen_log
from projections.replay.outcome import Options, Outcome, ReplayError
from projections.replay.rebuild.differences import (
    NOT_SEARCHED,
    SEARCHED_MAX,
    Difference,
    History,
    cluster_difference,
    difference,
    difference_of,
    excerpts,
    first_difference,
    live_hashes,
    outcome,
)
from projections.replay.rebuild.rebuild import HASHES, beginning, begun_at, hash_rows, rebuilt, state_hash
from projections.replay.runner import Runner
from projections.replay.shards import AT_FIRST, Beginning, cluster_events, fold_shards, rows_of
from projections.text.names import topic_id_bytes

ROUNDS = 3
"""The maximum number of further requests for a topic that seems to differ."""
_ADDRESS = re.compile(r"(?:http://)?(\[[0-9A-Fa-f:.%]+\]|[^:/\[\]]+):(\d{1,5})/?")
_WITHIN_S = 30.0
_PAGE = 1000
_NOT_FOUND, _DONE = 404, 200


GatewayTopic = tuple[Topic, int]
"""A topic in a gateway's response, and the offset, in its log partition, of the newest event that it reflects."""


class GatewayTopics:
    """The topics of a running gateway. Every method raises ReplayError if the server does not answer as a gateway."""

    def __init__(self, address: str) -> None:
        found = _ADDRESS.fullmatch(address)
        if found is None or not 0 < int(found[2]) < 1 << 16:
            raise ReplayError(f"--http {address} is not HOST:PORT")
        self._address = f"{found[1]}:{found[2]}"
        self._connection = HTTPConnection(found[1].strip("[]"), int(found[2]), timeout=_WITHIN_S)

    def close(self) -> None:
        self._connection.close()

    def all(self) -> Iterator[GatewayTopic]:
        """All topics; a topic that is created or deleted meanwhile may be missing or included."""
        place: dict[str, str] = {}
        while True:
            page = self._get(f"/v1/topics?{urlencode({'limit': str(_PAGE), **place})}")
            if page is None:
                raise self._unexpected("GET /v1/topics returns 404")
            yield from filter(None, (self.one(summary["name"]) for summary in page["topics"]))
            if page["next_cursor"] is None:
                return
            place = {"cursor": page["next_cursor"]}

    def one(self, name: str) -> GatewayTopic | None:
        """One topic; None if it does not exist."""
        found = self._get(f"/v1/topics/{quote(name, safe='')}")
        try:
            return None if found is None else (_topic(found["name"], found), found["as_of"]["offset"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._unexpected(f"a field of topic {name} is missing or invalid: {error}") from None

    def _get(self, path: str) -> Any:
        try:
            self._connection.request("GET", path)
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise ReplayError(f"the gateway at {self._address} does not answer: {error}") from None
        if answer.status == _NOT_FOUND:
            return None
        try:
            reply = msgspec.json.decode(body)
        except msgspec.DecodeError:
            raise self._unexpected(f"the body of its {answer.status} response to {path} is not JSON") from None
        if answer.status != _DONE:
            raise self._unexpected(f"it responds to {path} with {answer.status}: {reply}")
        return reply

    def _unexpected(self, why: str) -> ReplayError:
        return ReplayError(f"{self._address} does not answer as a gateway does: {why}")


def _topic(name: str, fields: Mapping[str, Any]) -> Topic:
    """The topic with these fields, which come from a gateway's JSON or from a row of the rebuilt topics."""
    return Topic(
        TopicName(name),
        TopicId(topic_id_bytes(fields["topic_id"])),
        tuple(map(_partition, fields["partitions"])),
        tuple(sorted(fields["configs"].items())),
        fields["created_at_ms"],
        Offset(fields["created_offset"]),
        fields["ready_at_ms"],
    )


def _partition(fields: Mapping[str, Any]) -> Partition:
    replicas, isr = (tuple(map(BrokerId, fields[name])) for name in ("replicas", "isr"))
    return Partition(replicas, isr, BrokerId(fields["leader"]), fields["leader_epoch"], fields["partition_epoch"])


def with_gateway(runner: Runner, ref: KafkaRef, address: str, options: Options) -> Outcome:
    """Compare the topics of an events topic with a running gateway. Raises ReplayError."""
    with closing(GatewayTopics(address)) as gateway:
        live: dict[str, Topic] = {shard_key(topic.name): topic for topic, _ in gateway.all()}
        ref = scan(ref.topic)
        ends = ends_of(ref)
        rows = rebuilt(runner, ref, "topics", ends).to_pylist(maps_as_pydicts="strict")
        topics = {row["shard"]: _topic(row["topic"], row) for row in rows}
        shards = sorted(shard for shard in live.keys() | topics.keys() if topics.get(shard) != live.get(shard))
        differences: list[Difference] = []
        for _ in range(ROUNDS if shards else 0):
            names = {shard: (live.get(shard) or topics[shard]).name for shard in shards[:SEARCHED_MAX]}
            answers = {shard: gateway.one(name) for shard, name in names.items()}
            ref = scan(ref.topic)
            differences = list(_remaining(runner, ref, shards, answers))
            shards = [one["shard"] for one in differences]
        return outcome(differences, len(live), ends, options)


def _remaining(
    runner: Runner, ref: KafkaRef, shards: Sequence[str], answers: Mapping[str, GatewayTopic | None]
) -> Iterator[Difference]:
    """The differences that remain when each topic is rebuilt up to the newest event that the gateway reflects."""
    count = len(ref.partitions)
    places = {shard: partition_of(ShardKey(shard), count) for shard in shards}
    events = excerpts(runner, ref, ends_of(ref), answers.keys())
    for shard in shards:
        partition = places[shard]
        if shard not in answers:
            yield difference_of(partition, shard, NOT_SEARCHED)
            continue
        live, as_of = answers[shard] or (None, None)
        end = None if as_of is None else as_of + 1
        history = History(events[partition], shard, end, _as_in_response)
        topic = history.topic()
        if topic != live:
            first = first_difference(history, live)
            yield difference_of(partition, shard, first, (topic, live), (_hash(topic), _hash(live)))


def _hash(topic: Topic | None) -> str | None:
    return None if topic is None else state_hash(encode_topic(topic))


def _as_in_response(topic: Topic | None) -> Topic | None:
    """A rebuilt topic, with only the fields that a gateway's response has."""
    if topic is None:
        return None
    configs = tuple(sorted(topic.configs))
    return msgspec.structs.replace(topic, configs=configs, propagated=(), pending_create=None)


def check_compare(ref: Ref, options: Options) -> None:
    """Check, before Spark starts, that both sides are named. Raises ReplayError."""
    named = options.more.keys() & {"data", "http"}
    if isinstance(ref, KafkaRef):
        if len(named) != 1:
            raise ReplayError(
                "the events topic holds no state to compare with: name --data DIR of a gateway or worker, or --http "
                "HOST:PORT of a gateway"
            )
    elif named:
        raise ReplayError("--data and --http are for a log in Kafka: a data directory has its own live state")


def run_compare(runner: Runner, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay compare`: compare both sides of every topic; `found` is true if a topic differs.

    For a log in Kafka, `options.more` names the live side: `data`, the folder of a gateway or worker, or `http`, the
    address of a gateway. Raises ReplayError.
    """
    if isinstance(ref, LogRef):
        with frozen_log(ref.path) as log:
            end: Ends = {ref.partition: log.next_offset}
            begin = beginning(ref, end, options)
            return begun_at(_with_logs(runner, ref, {ref.partition: log}, end, begin, options), begin, end)
    if "http" in options.more:
        return with_gateway(runner, ref, str(options.more["http"]), options)
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
