"""Metadata of topics of very many partitions is made beside the loop, whoever requests it and how."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from controller.apis import metadata
from controller.apis.metadata import LARGE
from controller.kafka.codec.codec import encode_element
from controller.kafka.messages import ApiKey
from controller.kafka.messages.message import OPERATIONS_OMITTED
from controller.kafka.messages.topics import CreatableTopic, CreateTopicsRequest, MetadataRequest, MetadataRequestTopic
from controller.machine.state import Topic
from events.catalog import Partition
from events.names import BrokerId, Offset, TopicId, TopicName
from tests.apis.rig import rig

VERSION = 12


@pytest.mark.parametrize("how", ["by name", "by id", "all", "among many", "with operations"])
async def test_a_large_topic_is_not_encoded_on_the_loop(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[tuple[int, bool]] = []

    def noted(key: int, version: int, element: Any) -> bytes:
        encoded.append((len(element.partitions), threading.current_thread() is threading.main_thread()))
        return encode_element(key, version, element)

    async with rig() as one:
        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in (("large", LARGE + 1), ("small", 3))
        ]
        for topic in topics:
            created = await one.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=(topic,), timeout_ms=60_000))
            assert [each.error_code for each in created.topics] == [0]
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
                operations = one.api.topic_operations(_everybody(), "large")
                assert operations > 0
            whole = encode_element(ApiKey.METADATA, VERSION, metadata._response_topic(large, live, operations))
            assert list(answer.topics).count(whole) == 1
        assert {on_loop for size, on_loop in encoded if size > LARGE} == {False}
        if how != "with operations":
            assert len([size for size, _ in encoded if size > LARGE]) == 1, "it is cached"


def _everybody() -> Any:
    class Everybody:
        principal, host, client_id, api = "User:ANONYMOUS", "", None, "Metadata"

    return Everybody()


def test_added_partitions_count_in_the_cache_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PARTITIONS_CACHED_MAX", 100)
    cache = metadata._EncodedTopics()
    one = BrokerId(1)
    partition = Partition((one,), (one,), one)
    for count in (1, 60):
        for name in ("a", "b"):
            topic = Topic(TopicName(name), TopicId(bytes(16)), (partition,) * count, (), 0, Offset(0))
            cache.store(topic, VERSION, (), b"")
    other = Topic(TopicName("c"), TopicId(bytes(16)), (partition,), (), 0, Offset(0))
    cache.store(other, VERSION, (), b"")
    assert cache.find(topic, VERSION, ()) is None, "the cache is full"
    assert cache.find(other, VERSION, ()) is not None
