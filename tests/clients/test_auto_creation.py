"""KIP-361 with real consumers: a missing topic is created only where both the cluster and the consumer allow it.

The truth table for every version of Metadata is in the differential table; here are the consumers themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support import tools
from tests.support.kafka_tools import kafka_tools
from tests.support.topicwright import Topicwright, topicwright
from tests.support.wire import Wire

POLL_S = 1
CREATED_WITHIN_S = 240
POLL_S_MAX = 60
"""How long a consumer polls where poll must throw, and thereby end it."""

Wanted = tuple[str, bool]
"""A topic, and whether its consumer allows that it is created."""


def exists(address: str, topic: str) -> bool:
    """Whether the topic is there, looked up in a way that does not create it."""
    with Wire(address) as wire:
        body = wire.call("Metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=False)
    code: int = body["topics"][0]["error_code"]
    return code == 0


def poll_java(version: str, address: str, *topics: Wanted, seconds: int = POLL_S) -> list[str]:
    """What Java consumers say after polling a while: `polled`, or what poll threw."""
    words = [f"{topic}={str(allow).lower()}" for topic, allow in topics]
    java = kafka_tools(version)
    return java.output("Poll", address, str(seconds), *words).splitlines()[-len(topics) :]


def poll_librdkafka(address: str, *topics: Wanted) -> None:
    """Have consumers poll a while, in turn."""
    consumers = [_consumer(address, *each) for each in topics]
    ends_at = time.monotonic() + POLL_S
    while time.monotonic() < ends_at:
        for each in consumers:
            each.poll(0.05)
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
    "java": lambda *words: poll_java(tools.KAFKA_SERVER, *words),
    "older java": lambda *words: poll_java(tools.KAFKA_CLIENT_CONSUMER, *words),
    "librdkafka": poll_librdkafka,
}
every_consumer = pytest.mark.parametrize("consumer", CONSUMERS)


def until_created(created: Callable[[], bool], poll: Callable[[], object]) -> None:
    """Poll as often as a busy machine needs."""
    deadline = time.monotonic() + CREATED_WITHIN_S
    while not created():
        assert time.monotonic() < deadline, "it is never created"
        poll()


@every_consumer
def test_a_topic_is_created_for_a_consumer_that_allows_it(consumer: str, bootstrap: str, topic: str) -> None:
    topics = (f"{topic}-allowed", True), (f"{topic}-forbidden", False)
    until_created(lambda: exists(bootstrap, topics[0][0]), lambda: CONSUMERS[consumer](bootstrap, *topics))
    assert not exists(bootstrap, topics[1][0])


@every_consumer
def test_no_topic_is_created_where_the_cluster_forbids(consumer: str, forbidding: Topicwright, topic: str) -> None:
    CONSUMERS[consumer](forbidding.kafka, (topic, True))
    assert not exists(forbidding.kafka, topic)


@pytest.fixture(scope="module")
def old_metadata(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that creates topics by itself and offers Metadata only to version 3, as brokers before 0.11 did."""
    settings = {"auto.create.topics.enable": "true", "api.versions.max": "Metadata:3"}
    with topicwright(tmp_path_factory.mktemp("old") / "server", settings) as server:
        yield server.kafka


@pytest.mark.parametrize("version", [tools.KAFKA_SERVER, tools.KAFKA_CLIENT_CONSUMER])
def test_java_consumers_at_an_old_server(version: str, old_metadata: str, topic: str) -> None:
    """One that forbids cannot say so in Metadata v3, and fails instead of having the topic created."""
    (outcome,) = poll_java(version, old_metadata, (topic, False), seconds=POLL_S_MAX)
    refusals = "UnsupportedVersionException: ", "UnsupportedProtocolFieldException: "  # which 4.4 has for it
    assert outcome.startswith(refusals), outcome
    assert "allowAutoTopicCreation" in outcome
    assert not exists_by_old_metadata(old_metadata, topic)
    until_created(
        lambda: exists_by_old_metadata(old_metadata, topic), lambda: poll_java(version, old_metadata, (topic, True))
    )


def exists_by_old_metadata(address: str, topic: str) -> bool:
    """Whether a listing of all topics has it: asking for it by name in an old version would create it."""
    with Wire(address) as wire:
        return topic in {each["name"] for each in wire.call("Metadata", 3, topics=None)["topics"]}
