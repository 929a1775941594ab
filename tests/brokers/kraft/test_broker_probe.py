"""What a broker knows and leads, seen over a connection that is opened anew after any trouble."""

from __future__ import annotations

import pytest

from controller.brokers.kraft.readiness import BrokerProbe, ProbeFailed
from controller.kafka.handling import Answer, RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from controller.kafka.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from controller.machine.errors import ErrorCode
from events.catalog import Endpoint
from events.names import TopicName
from tests.kafka.server.listener import serving

CODES = {"known": 0, "unknown": 3, "denied": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}


def _metadata(_: RequestContext, request: MetadataRequest) -> Answer:
    name = (request.topics or ())[0].name or ""
    topic = MetadataResponseTopic(error_code=CODES[name], name=name, partitions=(MetadataResponsePartition(),))
    return MetadataResponse(topics=(topic,))


def _offsets(_: RequestContext, request: ListOffsetsRequest) -> Answer:
    parts = tuple(
        ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=6 * (each.partition_index > 1))
        for each in request.topics[0].partitions
    )
    return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name=request.topics[0].name, partitions=parts),))


async def test_what_a_broker_knows_and_leads() -> None:
    async with serving({ApiKey.METADATA: _metadata, ApiKey.LIST_OFFSETS: _offsets}) as server:
        probe = BrokerProbe(Endpoint("PLAINTEXT", "127.0.0.1", server.port))
        assert await probe.knows("known")
        assert not await probe.knows("unknown")
        assert await probe.leads({TopicName("known"): (0, 1)})
        assert not await probe.leads({TopicName("known"): (1, 2)})
        with pytest.raises(ProbeFailed, match="denies the probe"):
            await probe.knows("denied")
        probe.close()
        assert await probe.knows("known"), "over another connection"
    with pytest.raises(ProbeFailed, match=f"127.0.0.1:{server.port} (closed the connection|cannot be reached)"):
        await probe.knows("known")
    with pytest.raises(ProbeFailed, match=f"127.0.0.1:{server.port} cannot be reached"):
        await probe.knows("known")


@pytest.mark.parametrize("host", ["two..dots", "a" * 64, "null\0"])
async def test_a_broker_under_a_name_that_no_host_has_is_not_reached(host: str) -> None:
    """It chose the name itself: it must not end the controller."""
    with pytest.raises(ProbeFailed, match="cannot be reached"):
        await BrokerProbe(Endpoint("PLAINTEXT", host, 9092)).knows("known")
