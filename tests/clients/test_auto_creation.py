"""KIP-361 with real consumers: a topic is created only if both the cluster and the consumer allow it.

The differential table covers every version of Metadata; these tests run the consumers.
"""

import time
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support import tools
from tests.support.kafka_tools import kafka_tools
from tests.support.real_brokers import until
from tests.support.topicwright import Topicwright
from tests.support.wire import Wire

SHORTLY_S, CREATED_WITHIN_S = 2, 240
"""How long consumers poll if no topic is to be created, and at most if one is."""

Wanted = tuple[str, bool]
"""A topic, and whether its consumer allows auto-creation."""


def exists(address: str, topic: str) -> bool:
    """True if the topic exists, without creating it."""
    with Wire(address) as wire:
        body = wire.call("Metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=False)
    code: int = body["topics"][0]["error_code"]
    return code == 0


def poll_java(version: str, address: str, *topics: Wanted, seconds: int) -> list[str]:
    """The output of Java consumers that poll until topics exist: `polled`, or the error of poll."""
    words = [f"{topic}={str(allow).lower()}" for topic, allow in topics]
    return kafka_tools(version).output("Poll", address, str(seconds), *words).splitlines()[-len(topics) :]


def poll_librdkafka(address: str, *topics: Wanted, seconds: int) -> None:
    """The same with librdkafka."""
    consumers = [_consumer(address, *each) for each in topics]
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at and not all(exists(address, topic) for topic, allow in topics if allow):
        for each in consumers:
            each.poll(0.1)
    for each in consumers:
        each.close()


def _consumer(address: str, topic: str, allow: bool) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "auto-creation",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": allow,
            "topic.metadata.refresh.interval.ms": 200,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


CONSUMERS: dict[str, Callable[..., object]] = {
    "java": partial(poll_java, tools.KAFKA_SERVER),
    "older java": partial(poll_java, tools.KAFKA_CLIENT_CONSUMER),
    "librdkafka": poll_librdkafka,
}
every_consumer = pytest.mark.parametrize("consumer", CONSUMERS)


@every_consumer
def test_allow_auto_topic_creation_creates_a_topic_for_a_consumer(consumer: str, bootstrap: str, topic: str) -> None:
    allowed, forbidden = f"{topic}-allowed", f"{topic}-forbidden"
    CONSUMERS[consumer](bootstrap, (allowed, True), (forbidden, False), seconds=CREATED_WITHIN_S)
    until(lambda: exists(bootstrap, allowed), CREATED_WITHIN_S, "the topic is created")
    assert not exists(bootstrap, forbidden)


@every_consumer
def test_auto_create_topics_enable_false_prevents_creation(
    consumer: str, topicwright_without_auto: Topicwright, topic: str
) -> None:
    CONSUMERS[consumer](topicwright_without_auto.kafka, (topic, True), seconds=SHORTLY_S)
    assert not exists(topicwright_without_auto.kafka, topic)
