"""The Kafka client of a worker's engine: appends to the events topic, reads it, and submits commands.

An append returns the offset of its records, so a worker detects another writer's records. The producer is
idempotent and waits for all in-sync replicas. An uncertain outcome is an error, after which the engine reads the topic.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import ConsumerStoppedError, KafkaError, KafkaTimeoutError

from controller.kafka.connections import Security
from controller.stream.log.partition import RECORD_BYTES_MAX
from controller.stream.log.topics import KafkaUnavailable, Topics

NO_SECURITY = Security()
BATCH_BYTES_MAX = 1 << 19  # of the producer: a portion of events in one request
REQUEST_TIMEOUT_MS = 10_000
READ_TIMEOUT_S = 30.0
"""Kafka counts as unreadable after this time without an existing record."""
_RECORDS_PER_READ = 5000
_CLOSE_S = 3.0  # aiokafka waits for brokers that are gone
_ERRORS = (KafkaError, ConsumerStoppedError)
"""ConsumerStoppedError is raised to a reader whose client is closed."""

Values = list[tuple[int, bytes]]


def aiokafka_security(security: Security) -> dict[str, Any]:
    """aiokafka's arguments for credentials. Raises BadCredentials."""
    protocol, given = "SSL" if security.tls else "PLAINTEXT", security.properties
    arguments: dict[str, Any] = {"security_protocol": protocol, "ssl_context": security.context()}
    if security.mechanism:
        arguments |= {"security_protocol": f"SASL_{protocol}", "sasl_mechanism": security.mechanism}
        if security.token is not None:
            return arguments | {"sasl_oauth_token_provider": TokenProvider(security.token)}
        arguments |= {"sasl_plain_username": given["sasl.username"], "sasl_plain_password": given["sasl.password"]}
    return arguments


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, token: Callable[[], Awaitable[str]]) -> None:
        self._token = token

    async def token(self) -> str:
        return await self._token()


async def close_client(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Stop an aiokafka client, which takes some seconds without Kafka. Raises nothing.

    `stop` alone waits for brokers that are gone. During a fetch back-off it raises CancelledError, as if its caller was
    cancelled, and leaves its connections open.
    """
    connections = client.client if isinstance(client, AIOKafkaProducer) else client._client
    for close in (client.stop, connections.close):
        closing = asyncio.ensure_future(close())
        await asyncio.wait((closing,), timeout=_CLOSE_S)
        if not closing.done():
            closing.cancel()
        elif not closing.cancelled() and (error := closing.exception()) is not None:
            structlog.get_logger("topicwright").debug("a Kafka client did not close", why=_text(error))


@contextmanager
def _kafka_errors() -> Iterator[None]:
    """Raise aiokafka's errors as KafkaUnavailable."""
    try:
        yield
    except _ERRORS as error:
        raise KafkaUnavailable(_text(error)) from error


class Transport:
    """The engine's connection to Kafka. After its first error the engine creates a new one. All methods raise
    KafkaUnavailable."""

    def __init__(self, bootstrap: str, topics: Topics, security: Security) -> None:
        self._bootstrap = bootstrap
        self._topics = topics
        self._security = security
        self._clients: dict[Any, Any] = {}
        """The producer and the reader by their type, once they are opened."""
        self._opening = asyncio.Lock()
        self._reading = asyncio.Lock()

    async def append(self, partition: int, values: Sequence[bytes]) -> int:
        """Append records to a partition of the events topic, in order: batch after batch, each after the previous
        acknowledgement, so that none overtakes an expired one. Returns the first record's offset after all in-sync
        replicas have acknowledged all records; -1 if their offsets are not contiguous."""
        first = expected = -1
        with _kafka_errors():
            producer = await self._opened_producer()
            begun = 0
            while begun < len(values):
                batch, count = producer.create_batch(), 0
                for value in values[begun:]:
                    if batch.append(key=None, value=value, timestamp=None) is None:
                        break
                    count += 1
                placed = await (await producer.send_batch(batch, self._topics.events, partition=partition))
                if begun == 0:
                    first = expected = int(placed.offset)
                if placed.offset != expected:
                    first = -1
                begun, expected = begun + count, expected + count
        return first

    async def read(self, partition: int, start: int, end: int) -> AsyncGenerator[Values, None]:
        """The records of the events topic in [start, end), in batches."""
        async with self._reading:
            with _kafka_errors():
                reader = await self._opened_reader()
                there = TopicPartition(self._topics.events, partition)
                reader.assign([there])
                reader.seek(there, start)
                async for portion in _portions(reader, there, start, end):
                    yield portion

    async def events_range(self, partition: int) -> tuple[int, int]:
        """The offsets of the first and the next record of the events partition."""
        return await self._range(self._topics.events, partition)

    async def commands_range(self, partition: int) -> tuple[int, int]:
        return await self._range(self._topics.commands, partition)

    async def put(self, partition: int, key: bytes, value: bytes) -> asyncio.Future[int]:
        """Append a command; the future gets its offset."""
        with _kafka_errors():
            producer = await self._opened_producer()
            sent = await producer.send(self._topics.commands, value, key or None, partition=partition)
        return asyncio.ensure_future(_offset_of(sent))

    async def close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await close_client(client)

    async def _range(self, topic: str, partition: int) -> tuple[int, int]:
        there = TopicPartition(topic, partition)
        with _kafka_errors():
            reader = await self._opened_reader()
            begin, end = await asyncio.gather(reader.beginning_offsets([there]), reader.end_offsets([there]))
        return begin[there], end[there]

    async def _opened_producer(self) -> AIOKafkaProducer:
        return await self._opened(
            AIOKafkaProducer,
            acks="all",
            enable_idempotence=True,
            max_batch_size=BATCH_BYTES_MAX,
            max_request_size=RECORD_BYTES_MAX,
        )

    async def _opened_reader(self) -> AIOKafkaConsumer:
        return await self._opened(
            AIOKafkaConsumer,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            fetch_max_wait_ms=50,
        )

    async def _opened(self, kind: Any, **options: Any) -> Any:
        async with self._opening:
            if kind not in self._clients:
                security = aiokafka_security(self._security)
                client = kind(
                    bootstrap_servers=self._bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS, **security, **options
                )
                await client.start()
                self._clients[kind] = client
            return self._clients[kind]


async def _portions(reader: AIOKafkaConsumer, there: TopicPartition, start: int, end: int) -> AsyncIterator[Values]:
    clock = asyncio.get_running_loop().time
    at, heard = start, clock()
    while at < end:
        fetched = await reader.getmany(there, timeout_ms=500, max_records=_RECORDS_PER_READ)
        portion = [(record.offset, record.value) for record in fetched.get(there, ()) if record.offset < end]
        if portion:
            yield portion
        position = await reader.position(there)  # also past offsets that hold no record
        if position > at:
            at, heard = position, clock()
        elif clock() - heard > READ_TIMEOUT_S:
            raise KafkaTimeoutError(
                f"{there.topic} {there.partition}: no record {at} within {READ_TIMEOUT_S:g} s; a transaction that is "
                "open holds back what comes after it"
            )


async def _offset_of(sent: asyncio.Future[Any]) -> int:
    with _kafka_errors():
        return int((await sent).offset)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
