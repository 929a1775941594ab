"""Real clients of gateways, one of which may die at any time, and what they must find in the end.

Each client works on topics of its own: it creates one, grows some, deletes some. A request whose gateway dies, or does
not answer in time, is sent again to the others, until one answers. What was decided already is then answered as such:
the topic exists, or is gone, or has as many partitions. Any other answer is wrong; so are events that do not come to
just what the client requested, and a gateway that shows another topic.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from events.catalog import Event, PartitionsAdded, TopicCreated, TopicDeleted
from events.codec import decode_event
from events.logs.events_topic import PartitionReader

WITHIN_S = 240
"""So long may sending again take before a request counts as lost: Kafka may be gone for a minute."""
PARTITIONS, GROWN = 2, 4

_LOST = frozenset(
    (
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_CONTROLLER,
    )
)
"""What a client gets when it cannot know whether what it requested was decided."""


class Unexpected(Exception):
    """An answer that nobody should get, or none at all."""


@dataclass
class Wanted:
    """What a client was answered about one of its topics."""

    name: str
    partitions: int = PARTITIONS
    grown: bool = False
    deleted: bool = False


@dataclass
class ClientReport:
    """What a client requested, what it found wrong, and how long it took to find another gateway, in seconds."""

    topics: list[Wanted] = field(default_factory=list)
    answers: int = 0
    again: int = 0
    wrong: list[str] = field(default_factory=list)
    detours_s: list[float] = field(default_factory=list)


class GatewayClient(threading.Thread):
    """One client; `gateways` are all there are (HOST:PORT)."""

    def __init__(self, name: str, gateways: Sequence[str], pause_s: float) -> None:
        super().__init__(name=name, daemon=True)
        self.report = ClientReport()
        self._gateways = gateways
        self._pause_s = pause_s
        self._over = threading.Event()
        self._admin = AdminClient(
            {
                "bootstrap.servers": ",".join(gateways),
                "client.id": name,
                "socket.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._over.is_set() and not self.report.wrong:
            try:
                self._live(f"{self.name}-{number}", grow=number % 3 == 1, delete=number % 4 == 2)
            except Exception as error:
                self.report.wrong.append(f"{self.name}-{number}: {error!r}")
            number += 1
            time.sleep(self._pause_s)

    def end(self) -> ClientReport:
        """Send no more; what came of it."""
        self._over.set()
        self.join(WITHIN_S * 3 + 30)
        if self.is_alive():
            self.report.wrong.append(f"{self.name} still waits for an answer")
        return self.report

    def _live(self, name: str, *, grow: bool, delete: bool) -> None:
        topic, admin = Wanted(name), self._admin
        wanted = NewTopic(name, PARTITIONS, 2)
        self._until_answered(
            f"create {name}",
            lambda: admin.create_topics([wanted], request_timeout=10)[name].result(15),
            KafkaError.TOPIC_ALREADY_EXISTS,
        )
        self.report.topics.append(topic)
        if grow:
            more = NewPartitions(name, GROWN)
            self._until_answered(
                f"grow {name}",
                lambda: admin.create_partitions([more], request_timeout=10)[name].result(15),
                KafkaError.INVALID_PARTITIONS,
            )
            topic.grown, topic.partitions = True, GROWN
        if delete:
            self._until_answered(
                f"delete {name}",
                lambda: admin.delete_topics([name], request_timeout=10)[name].result(15),
                KafkaError.UNKNOWN_TOPIC_OR_PART,
            )
            topic.deleted = True

    def _until_answered(self, what: str, request: Callable[[], Any], done_before: int) -> None:
        """Send until somebody answers; `done_before` is the answer where a request before was decided after all."""
        started, lost = time.monotonic(), 0
        while True:
            try:
                request()
            except KafkaException as error:
                code = error.args[0].code()
                if code in _LOST:
                    lost += 1
                    self.report.again += 1
                    if time.monotonic() - started > WITHIN_S:
                        raise Unexpected(f"{what}: lost") from error
                    time.sleep(0.1)
                    continue
                if not lost or code != done_before:
                    raise Unexpected(f"{what}: {error} after {lost} requests without an answer") from error
            self.report.answers += 1
            if lost:
                self.report.detours_s.append(time.monotonic() - started)
            return


def shown_otherwise(reports: Iterable[ClientReport], gateway: str) -> list[str]:
    """What a gateway shows of the clients' topics that is not what they were answered; it has a while to learn it."""
    admin = AdminClient({"bootstrap.servers": gateway, "log_level": 0})
    wanted = {topic.name: 0 if topic.deleted else topic.partitions for one in reports for topic in one.topics}
    deadline = time.monotonic() + 240
    while True:
        topics = admin.list_topics(timeout=20).topics
        shown = {name: len(topics[name].partitions) if name in topics else 0 for name in wanted}
        other = [f"{gateway} shows {name} with {shown[name]}, not {wanted[name]}" for name in wanted]
        other = [line for line, name in zip(other, wanted, strict=True) if shown[name] != wanted[name]]
        if not other or time.monotonic() > deadline:
            return other
        time.sleep(0.2)


def decided_otherwise(reports: Iterable[ClientReport], events: Sequence[Sequence[bytes | None]]) -> list[str]:
    """What the events topic holds of the clients' topics that is not exactly what they requested."""
    happened: dict[str, Counter[type[Event]]] = {}
    kinds = (TopicCreated, PartitionsAdded, TopicDeleted)
    for partition, written in enumerate(events):
        reader = PartitionReader(partition)
        for offset, value in enumerate(written):
            assert value is not None
            taken = reader.read(offset, value)
            for number, event in enumerate(taken.events, taken.first_event) if taken is not None else ():
                fact = decode_event(number, event).event
                if isinstance(fact, kinds):
                    happened.setdefault(fact.topic, Counter())[type(fact)] += 1
    wrong = []
    for topic in (topic for one in reports for topic in one.topics):
        found = happened.get(topic.name, Counter())
        counts = tuple(found[kind] for kind in kinds)
        if counts != (1, int(topic.grown), int(topic.deleted)):
            wrong.append(f"{topic.name}: created, grown, deleted {counts} times; requested: {topic}")
    return wrong
