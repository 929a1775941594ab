"""Sending commands to Kafka: librdkafka's idempotent producer, and the fate of each command until a worker decides it.

All in-sync replicas acknowledge a command. Deliveries are reported on the event loop. A command that Kafka did not
acknowledge in time may still have arrived: nobody can know before Kafka is back.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from controller.machine.commands.access import ClusterCommand
from controller.machine.commands.commands import AnyCommand, TopicCommand
from controller.machine.errors import ErrorCode
from controller.stream.log.codec import encode_command, key_of
from controller.stream.log.transport import RECORD_BYTES_MAX
from events.names import RequestId, TopicName

POLL_S = 0.2
FLUSH_S = 2.0  # at the end, for what Kafka has not acknowledged

Done = Callable[[int, KafkaError | None], None]
"""Called with the record's offset, or the error that prevented an acknowledgement."""


class NotProduced(Exception):
    """A record was not sent. The message says why; `too_large` if only a smaller one would be accepted."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


class CommandProducer:
    """The producer of a process."""

    def __init__(self, properties: Mapping[str, str | int | float | bool], *, within_ms: int) -> None:
        """`within_ms` limits the delivery of a record."""
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
        """Start to report deliveries."""
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
            raise NotProduced("too many commands are waiting for Kafka") from None
        except KafkaException as error:
            cause = error.args[0]
            too_large = cause.code() == KafkaError.MSG_SIZE_TOO_LARGE
            raise NotProduced(cause.str(), too_large=too_large) from error

    async def stop(self) -> None:
        """Flush for a short time, then stop."""
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


STORED_FAULTS_MAX = 1000
"""Limit of stored faults of unacknowledged commands; a worker may decide a command before its acknowledgement
arrives."""

NOT_TAKEN = "Kafka did not acknowledge the command in time; it may still be decided."

_Place = tuple[int, int]
"""A partition of the commands topic, and an offset."""
_Owner = tuple[RequestId, TopicName]


class Producing(Protocol):
    """The port that `CommandProducer` implements."""

    def produce(self, topic: str, partition: int, key: bytes, value: bytes, done: Done) -> None: ...


class CommandSender:
    """Sends commands to the partitions of `topic`.

    `answer_error` answers a failed command. `next_source` returns the next command of a partition after those whose
    decisions were read.
    """

    def __init__(
        self,
        producer: Producing,
        topic: str,
        answer_error: Callable[[RequestId, TopicName, ErrorCode, str], None],
        next_source: Callable[[int], int],
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._answer_error = answer_error
        self._next_source = next_source
        self._unacknowledged: set[_Owner] = set()
        """Commands that Kafka has not acknowledged yet."""
        self._in_flight: dict[_Place, _Owner] = {}
        self._faults: dict[_Place, str] = {}
        """Faults of commands that are not acknowledged yet, so their request is unknown."""

    def send(self, command: TopicCommand | ClusterCommand, number: int) -> None:
        """Send a client's command to a partition."""
        owner = command.request_id, command.topic

        def done(offset: int, error: KafkaError | None) -> None:
            self._unacknowledged.discard(owner)
            if error is None:
                self._acknowledged((number, offset), owner)
            elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                why = f"The command is larger than the commands topic accepts: {error.str()}"
                self._answer_error(*owner, ErrorCode.INVALID_REQUEST, why)
            else:
                self._answer_error(*owner, ErrorCode.NOT_CONTROLLER, f"{NOT_TAKEN} ({error.str()})")

        key = key_of(command).encode("utf-8", "surrogatepass")  # type: ignore[arg-type]
        value = encode_command(command)  # type: ignore[arg-type]
        self._unacknowledged.add(owner)
        try:
            self._producer.produce(self._topic, number, key, value, done)
        except NotProduced as error:
            self._unacknowledged.discard(owner)
            code = ErrorCode.INVALID_REQUEST if error.too_large else ErrorCode.NOT_CONTROLLER
            self._answer_error(*owner, code, str(error))

    def send_unanswered(self, command: AnyCommand, numbers: Sequence[int]) -> None:
        """Send a command without a waiting client to partitions. Raises NotProduced."""
        value = encode_command(command)
        for number in numbers:
            self._producer.produce(self._topic, number, b"", value, _log_loss)

    def is_unacknowledged(self, request_id: RequestId, topic: TopicName) -> bool:
        """True if Kafka has not acknowledged a command yet."""
        return (request_id, topic) in self._unacknowledged

    def decided(self, place: _Place, fault: str) -> None:
        """Process a decision that was read; a `fault` says why the command was skipped."""
        owner = self._in_flight.pop(place, None)
        if fault and owner is not None:
            self._answer_error(*owner, ErrorCode.UNKNOWN_SERVER_ERROR, fault)
        elif fault and self._unacknowledged:
            self._faults[place] = fault
            if len(self._faults) > STORED_FAULTS_MAX:
                self._faults.pop(next(iter(self._faults)))

    def _acknowledged(self, place: _Place, owner: _Owner) -> None:
        """Remember the owner of an acknowledged command, unless it is decided already."""
        fault = self._faults.pop(place, None)
        if fault is not None:
            self._answer_error(*owner, ErrorCode.UNKNOWN_SERVER_ERROR, fault)
        elif self._next_source(place[0]) <= place[1]:
            self._in_flight[place] = owner


def _log_loss(offset: int, error: KafkaError | None) -> None:
    if error is not None:
        structlog.get_logger("topicwright").warning("unanswered command lost", why=error.str())
