"""Sends a gateway's commands to the workers through Kafka, and answers clients from the events topic.

The gateway produces a request's commands to the commands topic. A command about a topic goes to that topic's
partition, a command about the cluster to the first partition. A worker decides it. The gateway reads the records of the
decision from the events topic, applies them to its own state, commits, and only then answers. So after an answer, the
client sees its effect in every later read from this gateway.

Constraints:
- A gateway decides nothing; its folder is a cache of the events topic.
- Any gateway answers requests for any topic, and all gateways read all decisions.
- Every request is answered in time: shortly after its deadline, or after `answer_timeout_s` without one.
  REQUEST_TIMED_OUT means that the command is in Kafka, NOT_CONTROLLER that Kafka did not acknowledge it in time.
- Without Kafka nothing is sent: requests are answered NOT_CONTROLLER at once, and health is not-ready.
- If a command raises before it is sent, only this command fails (`controller.engine.decider`).
- An event that cannot be read or applied ends the process: otherwise clients would read a wrong state.

Mutation quotas (KIP-599) and counted refusals depend on earlier commands, but a worker decides each command on its own.
So the gateway first computes the decision that it expects. If the command exceeds its user's quota, the gateway adds
the throttle time to it. If a similar command was refused just before, the gateway answers with the refusal and counts
it, without sending the command. The gateway's state may lag, so the decision of the worker may differ and is final.
Each gateway counts separately: with N gateways a user has up to N times its quota. Only workers run create-topic
policies. So commands that a policy refuses use quota, and each such refusal is recorded.

`ClusterStateCopies` copies dynamic broker configs from the first partition, which decides them in one order, to all
others, whose topics use them. A copy is a command with the complete configs; equal configs change nothing. The gateway
that submitted a change copies it before it answers. If that gateway dies, another one copies what has lagged for two
heartbeats.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import structlog
from confluent_kafka import KafkaError
from msgspec.structs import replace

from controller.access.mutation_quotas import MutationQuotas
from controller.access.refusals import RefusalRecords
from controller.controller_api import ControllerStatus, Reply
from controller.engine.decider import SECONDS_PER_COMMIT_MAX, Faults, Limits
from controller.engine.requests import PendingRequest, Replies, Stamps
from controller.machine.commands.access import ApplyRules, ClusterCommand
from controller.machine.commands.commands import (
    AlterResourceConfigs,
    AnyCommand,
    ClientCommand,
    CopyClusterState,
    DryRunResult,
    TopicCommand,
)
from controller.machine.decide import decide
from controller.machine.decision import Answer, Decision
from controller.machine.errors import ErrorCode
from controller.machine.state import State
from controller.policy.chain import ALLOWED, JudgedCommand
from controller.store.partitioned_store import PartitionedStore
from controller.stream.gateway.kafka import CommandProducer, FollowedEvents, NotProduced, Record
from controller.stream.gateway.limits import UndecidedCounts
from controller.stream.gateway.members import Members
from controller.stream.log.codec import CLUSTER_PARTITION, encode_command, key_of, partition_of, partition_of_command
from controller.stream.log.partition import PartitionState
from controller.stream.log.topics import Topics
from events.names import RequestId, TopicName
from projections.queries.query import Queries

Send = Callable[[AnyCommand, Sequence[int]], None]
COPIED_POLL_S = 0.01  # how often a request checks that all partitions have its change


class ClusterStateCopies:
    """Copies broker configs from the first partition to all `partitions`."""

    def __init__(self, partitions: Sequence[PartitionState], stamps: Stamps, send: Send) -> None:
        self._partitions = partitions
        self._stamps = stamps
        self._send = send
        self._lagged: tuple[int, ...] = ()
        """The partitions whose broker configs lagged at the last heartbeat."""

    def heartbeat(self) -> None:
        """Copy to partitions that lag for the second heartbeat in a row. Failures are retried at the next heartbeat."""
        lagging = self._lagging()
        if lagging and lagging == self._lagged:
            with suppress(NotProduced):
                self._copy(lagging)
        self._lagged = lagging

    async def copy_everywhere(self, within_s: float) -> None:
        """Copy to all partitions, and wait until every partition has the configs or the time is up."""
        with suppress(NotProduced, TimeoutError):
            if lagging := self._lagging():
                self._copy(lagging)
            async with asyncio.timeout(within_s):
                while self._lagging():  # noqa: ASYNC110 - a change is rare, and need not be checked after each batch
                    await asyncio.sleep(COPIED_POLL_S)

    def _copy(self, numbers: Sequence[int]) -> None:
        first = self._partitions[CLUSTER_PARTITION].store.durable_cluster
        request_id, at_ms = self._stamps.new_request_id("configs"), self._stamps.now_ms()
        configs = first.configs_of_brokers()
        self._send(CopyClusterState(request_id=request_id, at_ms=at_ms, configs=configs, rules=first.rules), numbers)

    def _lagging(self) -> tuple[int, ...]:
        clusters = [each.store.durable_cluster for each in self._partitions]
        first, *_ = copied = [(one.configs_of_brokers(), one.rules and one.rules.number) for one in clusters]
        return tuple(number for number, each in enumerate(copied) if each != first)


def _expected(state: State, command: AnyCommand) -> Decision:
    """The workers' likely decision if policies and cluster agree; an empty one if deciding raises, which the workers
    record."""
    try:
        decision = decide(state, command)
        if not decision.needs_approval:
            return decision
        agreed = {"verdict": ALLOWED} if isinstance(command, JudgedCommand) else {}
        return decide(state, replace(command, dry_run=DryRunResult(), **agreed))
    except Exception:
        return Decision()


GRACE_S = 1.0
"""Seconds from a request's deadline until the gateway answers it without a worker: a live one answers earlier."""

NOT_TAKEN = "Kafka did not acknowledge the command in time; it may still be decided."
NO_KAFKA = "This gateway has no connection to Kafka and accepts no requests until it has one again."
NOT_DECIDED = "No worker decided this in time; it may be decided later."
STOPS = "This gateway is stopping and accepts no more requests."
FAILED = "This gateway failed; its log has the cause."


class GatewayNode:
    """The `controller.controller_api.ControllerPort` of a gateway, through which its API handlers submit commands."""

    def __init__(
        self,
        partitions: Sequence[PartitionState],
        topics: Topics,
        members: Members,
        producer: CommandProducer,
        *,
        boot_id: str,
        clock_ms: Callable[[], int],
        answer_timeout_s: float,
        ends: Sequence[int],
        quotas: MutationQuotas | None = None,
        command_failed: Callable[[str], None] = lambda _: None,
        committed: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`ends` are the partitions' end offsets at the start. `command_failed` counts commands that raised before
        they were sent; `committed` is called with each partition that was read further."""
        self.partitions = tuple(partitions)
        self._partition_of = partial(partition_of, partitions=len(self.partitions))
        self.store = PartitionedStore([each.store for each in self.partitions], self._partition_of)
        self.cluster_id = topics.cluster_id
        self.replies = Replies()
        self.failure: BaseException | None = None
        self.failed = asyncio.Event()
        stamps = Stamps(boot_id, clock_ms)
        self.now_ms, self.new_request_id = stamps.now_ms, stamps.new_request_id
        self.refusals = RefusalRecords(stamps, self.submit_internal)
        self._faults = Faults(structlog.get_logger("topicwright"), command_failed, self.refusals)
        self._committed = committed
        self._limits = Limits(self.replies, quotas or MutationQuotas(), self.refusals)
        self._members = members
        self._producer, self._topic = producer, topics.commands
        self._unacknowledged: set[tuple[RequestId, TopicName]] = set()
        """The commands that Kafka has not acknowledged yet."""
        self._copies = ClusterStateCopies(self.partitions, stamps, self._produce_unanswered)
        self._undecided = UndecidedCounts(self.partitions)
        self._answer_timeout_s = answer_timeout_s
        self._stopping = False
        self._unread = {(topics.events, number): end for number, end in enumerate(ends)}
        """The end offset, as of the start, of each partition that was not yet read up to it."""

    def query(self) -> Queries:
        return Queries([each.query() for each in self.partitions], self._partition_of)

    # --- the port that the API handlers use

    @property
    def storage_error(self) -> str | None:
        """Why no command can be recorded; None if commands can be recorded."""
        return self._members.error

    def status(self) -> ControllerStatus:
        events = sum(each.log.durable_offset for each in self.partitions)
        waiting = sum(len(each.state.waiting) for each in self.partitions)
        return ControllerStatus(events, waiting, len(self.replies), self.storage_error, self.failure)

    def submit(self, commands: Sequence[ClientCommand], timeout_ms: int = 0) -> asyncio.Future[Reply]:
        """Send the commands of one request, one a topic. The future gets their answers in the same order."""
        pending = self.replies.expect(commands)
        refusal = self._refusal()
        if refusal is not None:
            self.replies.fail(pending, *refusal)
            return pending.future
        wait_s = timeout_ms / 1000 + GRACE_S if timeout_ms > 0 else self._answer_timeout_s
        pending.when_late(wait_s, lambda: self._time_is_up(pending))
        self._send_slice(pending, commands)
        if any(isinstance(command, AlterResourceConfigs | ApplyRules) for command in commands):
            return asyncio.ensure_future(self._in_all_partitions(pending.future))
        return pending.future

    def _send_slice(self, pending: PendingRequest, commands: Sequence[ClientCommand]) -> None:
        """Send commands for a bounded time, then let the event loop run before the others. Nothing more is sent once
        the request is answered, because its time is up."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + SECONDS_PER_COMMIT_MAX
        for place, command in enumerate(commands):
            if pending.future.done():
                return
            if place and loop.time() >= end_s:
                loop.call_soon(self._send_slice, pending, commands[place:])
                return
            assert isinstance(command, TopicCommand | ClusterCommand), "brokers do not report to gateways"
            try:
                self._send(command)
            except Exception as error:
                self.replies.resolve(self._faults.record(command, error))

    async def _in_all_partitions(self, decided: asyncio.Future[Reply]) -> Reply:
        """The reply to a change of broker configs, returned once every partition has the change."""
        reply = await decided
        await self._copies.copy_everywhere(self._answer_timeout_s)
        return reply

    def heartbeat(self) -> None:
        """Copy cluster state that other gateways have not copied. Must be called regularly."""
        if self._refusal() is None and self.caught_up:
            self._copies.heartbeat()

    def submit_internal(self, command: AnyCommand) -> None:
        """Send an unanswered command that concerns no topic, also while stopping. Dropped while Kafka is lost."""
        if self.failure is None and self.storage_error is None:
            with suppress(NotProduced):
                self._produce_unanswered(command, (CLUSTER_PARTITION,))

    def _send(self, command: TopicCommand | ClusterCommand) -> None:
        home = partition_of_command(command, len(self.partitions))
        if isinstance(command, ClusterCommand):
            self._produce(command, home)
            return
        quotas, state = self.partitions[CLUSTER_PARTITION].state.cluster.quotas, self.partitions[home].state
        command = self._undecided.with_counts(command, home)
        to_send, expected, is_counted = self._limits.decide(state, quotas, command, _expected)
        assert isinstance(to_send, TopicCommand), "it is the same command, perhaps with a throttle time"
        if not is_counted:
            self._produce(self._undecided.sending(to_send, expected, home), home)
        else:
            for answer in expected.answers:
                self.replies.resolve(answer)

    def _produce(self, command: TopicCommand | ClusterCommand, number: int) -> None:
        owner = command.request_id, command.topic

        def done(offset: int, error: KafkaError | None) -> None:
            self._unacknowledged.discard(owner)
            if error is None:
                return
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                why = f"The command is larger than the commands topic accepts: {error.str()}"
                self._answer_error(*owner, ErrorCode.INVALID_REQUEST, why)
            else:
                self._answer_error(*owner, ErrorCode.NOT_CONTROLLER, f"{NOT_TAKEN} ({error.str()})")

        key, value = key_of(command).encode("utf-8", "surrogatepass"), encode_command(command)
        self._unacknowledged.add(owner)
        try:
            self._producer.produce(self._topic, number, key, value, done)
        except NotProduced as error:
            self._unacknowledged.discard(owner)
            code = ErrorCode.INVALID_REQUEST if error.too_large else ErrorCode.NOT_CONTROLLER
            self._answer_error(*owner, code, str(error))

    def _produce_unanswered(self, command: AnyCommand, numbers: Sequence[int]) -> None:
        """Send a command without a waiting client to partitions. Raises NotProduced."""
        value = encode_command(command)
        for number in numbers:
            self._producer.produce(self._topic, number, b"", value, _log_loss)

    def _refusal(self) -> tuple[ErrorCode, str] | None:
        if self.failure is not None:
            return ErrorCode.UNKNOWN_SERVER_ERROR, FAILED
        if self._stopping:
            return ErrorCode.NOT_CONTROLLER, STOPS
        return None if self.storage_error is None else (ErrorCode.NOT_CONTROLLER, NO_KAFKA)

    def _answer_error(self, request_id: RequestId, topic: TopicName, code: ErrorCode, message: str) -> None:
        self._undecided.decided(request_id, topic)
        self.replies.resolve(Answer(request_id, topic, int(code), message))

    def _time_is_up(self, pending: PendingRequest) -> None:
        for topic in pending.unanswered():
            if (pending.request_id, topic) in self._unacknowledged:
                self._answer_error(pending.request_id, topic, ErrorCode.NOT_CONTROLLER, NOT_TAKEN)
            else:
                self._answer_error(pending.request_id, topic, ErrorCode.REQUEST_TIMED_OUT, NOT_DECIDED)

    # --- following

    @property
    def offsets(self) -> list[int]:
        """The next offset to read in each partition of the events topic."""
        return [each.reader.kafka_offset for each in self.partitions]

    @property
    def caught_up(self) -> bool:
        """True once this gateway has read all earlier records, knows the other gateways, and has the settings."""
        return not self._unread and self._members.has_own_heartbeat and bool(self.store.durable_cluster.release)

    def take(self, batch: FollowedEvents) -> None:
        """Apply events from Kafka: commit them to the copies, and answer the requests that they decide."""
        if self.failure is not None:
            return
        try:
            accepted = [one for record in batch.records if (one := self._accept(record)) is not None]
            for number in {number for number, _ in accepted}:
                self.partitions[number].commit()
                self._committed(number)
        except Exception as error:
            self.fail(error)
            return
        # librdkafka reports an end only when a fetch returns nothing, which may never happen while others write.
        for place, end in list(self._unread.items()):
            if place in batch.ended or self.partitions[place[1]].reader.kafka_offset >= end:
                del self._unread[place]
        for _, answers in accepted:
            for answer in answers:
                self._undecided.decided(answer.request_id, answer.topic_name)
                self.replies.resolve(answer)

    def _accept(self, record: Record) -> tuple[int, tuple[Answer, ...]] | None:
        if record.topic == self._members.topic:
            self._members.on_heartbeat(record.value)
            return None
        answers = self.partitions[record.partition].accept(record.offset, record.value)
        return None if answers is None else (record.partition, answers)

    def fail(self, error: BaseException) -> None:
        """Following failed: answer all waiting requests; the process must exit."""
        if self.failure is None:
            self.failure = error
            structlog.get_logger("topicwright").error("gateway failed", why=str(error), exc_info=error)
            self.replies.fail_all(ErrorCode.UNKNOWN_SERVER_ERROR, FAILED)
            self.failed.set()

    # --- the end

    def stop_accepting(self) -> None:
        self._stopping = True

    def close(self) -> None:
        """Answer all waiting requests, and close the folders."""
        self.refusals.stop()
        self.replies.abandon_all()
        for each in self.partitions:
            each.close()


def _log_loss(offset: int, error: KafkaError | None) -> None:
    if error is not None:
        structlog.get_logger("topicwright").warning("Kafka has not acknowledged an internal command", why=error.str())
