"""A gateway's own announcements: they say that it lives, and whether they come back says whether Kafka is there."""

from __future__ import annotations

import structlog
from confluent_kafka import KafkaError
from msgspec.structs import replace

from controller.stream.gateway.members import Members, encode_announcement
from controller.stream.gateway.producer import NotProduced
from controller.stream.gateway.sender import Producing


class Presence:
    """Announces this gateway, one of `members`, in `topic`. One that has not heard itself for a session's time has
    lost Kafka."""

    def __init__(self, members: Members, producer: Producing, topic: str) -> None:
        self.members = members
        self.topic = topic
        self.trouble: str | None = None
        """Why nothing comes through now; None when it does."""
        self._producer = producer
        self._log = structlog.get_logger("topicwright")

    def announce(self, leaving: bool = False) -> None:
        """Say that this gateway lives, or leaves; and notice whether Kafka is there."""
        self._look_at_kafka()
        own = replace(self.members.own, leaving=leaving)
        try:
            self._producer.produce(self.topic, 0, own.gateway_id.encode(), encode_announcement(own), _nothing_more)
        except NotProduced as error:
            self._log.warning("announcement not sent", why=str(error))

    def _look_at_kafka(self) -> None:
        silent_s = self.members.silent_s()
        if silent_s <= self.members.session_s:
            if self.trouble is not None:
                self._log.info("kafka is back")
            self.trouble = None
        elif self.trouble is None:
            self.trouble = "Kafka has not taken and given back what this gateway writes"
            self._log.warning("kafka is lost", silent_s=round(silent_s, 1))


def _nothing_more(offset: int, error: KafkaError | None) -> None:
    return None
