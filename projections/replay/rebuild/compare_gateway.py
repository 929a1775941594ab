"""Compares the topics that a running gateway returns over HTTP with the topics rebuilt from the events topic.

This is `topicwright replay compare --http`. A gateway's response has only a part of a topic's state. It lacks the
pending create and the brokers that have applied the creation, so these are not compared. Topics may change during the
comparison: each response has the offset of the newest event that it reflects. A topic that seems to differ is requested
again, and compared with its state rebuilt up to that offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from controller.machine.state import Topic
from controller.store.stored_topics import encode_topic
from events.catalog import Partition
from events.logs.events_topic import partition_of
from events.names import BrokerId, Offset, ShardKey, TopicId, TopicName, shard_key
from projections.replay.log.kafka_scan import KafkaRef, scan
from projections.replay.log.log_ref import ends_of
from projections.replay.outcome import Options, Outcome, ReplayError
from projections.replay.rebuild.differences import (
    NOT_SEARCHED,
    SEARCHED_MAX,
    Difference,
    History,
    difference_of,
    excerpts,
    first_difference,
    outcome,
)
from projections.replay.rebuild.folds import state_hash
from projections.replay.rebuild.rebuild import rebuilt
from projections.replay.runner import Runner
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
