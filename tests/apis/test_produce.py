"""Produce: advertised and rejected, so that clients fail at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from controller.apis.cluster import with_api_versions
from controller.apis.records import PRODUCE_REJECTED, produce_row, reject_produce
from controller.kafka.handling import ApiHandler, Disconnect, RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.clients import PartitionProduceData, ProduceRequest, TopicProduceData
from controller.kafka.messages.message import NodeEndpoint
from controller.kafka.messages.topics import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from controller.kafka.server.server import KafkaServer

REQUEST = ProduceRequest(
    acks=-1,
    topic_data=(
        TopicProduceData(name="t", topic_id=bytes(range(16)), partition_data=(PartitionProduceData(index=3),)),
        TopicProduceData(name="u", partition_data=(PartitionProduceData(index=0), PartitionProduceData(index=1))),
    ),
)


def test_produce_is_rejected_for_every_partition() -> None:
    response = reject_produce(RequestContext(0, 13), REQUEST)
    results = [
        (topic.name, topic.topic_id, partition.index, partition.error_code, partition.error_message)
        for topic in response.responses
        for partition in topic.partition_responses
    ]
    assert results == [
        ("t", bytes(range(16)), 3, 42, PRODUCE_REJECTED),
        ("u", bytes(16), 0, 42, PRODUCE_REJECTED),
        ("u", bytes(16), 1, 42, PRODUCE_REJECTED),
    ]


def test_produce_with_acks_0_disconnects() -> None:
    with pytest.raises(Disconnect, match="stores no records"):
        reject_produce(RequestContext(0, 9), ProduceRequest(acks=0, topic_data=REQUEST.topic_data))


@asynccontextmanager
async def one_topic() -> AsyncIterator[KafkaServer]:
    """A listener of the only broker, which leads the only partition of topic `t`."""

    def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        partition = MetadataResponsePartition(leader_id=1, replica_nodes=(1,), isr_nodes=(1,))
        return MetadataResponse(
            brokers=(NodeEndpoint(node_id=1, host="127.0.0.1", port=server.port),),
            controller_id=1,
            topics=(MetadataResponseTopic(name="t", topic_id=bytes(range(16)), partitions=(partition,)),),
        )

    table = with_api_versions({ApiKey.METADATA: ApiHandler(0, 13, metadata), ApiKey.PRODUCE: produce_row()})
    server = KafkaServer("127.0.0.1", 0, table)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0.1)


def produced(port: int) -> list[Any]:
    """The errors of librdkafka for one record, which it would retry for a minute."""
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "message.timeout.ms": 60_000})
    producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error and error.code()))
    producer.flush(30)
    return errors


async def test_librdkafka_producer_fails_at_once() -> None:
    async with one_topic() as server:
        assert await asyncio.to_thread(produced, server.port) == [42]
