"""Real clients that change topics while gateways or controllers are killed, and checks of the results.

Each client has its own topics: it creates them, adds partitions or alters configs, and deletes old ones. It resends a
request until it gets an answer. If an earlier attempt was already decided, the answer says so: the topic exists, is
missing, or has that partition count. Any other answer is an error. So are events that differ from the requests, and a
server that returns another topic.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from events.catalog import Event, PartitionsAdded, TopicCreated, TopicDeleted
from events.codec import decode_event
from tests.stream.checking import fold
from tests.support.churn import QUIET

WITHIN_S = 240
"""The time limit of resends before a request counts as lost. Kafka may be down for a minute."""
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
"""Errors after which a client cannot know if its request was decided."""
_LOST_BY_BROKERS = _LOST | {
    KafkaError._DESTROY_BROKER,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.INVALID_REPLICATION_FACTOR,
}
"""The same through brokers, of which too few may be live at that time."""


class Unexpected(Exception):
    """The client got an unexpected answer, or none."""


@dataclass
class Wanted:
    """The state of a topic according to the answers its client got."""

    name: str
    partitions: int = PARTITIONS
    grown: bool = False
    deleted: bool = False


@dataclass
class ClientReport:
    """A client's topics and errors, and the seconds until another gateway answered."""

    topics: list[Wanted] = field(default_factory=list)
    answers: int = 0
    again: int = 0
    wrong: list[str] = field(default_factory=list)
    detours_s: list[float] = field(default_factory=list)


class Changes(threading.Thread):
    """A client that keeps at most `kept` topics. It sends to gateways or, with `by_brokers`, to brokers that forward to
    the controller. A broker resends a request if its controller stops, so a request sent once may get the answer for
    one already decided."""

    def __init__(
        self, name: str, bootstrap: str, factor: int, pause_s: float, *, kept: int = 40, by_brokers: bool = True
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.report = ClientReport()
        self.creates: list[tuple[float, float]] = []
        """The start and the duration, in seconds, of each create answered at the first attempt."""
        self.altered: dict[str, str] = {}
        """retention.ms of existing topics that were altered."""
        self._factor, self._pause_s, self._kept, self._by_brokers = factor, pause_s, kept, by_brokers
        bounded = {"socket.timeout.ms": 10_000, "reconnect.backoff.max.ms": 200}
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": name, **bounded, **QUIET})
        self.over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.over.is_set() and not self.report.wrong:
            try:
                self._live(f"{self.name}-{number}", number % 4)
            except Exception as error:
                self.report.wrong.append(f"{self.name}-{number}: {error!r}")
            number += 1
            self.over.wait(self._pause_s)

    def end(self) -> ClientReport:
        """Stop sending; returns the report when all requests are answered."""
        self.over.set()
        self.join(WITHIN_S * 3 + 30)
        if self.is_alive():
            self.report.wrong.append(f"{self.name} still waits for an answer")
        return self.report

    def _live(self, name: str, kind: int) -> None:
        """Create a topic, change it by `kind`, and delete an old one."""
        admin, new, began = self._admin, NewTopic(name, PARTITIONS, self._factor), time.monotonic()
        times = self._until_answered(
            f"create {name}", lambda: admin.create_topics([new], request_timeout=10)[name], "TOPIC_ALREADY_EXISTS"
        )
        if times == 1:
            self.creates.append((began, time.monotonic() - began))
        topic = Wanted(name)
        self.report.topics.append(topic)
        if kind == 1:
            more = NewPartitions(name, GROWN)
            self._until_answered(
                f"grow {name}", lambda: admin.create_partitions([more], request_timeout=10)[name], "INVALID_PARTITIONS"
            )
            topic.grown, topic.partitions = True, GROWN
        elif kind == 2:
            value = str(3_600_000 + len(self.report.topics))
            entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
            wanted = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
            self._until_answered(
                f"alter {name}",
                lambda: admin.incremental_alter_configs([wanted], request_timeout=10)[wanted],
                "NO_ERROR",  # setting the config twice is no error
            )
            self.altered[name] = value
        if len(self.report.topics) > self._kept:
            old = self.report.topics[-self._kept - 1]
            self._until_answered(
                f"delete {old.name}",
                lambda: admin.delete_topics([old.name], request_timeout=10)[old.name],
                "UNKNOWN_TOPIC_OR_PART",
            )
            old.deleted = True
            self.altered.pop(old.name, None)

    def _until_answered(self, what: str, request: Callable[[], Any], done_before: str) -> int:
        """Send until there is an answer; returns the number of attempts. `done_before` is the error that means an
        earlier attempt was decided."""
        started, times = time.monotonic(), 0
        while True:
            times += 1
            try:
                request().result(15)
            except KafkaException as error:
                code = error.args[0].code()
                if code in (_LOST_BY_BROKERS if self._by_brokers else _LOST):
                    self.report.again += 1
                    if time.monotonic() - started > WITHIN_S:
                        raise Unexpected(f"{what}: not answered") from error
                    time.sleep(0.1)
                    continue
                may_be_done = self._by_brokers or times > 1
                if not may_be_done or code != getattr(KafkaError, done_before):
                    raise Unexpected(f"{what}: {error} after {times} requests") from error
            self.report.answers += 1
            if times > 1:
                self.report.detours_s.append(time.monotonic() - started)
            return times


def altered_otherwise(client: Changes, bootstrap: str) -> list[str]:
    """Returns the topic configs that differ from the client's successful requests."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    wanted = {ConfigResource(ResourceType.TOPIC, name): value for name, value in client.altered.items()}
    if not wanted:
        return []
    wrong = []
    for resource, future in admin.describe_configs(list(wanted), request_timeout=30).items():
        shown = future.result(40)["retention.ms"].value
        if shown != wanted[resource]:
            wrong.append(f"{resource.name}: retention.ms is {shown}, not {wanted[resource]}")
    return wrong


def shown_otherwise(reports: Iterable[ClientReport], gateway: str) -> list[str]:
    """Returns topics of a gateway that differ from the clients' answers. It has four minutes to catch up."""
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
    """Returns the topics whose events differ from the clients' requests."""
    happened: dict[str, Counter[type[Event]]] = {}
    kinds = (TopicCreated, PartitionsAdded, TopicDeleted)
    for partition, written in enumerate(events):
        values = chain.from_iterable(taken.events for taken in fold(partition, written)[1])
        for number, value in enumerate(values):
            fact = decode_event(number, value).event
            if isinstance(fact, kinds):
                happened.setdefault(fact.topic, Counter())[type(fact)] += 1
    wrong = []
    for topic in (topic for one in reports for topic in one.topics):
        found = happened.get(topic.name, Counter())
        counts = tuple(found[kind] for kind in kinds)
        if counts != (1, int(topic.grown), int(topic.deleted)):
            wrong.append(f"{topic.name}: created, grown, deleted {counts} times; requested: {topic}")
    return wrong
