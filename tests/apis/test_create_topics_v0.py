"""CreateTopics version 0 cannot say what is wrong with a request: it is logged and the client disconnected (KIP-4)."""

from __future__ import annotations

import pytest

from controller.kafka.handling import Disconnect
from controller.kafka.messages import ApiKey
from controller.kafka.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from events.catalog import CreateRejected
from events.codec import decode_event
from tests.apis.rig import Rig, rig

PLAIN = CreatableTopic(name="plain", num_partitions=1, replication_factor=1)
ASSIGNED_TWICE = CreatableTopic(
    name="both",
    num_partitions=1,
    replication_factor=1,
    assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(1,)),),
)


def rejected(a: Rig) -> list[tuple[str, str]]:
    events = (decode_event(*pair).event for pair in a.log.read())
    return [(event.topic, event.rule) for event in events if isinstance(event, CreateRejected)]


@pytest.mark.parametrize(
    ("topics", "logged"),
    [
        ((PLAIN, PLAIN), [("plain", "validation:duplicate")]),
        ((ASSIGNED_TWICE,), [("both", "validation:counts-and-assignment")]),
        ((PLAIN, ASSIGNED_TWICE), [("both", "validation:counts-and-assignment")]),
    ],
)
async def test_version_0_disconnects_after_an_invalid_request(
    topics: tuple[CreatableTopic, ...], logged: list[tuple[str, str]]
) -> None:
    async with rig() as a:
        with pytest.raises(Disconnect, match="InvalidRequest: topic "):
            await a.call(ApiKey.CREATE_TOPICS, 0, CreateTopicsRequest(topics=topics, timeout_ms=1000))
        assert rejected(a) == logged
        assert a.api.store.durable_named("plain") is None, "nothing of such a request is created"


async def test_later_versions_reject_only_the_invalid_topic() -> None:
    async with rig() as a:
        request = CreateTopicsRequest(topics=(PLAIN, ASSIGNED_TWICE), timeout_ms=1000)
        answer = await a.call(ApiKey.CREATE_TOPICS, 1, request)
        assert {topic.name: topic.error_code for topic in answer.topics} == {"plain": 0, "both": 42}
