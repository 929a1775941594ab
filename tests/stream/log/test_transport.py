"""Clients of Kafka end in order whatever state they are in."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaConnectionError
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from controller.stream.log import transport
from controller.stream.log.transport import close_client
from tests.support.reference_kafka import ReferenceKafka


@pytest.fixture
def topic(kafka44: ReferenceKafka) -> str:
    name = f"transport-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": kafka44.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name


def connected(client: Any) -> list[Any]:
    return [each for each in client._conns.values() if each.connected()]


async def test_a_consumer_whose_fetch_is_in_back_off_is_closed(kafka44: ReferenceKafka, topic: str) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka44.bootstrap, retry_backoff_ms=600_000)
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.seek_to_beginning()
    sent = asyncio.Event()

    async def no_answer(*_: object, **__: object) -> None:
        sent.set()
        raise KafkaConnectionError("the broker is gone")

    consumer._client.send = no_answer
    await asyncio.wait_for(sent.wait(), 60)
    assert connected(consumer._client)
    await close_client(consumer)
    assert not connected(consumer._client)


async def test_hanging_client_is_abandoned(kafka44: ReferenceKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose broker is gone, or whose `stop` fails."""
    monkeypatch.setattr(transport, "_CLOSE_S", 0.01)
    for stop in (asyncio.Event().wait, asyncio.get_running_loop().create_future, failing):
        producer = AIOKafkaProducer(bootstrap_servers=kafka44.bootstrap)
        await producer.start()
        stopped, producer.stop = producer.stop, stop
        await close_client(producer)
        await stopped()


async def failing() -> None:
    raise RuntimeError("odd")
