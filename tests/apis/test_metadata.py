"""Metadata: auto-creation, and topics with very many partitions."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from controller.apis import metadata
from controller.apis.metadata import LARGE
from controller.kafka.codec.codec import encode_element
from controller.kafka.messages import ApiKey
from controller.kafka.messages.message import OPERATIONS_OMITTED
from controller.kafka.messages.topics import MetadataRequest, MetadataRequestTopic
from controller.machine.commands.commands import TopicCommand
from controller.machine.state import Topic
from events.catalog import CreateRejected, CreateRequested, Partition, TopicCreated
from events.names import BrokerId, Offset, TopicId, TopicName
from tests.apis.rig import Rig, rig

COMPACTED = ("cleanup.policy", "compact")
SEGMENTS = ("segment.bytes", "104857600")
MIN_ISR = ("min.insync.replicas", "2")
BY_KAFKA = {
    "__consumer_offsets": (COMPACTED, ("compression.type", "producer"), SEGMENTS),
    "__transaction_state": (
        COMPACTED, ("compression.type", "uncompressed"), MIN_ISR, SEGMENTS, ("unclean.leader.election.enable", "false"),
    ),
    "__share_group_state": (
        ("cleanup.policy", "delete"), ("compression.type", "producer"), MIN_ISR, ("retention.ms", "-1"), SEGMENTS,
    ),
}  # fmt: skip
"""Configs of Kafka 4.3.1's internal topics, from its metadata log."""


async def _metadata(served: Rig, *names: str, version: int = 12, times: int = 1) -> None:
    """Send concurrent Metadata requests, and wait until all resulting commands are decided."""
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    for _ in range(times):
        await served.call(ApiKey.METADATA, version, MetadataRequest(topics=topics, allow_auto_topic_creation=True))
    await served.controller.decided()


async def test_auto_created_internal_topics_have_kafkas_settings(served: Rig) -> None:
    await _metadata(served, *BY_KAFKA)
    made = {event.topic: event for event in served.events(TopicCreated)}
    assert {name: tuple(sorted(event.configs)) for name, event in made.items()} == BY_KAFKA
    assert {(len(event.partitions), event.replication_factor) for event in made.values()} == {(50, 3)}


async def test_no_auto_creation_of_internal_topics_of_a_target_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig({"has.target.cluster": "true"}) as served:
        submitted: list[TopicCommand] = []
        monkeypatch.setattr(served.api, "submit", lambda commands, timeout_ms: submitted.extend(commands))
        await _metadata(served, *BY_KAFKA, "t")
        assert [command.topic for command in submitted] == ["t"]


@pytest.mark.parametrize("version", [1, 4, 9, 12])
async def test_auto_creation_records_the_metadata_version(served: Rig, version: int) -> None:
    await _metadata(served, "t", version=version)
    assert [(each.api, each.api_version) for each in served.events(CreateRequested)] == [("Metadata", version)]


async def test_repeated_auto_creation_is_no_rejection(served: Rig) -> None:
    await _metadata(served, "t", times=2)
    assert len(served.events(TopicCreated)) == 1
    assert served.events(CreateRejected) == []
    assert len(served.events(CreateRequested)) == 1


VERSION = 12


@pytest.mark.parametrize("how", ["by name", "by id", "all", "among many", "with operations"])
async def test_large_topic_is_encoded_in_a_thread(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[tuple[int, bool]] = []

    def noted(key: int, version: int, element: Any) -> bytes:
        encoded.append((len(element.partitions), threading.current_thread() is threading.main_thread()))
        return encode_element(key, version, element)

    async with rig() as one:
        for name, count in (("large", LARGE + 1), ("small", 3)):
            assert [each.error_code for each in await one.create(name, num_partitions=count)] == [0]
        large = one.api.topic("large")
        assert large is not None
        monkeypatch.setattr(metadata, "encode_element", noted)
        wanted: dict[str, tuple[MetadataRequestTopic, ...] | None] = {
            "by id": (MetadataRequestTopic(topic_id=large.topic_id, name=None), MetadataRequestTopic(name="small")),
            "all": None,
            "among many": tuple(MetadataRequestTopic(name=name) for name in ("large", "small", *map(str, range(300)))),
        }
        request = MetadataRequest(
            topics=wanted.get(how, (MetadataRequestTopic(name="large"), MetadataRequestTopic(name="small"))),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=how == "with operations",
        )
        for _ in range(2):
            answer = await one.call(ApiKey.METADATA, VERSION, request)
            live, operations = one.api.cluster.live, OPERATIONS_OMITTED
            if how == "with operations":
                everybody: Any = SimpleNamespace(principal="User:ANONYMOUS", host="", client_id=None, api="Metadata")
                operations = one.api.topic_operations(everybody, "large")
                assert operations > 0
            whole = encode_element(
                ApiKey.METADATA, VERSION, metadata.response_topic(large, large.partitions, live, operations)
            )
            assert list(answer.topics).count(whole) == 1
        assert {on_loop for size, on_loop in encoded if size > LARGE} == {False}
        assert len([size for size, _ in encoded if size > LARGE]) == 1, "the large part is encoded once"


def test_added_partitions_count_in_the_cache_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PARTITIONS_CACHED_MAX", 100)
    cache = metadata._EncodedTopics()
    one = BrokerId(1)
    partition = Partition((one,), (one,), one)
    for count in (1, 60):
        for name in ("a", "b"):
            topic = Topic(TopicName(name), TopicId(bytes(16)), (partition,) * count, (), 0, Offset(0))
            cache.store(topic, VERSION, (), OPERATIONS_OMITTED, b"")
    other = Topic(TopicName("c"), TopicId(bytes(16)), (partition,), (), 0, Offset(0))
    cache.store(other, VERSION, (), OPERATIONS_OMITTED, b"")
    assert cache.find(topic, VERSION, (), OPERATIONS_OMITTED) is None, "the cache is full"
    assert cache.find(other, VERSION, (), OPERATIONS_OMITTED) is not None
