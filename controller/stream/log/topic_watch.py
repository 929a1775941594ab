"""Watches the topics of the log: they must stay those that a process started with, and whole.

A topic that is deleted takes its history along, and a topic that is created in its place under the same name (by
somebody, or by a cluster that creates topics on demand) is another log: nothing that is decided or shown from there on
would be true. Idle processes would not notice for minutes, so the topics' ids are checked now and then. A topic counts
as gone when it is missing twice in a row. An events topic without its first records stops nobody who has read them,
but no empty folder can begin with it: `trouble` says so. Kafka's own troubles say nothing, nor does any other exception
of a check: it is logged once, and the next check comes all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from controller.stream.log.topics import offset_ranges
from controller.stream.log.transport import Topics

LOOK_EVERY_S = 5.0
TIMEOUT_S = 10.0
MISSED_MAX = 2  # once may be a broker that does not know it yet


class TopicGone(Exception):
    """A topic of the log is not there any more, or not the same; the message says which, and what to do."""


class TopicWatch:
    """Looks at the topics; `properties` are librdkafka's, with `bootstrap.servers`."""

    def __init__(self, properties: Mapping[str, Any], topics: Topics, *, is_archived: bool) -> None:
        """`is_archived` says that empty folders begin with a base, and need not all records."""
        self.trouble: str | None = None
        """A condition that an operator must know of, while everything works."""
        self._properties = {**properties, "log_level": 0}
        self._topics = topics
        self._is_archived = is_archived
        self._deleted = 0
        self._ids = {topics.events: topics.events_id}
        """The ids that topics must have; that of the commands from the first look on."""
        self._missed: dict[str, int] = {}

    async def watch(self, fail: Callable[[TopicGone], None]) -> None:
        """Look until cancelled, or until a topic is gone, which `fail` is called with."""
        admin: AdminClient | None = None
        logged = ""
        while True:
            try:
                admin = admin or AdminClient(self._properties)
                for name, topic_id in (await asyncio.to_thread(self._look, admin)).items():
                    self.learn(name, topic_id)
                ranges = await asyncio.to_thread(
                    offset_ranges, self._properties, self._topics.events, self._topics.partitions
                )
                self.learn_beginnings([first for first, _ in ranges])
            except TopicGone as gone:
                fail(gone)
                return
            except Exception as error:
                if (why := type(error).__name__) != logged:
                    logged = why
                    log = structlog.get_logger("topicwright")
                    log.warning("topics of the log cannot be looked at", why=f"{why}: {error}", exc_info=error)
            await asyncio.sleep(LOOK_EVERY_S)

    def learn(self, name: str, topic_id: str | None) -> None:
        """Take what one look found: the topic's id, None where it is missing. Raises TopicGone."""
        self._missed[name] = self._missed.get(name, 0) + 1 if topic_id is None else 0
        if self._missed[name] >= MISSED_MAX:
            raise TopicGone(f"topic {name} was deleted: {self._cure(name)}")
        if topic_id is not None and self._ids.setdefault(name, topic_id) != topic_id:
            raise TopicGone(f"topic {name} was deleted and made anew: {self._cure(name)}")

    def learn_beginnings(self, firsts: Sequence[int]) -> None:
        """Take the offset of the first record of each partition of the events topic."""
        self._deleted = sum(firsts)
        if self._is_archived or not self._deleted:
            self.trouble = None
        elif self.trouble is None:
            partitions = ", ".join(str(number) for number, first in enumerate(firsts) if first)
            self.trouble = (
                f"topic {self._topics.events} has lost its first records (of partitions {partitions}): a process with "
                "an empty folder cannot start. Restore the topic while folders have it all (`topicwright "
                "restore-topic`), or set log.archive.url and wait for a base"
            )
            structlog.get_logger("topicwright").warning("the events topic is not whole", why=self.trouble)

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        """The figure of it."""
        yield "records_deleted", "Records of the events topic that Kafka has deleted.", self._deleted

    def _look(self, admin: AdminClient) -> dict[str, str | None]:
        """The ids of the topics that Kafka describes, and None of those that it says are missing."""
        names = [self._topics.commands, self._topics.events]
        found: dict[str, str | None] = {}
        for name, future in admin.describe_topics(TopicCollection(names), request_timeout=TIMEOUT_S).items():
            try:
                found[name] = str(future.result(TIMEOUT_S + 1).topic_id)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    found[name] = None
            except TimeoutError:  # librdkafka is late; silence says nothing
                continue
        return found

    def _cure(self, name: str) -> str:
        if name == self._topics.events:
            return "it held all that was ever decided; restore it from a backup, or begin anew with other topics"
        return (
            "what was not decided yet is lost, and what is decided counts its offsets; begin anew with other topics "
            "(stream.commands.topic, stream.events.topic), or restore it"
        )
