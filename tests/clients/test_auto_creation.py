"""KIP-361 with real consumers: a missing topic is created only where both the cluster and the consumer allow it.

The truth table for every version of Metadata is in the differential table; here are the consumers themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.support import tools
from tests.support.topicwright import Topicwright, topicwright
from tests.support.wire import Wire

JAVA_VERSIONS = [tools.KAFKA_SERVER, tools.KAFKA_CLIENT_CONSUMER]
POLL_S = 2
CREATED_WITHIN_S = 300
POLL_S_MAX = 20
"""How long a consumer polls where poll must throw, and thereby end it."""


def exists(address: str, topic: str) -> bool:
    """Whether the topic is there, looked up in a way that does not create it."""
    with Wire(address) as wire:
        body = wire.call("Metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=False)
    code: int = body["topics"][0]["error_code"]
    return code == 0


def until(reached: Callable[[], bool], poll_for: Callable[[int], object]) -> None:
    """Poll for twice as long each time, as long as a busy machine needs."""
    deadline, poll_s = time.monotonic() + CREATED_WITHIN_S, POLL_S
    while not reached():
        assert time.monotonic() < deadline
        poll_for(poll_s)
        poll_s *= 2


def poll(classpath: str, address: str, *topics: tuple[str, bool], seconds: int = POLL_S) -> list[str]:
    """What Java consumers say after polling a while, each of a topic that it allows to be created or does not:
    `polled`, or what poll threw."""
    words = [f"{topic}={str(allow).lower()}" for topic, allow in topics]
    done = tools.run_quietly(tools.java_command(classpath, "Poll", address, str(seconds), *words))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_java_consumers(version: str, bootstrap: str, topic: str, java_client: Callable[[str], str]) -> None:
    topics = (f"{topic}-allowed", True), (f"{topic}-forbidden", False)
    until(
        lambda: exists(bootstrap, f"{topic}-allowed"),
        lambda poll_s: poll(java_client(version), bootstrap, *topics, seconds=poll_s),
    )
    assert not exists(bootstrap, f"{topic}-forbidden")


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_java_consumer_where_the_cluster_forbids(
    version: str, forbidding: Topicwright, topic: str, java_client: Callable[[str], str]
) -> None:
    poll(java_client(version), forbidding.kafka, (topic, True))
    assert not exists(forbidding.kafka, topic)


@pytest.mark.parametrize("allow", [True, False], ids=["allows", "forbids"])
def test_librdkafka_consumer(allow: bool, bootstrap: str, topic: str) -> None:
    _consume(bootstrap, topic, allow)
    if allow:
        until(lambda: exists(bootstrap, topic), lambda poll_s: _consume(bootstrap, topic, allow, poll_s))
    else:
        assert not exists(bootstrap, topic)


def test_librdkafka_consumer_where_the_cluster_forbids(forbidding: Topicwright, topic: str) -> None:
    _consume(forbidding.kafka, topic, allow=True)
    assert not exists(forbidding.kafka, topic)


@pytest.fixture(scope="module")
def old_metadata(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    """A server that creates topics by itself and offers Metadata only to version 3, as brokers before 0.11 did."""
    settings = {"auto.create.topics.enable": "true", "api.versions.max": "Metadata:3"}
    with topicwright(tmp_path_factory.mktemp("old") / "server", settings) as server:
        yield server


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_java_consumer_that_forbids_fails_at_an_old_server(
    version: str, old_metadata: Topicwright, topic: str, java_client: Callable[[str], str]
) -> None:
    """It cannot say no in Metadata v3, and says so instead of having the topic created."""
    (outcome,) = poll(java_client(version), old_metadata.kafka, (topic, False), seconds=POLL_S_MAX)
    refusals = "UnsupportedVersionException: ", "UnsupportedProtocolFieldException: "  # which 4.4 has for it
    assert outcome.startswith(refusals), outcome
    assert "allowAutoTopicCreation" in outcome
    assert not exists_by_old_metadata(old_metadata.kafka, topic)


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_java_consumer_that_allows_works_at_an_old_server(
    version: str, old_metadata: Topicwright, topic: str, java_client: Callable[[str], str]
) -> None:
    until(
        lambda: exists_by_old_metadata(old_metadata.kafka, topic),
        lambda poll_s: poll(java_client(version), old_metadata.kafka, (topic, True), seconds=poll_s),
    )


def exists_by_old_metadata(address: str, topic: str) -> bool:
    """Whether a listing of all topics has it: asking for it by name in an old version would create it."""
    with Wire(address) as wire:
        return topic in {each["name"] for each in wire.call("Metadata", 3, topics=None)["topics"]}


def _consume(address: str, topic: str, allow: bool, seconds: int = POLL_S) -> None:
    from confluent_kafka import Consumer, TopicPartition

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
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            consumer.poll(0.1)
    finally:
        consumer.close()
