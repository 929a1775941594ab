"""A gateway's side of the stream: sends commands to the workers, and finds their answers in the events topic.

Flow of a request: its commands are produced into the commands topic, each to the partition of its topic, or, where they
concern no topic but who may do what, to the one that all such commands go to; a worker decides them; the records of the
decisions are read, brought into this gateway's own state, committed there, and only then answered. So whoever has an
answer finds what it says in every question that follows here.

Constraints:
- a gateway decides nothing and keeps nothing: its folder is a cache of the events topic;
- any gateway answers for any topic; what one has sent, all of them follow;
- everybody is answered in time: at the deadline of the request and a little more, or after `answer_timeout_s` where a
  request has none. REQUEST_TIMED_OUT says that the command lies in Kafka; NOT_CONTROLLER that Kafka did not take it in
  time;
- without Kafka nothing is sent: requests are answered NOT_CONTROLLER at once, and health is not-ready;
- a command on which something raises before it is sent fails alone (`controller.engine.faults`);
- an event that cannot be read or applied ends the process: it would show another state than the one that was decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from controller.access.mutation_quotas import MutationQuotas
from controller.access.refusals import RefusalRecords
from controller.controller_api import Reply, Standing
from controller.engine.faults import Faults
from controller.engine.replies import PendingRequest, Replies
from controller.engine.stamps import Stamps
from controller.machine.commands.access import ClusterCommand
from controller.machine.commands.commands import AlterResourceConfigs, AnyCommand, ClientCommand, TopicCommand
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.stream.gateway.broker_configs import BrokerConfigCopies
from controller.stream.gateway.follower import FollowedEvents, Record
from controller.stream.gateway.gate import GatewayGate
from controller.stream.gateway.presence import Presence
from controller.stream.gateway.producer import NotProduced
from controller.stream.gateway.sender import NOT_TAKEN, CommandSender, Producing
from controller.stream.log.commands_topic import CLUSTER_PARTITION, home_of
from controller.stream.log.partition import Accepted, PartitionState
from controller.stream.log.transport import Topics
from events.logs.kafka_partitions import partition_of
from events.names import RequestId, ShardKey, TopicName
from projections.queries.query import Query, Questions
from projections.store.partitioned_store import PartitionedStore

GRACE_S = 1.0
"""How long after its deadline a request is answered by the gateway itself: a worker answers it before, if any lives."""

NO_KAFKA = "This gateway has lost Kafka and takes no requests until it is back."
NOT_DECIDED = "No worker decided this in time; it may be decided later."
STOPS = "This gateway is stopping and takes no more requests."
FAILED = "This gateway failed; its log has the cause."


class GatewayNode:
    """Implements `controller.controller_api.ControllerPort` over partitions that it follows."""

    def __init__(
        self,
        partitions: Sequence[PartitionState],
        topics: Topics,
        presence: Presence,
        producer: Producing,
        *,
        boot_id: str,
        clock_ms: Callable[[], int],
        answer_timeout_s: float,
        quotas: MutationQuotas | None = None,
        command_failed: Callable[[str], None] = lambda _: None,
        committed: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`command_failed` counts the commands that could not be sent because something raised on them; `committed` is
        called with a partition that was brought further."""
        self.partitions = tuple(partitions)
        self.store = PartitionedStore([each.store for each in self.partitions], self.partition_of)
        self.cluster_id = topics.cluster_id
        self.replies = Replies()
        self.failure: BaseException | None = None
        self.failed = asyncio.Event()
        stamps = Stamps(boot_id, clock_ms)
        self.now_ms, self.new_request_id = stamps.now_ms, stamps.new_request_id
        self.refusals = RefusalRecords(stamps, self.submit_internal)
        self._faults = Faults(structlog.get_logger("topicwright"), command_failed, self.refusals)
        self._committed = committed
        self._gate = GatewayGate(self.replies, quotas or MutationQuotas(), self.refusals)
        self._presence = presence
        self._sender = CommandSender(
            producer, topics.commands, self._answer_error, lambda number: self.partitions[number].fold.next_source
        )
        self._copies = BrokerConfigCopies(self.partitions, stamps, self._sender.send_unanswered)
        self._answer_timeout_s = answer_timeout_s
        self._stopping = False
        self._unread = {(topics.events, number) for number in range(len(self.partitions))}
        """The partitions whose end was not reached yet."""

    def partition_of(self, key: ShardKey) -> int:
        """The partition of a shard key."""
        return partition_of(key, len(self.partitions))

    def query(self) -> Questions:
        """Questions about all partitions."""
        return Questions(list(map(_query, self.partitions)), self.partition_of)

    # --- the port of the handlers

    @property
    def storage_error(self) -> str | None:
        """Why nothing can be recorded now; None when it can."""
        return self._presence.trouble

    def standing(self) -> Standing:
        """How this gateway stands: what all its partitions hold, and what it waits for."""
        events = sum(each.log.durable_offset for each in self.partitions)
        waiting = sum(len(each.state.waiting) for each in self.partitions)
        return Standing(events, waiting, len(self.replies), self.storage_error, self.failure)

    def submit(self, commands: Sequence[ClientCommand], timeout_ms: int = 0) -> asyncio.Future[Reply]:
        """Send the commands of one request, one a topic; the future gets their answers in the same order."""
        pending = self.replies.expect(commands)
        refusal = self._refusal()
        if refusal is not None:
            self.replies.fail(pending, *refusal)
            return pending.future
        wait_s = timeout_ms / 1000 + GRACE_S if timeout_ms > 0 else self._answer_timeout_s
        pending.when_late(wait_s, lambda: self._time_is_up(pending))
        for command in commands:
            assert isinstance(command, TopicCommand | ClusterCommand), "brokers do not report to gateways"
            try:
                self._send_if_passed(command)
            except Exception as error:
                self.replies.resolve(self._faults.note(command, error))  # type: ignore[arg-type]
        if any(isinstance(command, AlterResourceConfigs) for command in commands):
            return asyncio.ensure_future(self._in_all_partitions(pending.future))
        return pending.future

    async def _in_all_partitions(self, decided: asyncio.Future[Reply]) -> Reply:
        """The reply to a change of brokers' configs, as soon as every partition decides by it."""
        reply = await decided
        await self._copies.everywhere(self._answer_timeout_s)
        return reply

    def heartbeat(self) -> None:
        """To be called now and then: what others left undone is done."""
        if self._refusal() is None and self.caught_up:
            self._copies.heartbeat()

    def submit_internal(self, command: AnyCommand) -> None:
        """Send a command that nobody waits for and that concerns no topic, also while stopping. Dropped while Kafka is
        lost."""
        if self.failure is None and self.storage_error is None:
            with suppress(NotProduced):
                self._sender.send_unanswered(command, (CLUSTER_PARTITION,))

    def broadcast(self, commands: Sequence[AnyCommand]) -> None:
        """Send commands that concern every topic to every partition, in order. Raises NotProduced."""
        if self._refusal() is not None:
            raise NotProduced(NO_KAFKA)
        for command in commands:
            self._sender.send_unanswered(command, range(len(self.partitions)))

    def _send_if_passed(self, command: TopicCommand | ClusterCommand) -> None:
        home = home_of(command, len(self.partitions))
        if isinstance(command, ClusterCommand):
            self._sender.send(command, home)
            return
        quotas = self.partitions[CLUSTER_PARTITION].state.cluster.quotas
        passed = self._gate.passed(self.partitions[home].state, quotas, command)
        if isinstance(passed, TopicCommand):
            self._sender.send(passed, home)
        else:
            for answer in passed:
                self.replies.resolve(answer)

    def _refusal(self) -> tuple[ErrorCode, str] | None:
        if self.failure is not None:
            return ErrorCode.UNKNOWN_SERVER_ERROR, FAILED
        if self._stopping:
            return ErrorCode.NOT_CONTROLLER, STOPS
        return None if self.storage_error is None else (ErrorCode.NOT_CONTROLLER, NO_KAFKA)

    def _answer_error(self, request_id: RequestId, topic: TopicName, code: ErrorCode, message: str) -> None:
        self.replies.resolve(Answer(request_id, topic, int(code), message))

    def _time_is_up(self, pending: PendingRequest) -> None:
        for topic in pending.unanswered():
            if self._sender.is_untaken(pending.request_id, topic):
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
        """Whether this gateway knows what there was when it started, who else is there, and the settings that
        decide."""
        return not self._unread and self._presence.members.heard_own and bool(self.store.durable_cluster.release)

    def take(self, batch: FollowedEvents) -> None:
        """Bring the state past a batch of records, and answer whoever waited for them."""
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
        self._unread -= batch.ended
        self._copies.learn()
        for number, decision in accepted:
            for answer in decision.answers:
                self.replies.resolve(answer)
            if decision.source_offset is not None:
                self._sender.decided((number, decision.source_offset), decision.fault)

    def _accept(self, record: Record) -> tuple[int, Accepted] | None:
        if record.topic == self._presence.topic:
            self._presence.members.hear(record.value)
            return None
        accepted = self.partitions[record.partition].accept(record.offset, record.value)
        return None if accepted is None else (record.partition, accepted)

    def fail(self, error: BaseException) -> None:
        """Following cannot go on: nobody is left waiting, and the process is to be ended."""
        if self.failure is None:
            self.failure = error
            structlog.get_logger("topicwright").error("gateway failed", why=str(error), exc_info=error)
            self.replies.fail_all(ErrorCode.UNKNOWN_SERVER_ERROR, FAILED)
            self.failed.set()

    # --- the end

    def take_no_more(self) -> None:
        """Refuse requests from now on."""
        self._stopping = True

    def close(self) -> None:
        """Let go of whoever still waits, and of the folders."""
        self.refusals.stop()
        self.replies.abandon_all()
        for each in self.partitions:
            each.close()


def _query(partition: PartitionState) -> Query:
    return Query(partition.log, lambda: partition.store, partition.partition)
