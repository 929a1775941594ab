"""Clients that change topics: they create, grow, alter and delete, send again what was not answered, and know what must
be there in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

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

from tests.stream.gateway.load import GROWN, PARTITIONS, ClientReport, Unexpected, Wanted
from tests.support.churn import QUIET

WITHIN_S: Final = 240.0
KEPT: Final = 40
"""So many topics of a client live at a time."""
AGAIN: Final = frozenset(
    (
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY_BROKER,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_CONTROLLER,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.INVALID_REPLICATION_FACTOR,
    )
)
"""No answer, nobody who could give one, or too few brokers just then."""


class Changes(threading.Thread):
    """One client, over Kafka's protocol: through brokers, which pass on to whoever leads, or through gateways.

    A broker sends a request again by itself when its controller goes, so that what is done already may be answered to
    a request that was put once.
    """

    def __init__(self, name: str, bootstrap: str, factor: int, pause_s: float) -> None:
        super().__init__(name=name, daemon=True)
        self.report = ClientReport()
        self.creates: list[tuple[float, float]] = []
        """Of each create that was answered at once: when it began, and how long it took; in seconds."""
        self.altered: dict[str, str] = {}
        """retention.ms of topics that live and were altered."""
        self._address, self._factor, self._pause_s = bootstrap, factor, pause_s
        self.over = threading.Event()

    def run(self) -> None:
        bounded = {"socket.timeout.ms": 10_000, "reconnect.backoff.max.ms": 200}
        admin = AdminClient({"bootstrap.servers": self._address, **bounded, **QUIET})
        number = 0
        while not self.over.is_set() and not self.report.wrong:
            try:
                self._live(admin, f"{self.name}-{number}", number % 4)
            except Exception as error:
                self.report.wrong.append(f"{self.name}-{number}: {error!r}")
            number += 1
            self.over.wait(self._pause_s)

    def end(self) -> None:
        """Send no more; returns when all is answered."""
        self.over.set()
        self.join(WITHIN_S * 3)
        assert not self.is_alive(), f"{self.name} still waits for an answer"

    def _live(self, admin: AdminClient, name: str, kind: int) -> None:
        """A topic is made, changed in one way or another, and what is old goes."""
        new, began = NewTopic(name, PARTITIONS, self._factor), time.monotonic()
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
                f"grow {name}",
                lambda: admin.create_partitions([more], request_timeout=10)[name],
                "INVALID_PARTITIONS",
            )
            topic.grown, topic.partitions = True, GROWN
        elif kind == 2:
            value = str(3_600_000 + len(self.report.topics))
            entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
            wanted = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
            self._until_answered(
                f"alter {name}",
                lambda: admin.incremental_alter_configs([wanted], request_timeout=10)[wanted],
                "NO_ERROR",  # it may be done again
            )
            self.altered[name] = value
        if len(self.report.topics) > KEPT:
            old = self.report.topics[-KEPT - 1]
            self._until_answered(
                f"delete {old.name}",
                lambda: admin.delete_topics([old.name], request_timeout=10)[old.name],
                "UNKNOWN_TOPIC_OR_PART",
            )
            old.deleted = True
            self.altered.pop(old.name, None)

    def _until_answered(self, what: str, request: Callable[[], Any], done_before: str) -> int:
        """Send until somebody answers; how often that was."""
        started, times = time.monotonic(), 0
        while True:
            times += 1
            try:
                request().result(15)
            except KafkaException as error:
                code = error.args[0].code()
                if code in AGAIN:
                    self.report.again += 1
                    if time.monotonic() - started > WITHIN_S:
                        raise Unexpected(f"{what}: not answered") from error
                    time.sleep(0.1)
                    continue
                if code != getattr(KafkaError, done_before):
                    raise Unexpected(f"{what}: {error} after {times} requests") from error
            self.report.answers += 1
            return times


def altered_otherwise(client: Changes, bootstrap: str) -> list[str]:
    """Configs of a client's topics that are not what it was answered."""
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
