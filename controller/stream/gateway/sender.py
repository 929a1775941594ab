"""Commands on their way into Kafka: whose each of them is, and what became of it before a worker decided it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog
from confluent_kafka import KafkaError

from controller.machine.commands.access import ClusterCommand
from controller.machine.commands.commands import AnyCommand, TopicCommand
from controller.machine.errors import ErrorCode
from controller.stream.gateway.producer import Done, NotProduced
from controller.stream.log.commands_topic import encode_command, key_of
from events.names import RequestId, TopicName

FAULTS_KEPT_MAX = 1000
"""Faults of commands that are not acknowledged yet; a worker decides a command at most as long before."""

NOT_TAKEN = "Kafka did not take the command in time: whether it will be decided is not known."

_Place = tuple[int, int]
"""A partition of the commands topic, and an offset in it."""
_Owner = tuple[RequestId, TopicName]


class Producing(Protocol):
    """Where records are put; see `producer.CommandProducer`."""

    def produce(self, topic: str, partition: int, key: bytes, value: bytes, done: Done) -> None: ...


class CommandSender:
    """Sends commands to the partitions of `topic`.

    `answer_error` answers a command that comes to nothing; `next_source` gives, by partition, which command comes next
    of those whose decisions were read.
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
        self._untaken: set[_Owner] = set()
        """Commands that Kafka has not acknowledged yet."""
        self._on_their_way: dict[_Place, _Owner] = {}
        self._faults: dict[_Place, str] = {}
        """Faults of commands of which it is not known yet whose they were."""

    def send(self, command: TopicCommand | ClusterCommand, number: int) -> None:
        """Send a command that somebody waits for to a partition."""
        owner = command.request_id, command.topic

        def done(offset: int, error: KafkaError | None) -> None:
            self._untaken.discard(owner)
            if error is None:
                self._taken((number, offset), owner)
            elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                why = f"The command is larger than the commands topic takes: {error.str()}"
                self._answer_error(*owner, ErrorCode.INVALID_REQUEST, why)
            else:
                self._answer_error(*owner, ErrorCode.NOT_CONTROLLER, f"{NOT_TAKEN} ({error.str()})")

        key = key_of(command).encode("utf-8", "surrogatepass")  # type: ignore[arg-type]
        value = encode_command(command)  # type: ignore[arg-type]
        self._untaken.add(owner)
        try:
            self._producer.produce(self._topic, number, key, value, done)
        except NotProduced as error:
            self._untaken.discard(owner)
            code = ErrorCode.INVALID_REQUEST if error.too_large else ErrorCode.NOT_CONTROLLER
            self._answer_error(*owner, code, str(error))

    def send_unanswered(self, command: AnyCommand, numbers: Sequence[int]) -> None:
        """Send a command that nobody waits for to some partitions. Raises NotProduced."""
        value = encode_command(command)
        for number in numbers:
            self._producer.produce(self._topic, number, b"", value, _note_loss)

    def is_untaken(self, request_id: RequestId, topic: TopicName) -> bool:
        """Whether Kafka has not acknowledged a command yet."""
        return (request_id, topic) in self._untaken

    def decided(self, place: _Place, fault: str) -> None:
        """The decision on the command at a place was read; with a `fault` it was passed over."""
        owner = self._on_their_way.pop(place, None)
        if fault and owner is not None:
            self._answer_error(*owner, ErrorCode.UNKNOWN_SERVER_ERROR, fault)
        elif fault and self._untaken:
            self._faults[place] = fault
            if len(self._faults) > FAULTS_KEPT_MAX:
                self._faults.pop(next(iter(self._faults)))

    def _taken(self, place: _Place, owner: _Owner) -> None:
        """A command lies in Kafka: remember whose it is, unless it was decided before this was known."""
        fault = self._faults.pop(place, None)
        if fault is not None:
            self._answer_error(*owner, ErrorCode.UNKNOWN_SERVER_ERROR, fault)
        elif self._next_source(place[0]) <= place[1]:
            self._on_their_way[place] = owner


def _note_loss(offset: int, error: KafkaError | None) -> None:
    if error is not None:
        structlog.get_logger("topicwright").warning("command that nobody waits for lost", why=error.str())
