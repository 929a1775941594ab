"""Auto-creation by Metadata (KIP-361), and its record in the log."""

from __future__ import annotations

from typing import Any

import pytest

from controller.kafka.messages import ApiKey
from controller.kafka.messages.topics import MetadataRequest, MetadataRequestTopic
from controller.machine.commands.commands import TopicCommand
from events.catalog import CreateRejected, CreateRequested, TopicCreated
from events.codec import decode_event
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
"""The configs with which Kafka 4.3.1 creates its internal topics, as read off its metadata log."""


async def _metadata(served: Rig, *names: str, version: int = 12, times: int = 1) -> None:
    """Metadata of topics, several times at once; what it leads to is decided when this returns."""
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    for _ in range(times):
        await served.call(ApiKey.METADATA, version, MetadataRequest(topics=topics, allow_auto_topic_creation=True))
    await served.controller.decided()


def _events(served: Rig, kind: type) -> list[Any]:
    events = (decode_event(offset, value).event for offset, value in served.log.read())
    return [event for event in events if isinstance(event, kind)]


async def test_internal_topics_are_created_with_kafkas_partitions_factor_and_configs() -> None:
    async with rig() as served:
        await _metadata(served, *BY_KAFKA)
        made = {event.topic: event for event in _events(served, TopicCreated)}
        assert {name: tuple(sorted(event.configs)) for name, event in made.items()} == BY_KAFKA
        assert {(len(event.partitions), event.replication_factor) for event in made.values()} == {(50, 3)}


async def test_internal_topics_are_left_to_the_brokers_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig({"cluster.carries.out": "true"}) as served:
        submitted: list[TopicCommand] = []
        monkeypatch.setattr(served.api, "submit", lambda commands, timeout_ms: submitted.extend(commands))
        await _metadata(served, *BY_KAFKA, "t")
        assert [command.topic for command in submitted] == ["t"]


@pytest.mark.parametrize("version", [1, 4, 9, 12])
async def test_the_version_of_metadata_is_recorded(version: int) -> None:
    async with rig() as served:
        await _metadata(served, "t", version=version)
        assert [(each.api, each.api_version) for each in _events(served, CreateRequested)] == [("Metadata", version)]


async def test_a_repeated_auto_creation_is_not_recorded_as_a_refusal() -> None:
    async with rig() as served:
        await _metadata(served, "t", times=2)
        assert len(_events(served, TopicCreated)) == 1
        assert _events(served, CreateRejected) == []
        assert len(_events(served, CreateRequested)) == 1
