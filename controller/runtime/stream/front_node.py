"""A front's side of the stream: puts asks into the commands topic, and finds their answers in the events topic.

Flow of an ask: its commands are produced, each to the partition of its topic, or, where they concern no topic but who
may do what, to the one that all such commands go to; a worker decides them; the records of the
decisions are read, brought into this front's own state, committed there, and only then answered. So whoever has an
answer finds what it says in every question that follows here.

Constraints:
- a front decides nothing and keeps nothing: its folder is a cache of the events topic;
- any front answers for any topic; what one has put, all of them follow;
- everybody is answered in time: at the deadline of the ask and a little more, or after `answer_timeout_s` where an ask
  has none. REQUEST_TIMED_OUT says that the command lies in Kafka; NOT_CONTROLLER that Kafka did not take it in time;
- without Kafka nothing is put: asks are answered NOT_CONTROLLER at once, and health is not-ready;
- an event that cannot be read or applied ends the process: it would show another state than the one that was decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

import msgspec
import structlog
from confluent_kafka import KafkaError

from controller.machine.commands import AnyCommand, Ask, Asked, ClusterAsk
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.runtime.mutation_quotas import MutationQuotas, Throttle
from controller.runtime.refusals import RefusalRecords
from controller.runtime.replies import PendingAsk, Replies
from controller.runtime.stream.commands import CLUSTER_PARTITION, encode_command, home_of, key_of, partition_of
from controller.runtime.stream.following import Batch, Record
from controller.runtime.stream.front_gate import FrontGate
from controller.runtime.stream.front_members import Members, encode_announcement
from controller.runtime.stream.partition import Accepted, PartitionState
from controller.runtime.stream.producing import Done, NotProduced
from controller.runtime.stream.transport import Topics
from events.names import RequestId, ShardKey, TopicName
from projections.partitioned_query import PartitionedQuery
from projections.partitioned_store import PartitionedStore
from projections.query import Query
from projections.store import TopicStore

GRACE_S = 1.0
"""How long after its deadline an ask is answered by the front itself: the workers answer it before, if any lives."""
FAULTS_KEPT_MAX = 1000

NO_KAFKA = "This front has lost Kafka and takes no requests until it is back."
NOT_TAKEN = "Kafka did not take the command in time: whether it will be decided is not known."
NOT_DECIDED = "No worker decided this in time; it may be decided later."
STOPS = "This front is stopping and takes no more requests."
FAILED = "This front failed; its log has the cause."

_Place = tuple[int, int]
"""A partition of the commands topic, and an offset in it."""


class Putting(Protocol):
    """Where records are put; see `producing.CommandProducer`."""

    def produce(self, topic: str, partition: int, key: bytes, value: bytes, done: Done) -> None: ...


class FollowedLog(msgspec.Struct, frozen=True):
    """All partitions as one log, as far as it is told about."""

    cluster_id: str
    partitions: tuple[PartitionState, ...]

    @property
    def durable_offset(self) -> int:
        """How many events there are."""
        return sum(each.log.durable_offset for each in self.partitions)


class FollowedState(msgspec.Struct, frozen=True):
    """What concerns all partitions' states."""

    partitions: tuple[PartitionState, ...]

    @property
    def waiting(self) -> Sequence[ShardKey]:
        """The topics that were never complete yet."""
        return [key for each in self.partitions for key in each.state.waiting]


class FrontNode:
    """Implements `controller.runtime.port.ControllerPort` over partitions that it follows."""

    def __init__(
        self,
        partitions: Sequence[PartitionState],
        topics: Topics,
        fronts_topic: str,
        members: Members,
        producer: Putting,
        *,
        boot_id: str,
        clock_ms: Callable[[], int],
        session_s: float,
        answer_timeout_s: float,
        quotas: MutationQuotas | None = None,
    ) -> None:
        self.partitions = tuple(partitions)
        self.members = members
        self.store = PartitionedStore([each.store for each in self.partitions], self.partition_of)
        self.log = FollowedLog(topics.cluster_id, self.partitions)
        self.state = FollowedState(self.partitions)
        self.replies = Replies()
        self.refusals = RefusalRecords(self)
        self._gate = FrontGate(self.replies, quotas or MutationQuotas(), self.refusals)
        self.storage_error: str | None = None
        self.failure: BaseException | None = None
        self.failed = asyncio.Event()
        self._topics = topics
        self._fronts_topic = fronts_topic
        self._producer = producer
        self._boot_id = boot_id
        self._clock_ms = clock_ms
        self._session_s = session_s
        self._answer_timeout_s = answer_timeout_s
        self._last_ms = 0
        self._requests = 0
        self._stopping = False
        self._log = structlog.get_logger("topicwright")
        self._unread = {(topics.events, number) for number in range(len(self.partitions))}
        """The partitions whose end was not reached yet."""
        self._untaken: set[tuple[RequestId, TopicName]] = set()
        """Commands that Kafka has not acknowledged yet."""
        self._on_their_way: dict[_Place, tuple[RequestId, TopicName]] = {}
        self._faults: dict[_Place, str] = {}
        """Faults of commands of which it is not known yet whose they were."""

    def partition_of(self, key: ShardKey) -> int:
        """The partition of a shard key."""
        return partition_of(key, len(self.partitions))

    def query(self) -> PartitionedQuery:
        """Questions about all partitions."""
        parts = [Query(each.log, partial(_store_of, each), each.partition) for each in self.partitions]
        return PartitionedQuery(parts, self.store, self.partition_of)

    # --- the port of the handlers

    def now_ms(self) -> int:
        """The wall clock in ms since the epoch; it never goes back."""
        self._last_ms = max(self._last_ms, self._clock_ms())
        return self._last_ms

    def new_request_id(self, origin: str = "") -> RequestId:
        """An id that no other request has."""
        self._requests += 1
        return RequestId(f"{origin}{'-' if origin else ''}{self._boot_id}-{self._requests}")

    def ask(
        self, commands: Sequence[Asked], timeout_ms: int = 0, throttle: Throttle | None = None
    ) -> asyncio.Future[list[Answer]]:
        """Put the commands of one request, one a topic; the future gets their answers in the same order."""
        loop = asyncio.get_running_loop()
        pending = self.replies.expect(commands, loop, throttle)
        refusal = self._refusal()
        if refusal is not None:
            self.replies.fail(pending, *refusal)
            return pending.future
        wait_s = timeout_ms / 1000 + GRACE_S if timeout_ms > 0 else self._answer_timeout_s
        pending.timer = loop.call_later(wait_s, self._time_is_up, pending)
        for command in commands:
            assert isinstance(command, Ask | ClusterAsk), "brokers do not report to fronts"
            self._put_if_passed(command)
        return pending.future

    def observe(self, command: AnyCommand) -> None:
        """Put a command that nobody waits for and that concerns no topic, also while stopping. Dropped while Kafka is
        lost."""
        if self.failure is None and self.storage_error is None:
            with suppress(NotProduced):
                value = encode_command(command)
                self._producer.produce(self._topics.commands, CLUSTER_PARTITION, b"", value, self._unasked_done)

    def _put_if_passed(self, command: Ask | ClusterAsk) -> None:
        home = home_of(command, len(self.partitions))
        if isinstance(command, ClusterAsk):
            self._put(command, home)
            return
        quotas = self.partitions[CLUSTER_PARTITION].state.cluster.quotas
        passed = self._gate.passed(self.partitions[home].state, quotas, command)
        if isinstance(passed, Ask):
            self._put(passed, home)
        else:
            for answer in passed:
                self.replies.resolve(answer)

    def broadcast(self, commands: Sequence[AnyCommand]) -> None:
        """Put commands that concern every topic to every partition, in order. Raises NotProduced."""
        if self._refusal() is not None:
            raise NotProduced(NO_KAFKA)
        for command in commands:
            value = encode_command(command)
            for number in range(len(self.partitions)):
                self._producer.produce(self._topics.commands, number, b"", value, self._unasked_done)

    def _unasked_done(self, offset: int, error: KafkaError | None) -> None:
        if error is not None:
            self._log.warning("command that nobody waits for lost", why=error.str())

    def _refusal(self) -> tuple[ErrorCode, str] | None:
        if self.failure is not None:
            return ErrorCode.UNKNOWN_SERVER_ERROR, FAILED
        if self._stopping:
            return ErrorCode.NOT_CONTROLLER, STOPS
        return None if self.storage_error is None else (ErrorCode.NOT_CONTROLLER, NO_KAFKA)

    def _put(self, command: Ask | ClusterAsk, number: int) -> None:
        request_id, topic = command.request_id, command.topic
        key = key_of(command)  # type: ignore[arg-type]  # every ask is one of the commands

        def done(offset: int, error: KafkaError | None) -> None:
            self._untaken.discard((request_id, topic))
            if error is not None:
                self._answer_error(request_id, topic, *_refused_by_kafka(error))
            else:
                self._taken((number, offset), request_id, topic)

        self._untaken.add((request_id, topic))
        try:
            value = encode_command(command)  # type: ignore[arg-type]
            self._producer.produce(self._topics.commands, number, key.encode("utf-8", "surrogatepass"), value, done)
        except NotProduced as error:
            self._untaken.discard((request_id, topic))
            code = ErrorCode.INVALID_REQUEST if error.too_large else ErrorCode.NOT_CONTROLLER
            self._answer_error(request_id, topic, code, str(error))

    def _taken(self, place: _Place, request_id: RequestId, topic: TopicName) -> None:
        """A command lies in Kafka: remember whose it is, unless it was decided before this was known."""
        fault = self._faults.pop(place, None)
        if fault is not None:
            self._answer_error(request_id, topic, ErrorCode.UNKNOWN_SERVER_ERROR, fault)
        elif self.partitions[place[0]].fold.next_source <= place[1]:
            self._on_their_way[place] = request_id, topic

    def _answer_error(self, request_id: RequestId, topic: TopicName, code: ErrorCode, message: str) -> None:
        self.replies.resolve(Answer(request_id, topic, int(code), message))

    def _time_is_up(self, pending: PendingAsk) -> None:
        for topic in pending.unanswered():
            if (pending.request_id, topic) in self._untaken:
                self._answer_error(pending.request_id, topic, ErrorCode.NOT_CONTROLLER, NOT_TAKEN)
            else:
                self._answer_error(pending.request_id, topic, ErrorCode.REQUEST_TIMED_OUT, NOT_DECIDED)

    # --- following

    @property
    def offsets(self) -> list[int]:
        """Where each partition of the events topic is to be read on."""
        return [each.fold.kafka_offset for each in self.partitions]

    @property
    def caught_up(self) -> bool:
        """Whether this front knows what there was when it started, who else is there, and the settings that decide."""
        return not self._unread and self.members.heard_own and bool(self.store.durable_cluster.release)

    def take(self, batch: Batch) -> None:
        """Bring the state past a batch of records, and answer whoever waited for them."""
        if self.failure is not None:
            return
        try:
            accepted = [one for record in batch.records if (one := self._accept(record)) is not None]
            for number in {number for number, _ in accepted}:
                self.partitions[number].commit()
        except Exception as error:
            self.fail(error)
            return
        self._unread -= batch.ended
        for number, decision in accepted:
            self._answer(number, decision)

    def _accept(self, record: Record) -> tuple[int, Accepted] | None:
        if record.topic == self._fronts_topic:
            self.members.hear(record.value)
            return None
        accepted = self.partitions[record.partition].accept(record.offset, record.value)
        return None if accepted is None else (record.partition, accepted)

    def _answer(self, number: int, accepted: Accepted) -> None:
        for answer in accepted.answers:
            self.replies.resolve(answer)
        if accepted.source_offset is None:
            return
        place = number, accepted.source_offset
        known = self._on_their_way.pop(place, None)
        if not accepted.fault:
            return
        if known is not None:
            self._answer_error(*known, ErrorCode.UNKNOWN_SERVER_ERROR, accepted.fault)
        elif self._untaken:
            self._faults[place] = accepted.fault
            if len(self._faults) > FAULTS_KEPT_MAX:
                self._faults.pop(next(iter(self._faults)))

    def fail(self, error: BaseException) -> None:
        """Following cannot go on: nobody is left waiting, and the process is to be ended."""
        if self.failure is None:
            self.failure = error
            self._log.error("front failed", why=str(error), exc_info=error)
            self.replies.fail_all(ErrorCode.UNKNOWN_SERVER_ERROR, FAILED)
            self.failed.set()

    # --- announcing

    def announce(self, leaving: bool = False) -> None:
        """Say that this front lives, or leaves; and notice whether Kafka is there."""
        self._look_at_kafka()
        told = msgspec.structs.replace(self.members.own, leaving=leaving)
        key = told.front_id.encode()
        try:
            self._producer.produce(self._fronts_topic, 0, key, encode_announcement(told), _nothing_more)
        except NotProduced as error:
            self._log.warning("announcement not sent", why=str(error))

    def _look_at_kafka(self) -> None:
        silent_s = self.members.silent_s()
        if silent_s <= self._session_s:
            if self.storage_error is not None:
                self._log.info("kafka is back")
            self.storage_error = None
        elif self.storage_error is None:
            self.storage_error = "Kafka has not taken and given back what this front writes"
            self._log.warning("kafka is lost", silent_s=round(silent_s, 1))

    # --- the end

    def stop_asking(self) -> None:
        """Take no more asks."""
        self._stopping = True

    def close(self) -> None:
        """Let go of whoever still waits, and of the folders."""
        self.refusals.stop()
        self.replies.abandon_all()
        for each in self.partitions:
            each.close()


def _store_of(partition: PartitionState) -> TopicStore:
    return partition.store


def _refused_by_kafka(error: KafkaError) -> tuple[ErrorCode, str]:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return ErrorCode.INVALID_REQUEST, f"The command is larger than the commands topic takes: {error.str()}"
    return ErrorCode.NOT_CONTROLLER, f"{NOT_TAKEN} ({error.str()})"


def _nothing_more(offset: int, error: KafkaError | None) -> None:
    return None
