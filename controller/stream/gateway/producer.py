"""Putting commands into Kafka: librdkafka's idempotent producer, acknowledged by all in-sync replicas.

What happened to each command is reported on the event loop. A command that Kafka did not acknowledge in time may have
arrived all the same: nobody can know before Kafka is back.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from controller.stream.log.transport import RECORD_BYTES_MAX

POLL_S = 0.2
FLUSH_S = 2.0  # at the end, for what Kafka has not acknowledged

Done = Callable[[int, KafkaError | None], None]
"""Called with the offset at which a record lies, or the error that kept it from being acknowledged."""


class NotProduced(Exception):
    """A record was not even tried; the message says why. `too_large` where only a smaller one would be taken."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


class CommandProducer:
    """One producer for as long as the process lives."""

    def __init__(self, properties: Mapping[str, str | int | float | bool], *, within_ms: int) -> None:
        """`within_ms` bounds how long a record is tried."""
        self._producer = Producer(
            {
                **properties,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": within_ms,
                "request.timeout.ms": min(5000, within_ms),
                "message.max.bytes": RECORD_BYTES_MAX,
                "retry.backoff.ms": 50,
                "sticky.partitioning.linger.ms": 0,
            }
        )
        self._reports: deque[tuple[Done, int, KafkaError | None]] = deque()
        self._woken = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="produce", daemon=True)

    def start(self) -> None:
        """Begin to report what happens to records."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def produce(self, topic: str, partition: int, key: bytes, value: bytes, done: Done) -> None:
        """Send a record; `done` is called on the event loop. Raises NotProduced."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._reports.append((done, message.offset() or 0, error))
            self._wake()

        try:
            self._producer.produce(topic, value, key, partition, on_delivery=delivered)
        except BufferError:
            raise NotProduced("too many commands wait for Kafka already") from None
        except KafkaException as error:
            cause = error.args[0]
            too_large = cause.code() == KafkaError.MSG_SIZE_TOO_LARGE
            raise NotProduced(cause.str(), too_large=too_large) from error

    async def stop(self) -> None:
        """Wait a little for what is on its way, then end."""
        await asyncio.to_thread(self._producer.flush, FLUSH_S)
        self._stopped.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._producer.poll(POLL_S)

    def _wake(self) -> None:
        if not self._woken and not self._loop.is_closed():
            self._woken = True
            self._loop.call_soon_threadsafe(self._report)

    def _report(self) -> None:
        self._woken = False
        while self._reports:
            done, offset, error = self._reports.popleft()
            done(offset, error)
