"""A batch of commands of one partition, decided: what a worker writes for it.

Order is all: command after command, each on the state that the ones before have left. The create-topic policies, and
the cluster that carries decisions out, are foreign and may be slow, so those commands of the batch that they have a say
in are shown to them together before the first is decided; one that needs them only then is shown to them alone.

A command that cannot be read, that lies in the wrong partition, or on which deciding or applying raises, is a poison
command: it is recorded with its cause, its client gets an error, and the partition goes on, with the state before it.
It would otherwise stop every worker in turn.

A copy of a command that was decided a short time ago (`recent_requests`) is passed over too: its record has neither
events nor answers, and the client has the answer of the first, or waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec
from msgspec.structs import replace

from controller.engine.decider import DryRunner, with_verdicts
from controller.engine.faults import NAME_CHARS_MAX, one_line
from controller.machine.commands.access import ClusterCommand
from controller.machine.commands.commands import AnyCommand, BalanceLeaders, ReviewTopics, TopicCommand
from controller.machine.decide import decide
from controller.machine.decision import Answer, Decision
from controller.machine.errors import ErrorCode
from controller.machine.state import State
from controller.policy.runner import PolicyJudge, PolicyRunnerClosed
from controller.stream.log.answers import encode_answers, size_of_answers
from controller.stream.log.commands_topic import CommandError, decode_command, home_of
from controller.stream.log.partition import PartitionState
from controller.stream.log.transport import RECORD_BYTES_MAX
from events.catalog import Cause, Recorded
from events.codec import encode_event
from events.logs.kafka_record import Decided, encode_record
from events.logs.log import LogError

NOT_DECIDED = "The controller cannot decide this request. Its log has the cause."
_OF_CLIENTS = (TopicCommand, ClusterCommand)
_ROOM_BYTES = 1 << 16
"""What a record takes beside its events and answers, and room to spare."""


AtOnce = Callable[[Sequence[Recorded]], Sequence[AnyCommand]]


class Sourced(msgspec.Struct, frozen=True, gc=False):
    """A record of the commands topic, as a driver delivers it."""

    partition: int
    offset: int
    value: bytes | None


class Fault(msgspec.Struct, frozen=True):
    """A command that was passed over, and why; `error` where deciding on it raised."""

    partition: int
    offset: int
    why: str
    error: Exception | None = None


class Copy(msgspec.Struct, frozen=True, gc=False):
    """A command that was passed over because it was decided before."""

    partition: int
    offset: int
    what: str
    request_id: str
    topic: str


class PartitionBatch(msgspec.Struct):
    """What became of the commands of one partition: the bytes to append, one record a command, and what they say."""

    values: list[bytes] = []
    records: list[Recorded] = []
    faults: list[Fault] = []
    copies: list[Copy] = []


class PartitionDecider:
    """Decides the commands of one partition on its state. `judge` and `cluster` give verdicts; `immediate_commands`
    returns the brokers' commands that follow from a command's events; they are in the same record."""

    def __init__(
        self,
        partition: PartitionState,
        partitions: int,
        judge: PolicyJudge | None,
        cluster: DryRunner | None,
        immediate_commands: AtOnce,
    ) -> None:
        self._partition = partition
        self._at_once = immediate_commands
        self._partitions = partitions
        self._judge = judge
        self._cluster = cluster

    async def decide_all(self, commands: Sequence[Sourced]) -> PartitionBatch:
        """Decide commands at consecutive offsets from the next on. The state is ahead of Kafka afterwards.

        Raises CommandFromNewerVersion, PolicyRunnerClosed.
        """
        self._partition.remember_requests()
        read = [(sourced, self._read(sourced)) for sourced in commands]
        judged = await self._consulted_together([each for _, each in read if isinstance(each, TopicCommand)])
        batch = PartitionBatch()
        for sourced, command in read:
            if isinstance(command, Fault):
                self._pass_over(batch, command, None)
            elif isinstance(command, _OF_CLIENTS) and self._partition.decided_before(command):
                self._pass_over_copy(batch, sourced, command)
            else:
                unheard = self._decide(batch, sourced, judged.get(id(command), command))
                if unheard is not None:
                    await self._decide_with_word(batch, sourced, unheard)
        return batch

    def _read(self, sourced: Sourced) -> AnyCommand | Fault:
        try:
            command = decode_command(sourced.value)
        except CommandError as error:
            return Fault(sourced.partition, sourced.offset, str(error))
        if isinstance(command, _OF_CLIENTS):
            home = home_of(command, self._partitions)
            if home != sourced.partition:
                kind, topic = type(command).__name__, command.topic[:NAME_CHARS_MAX]
                what = f"topic {topic!r}" if isinstance(command, TopicCommand) else kind
                why = f"{what} is decided in partition {home} of {self._partitions}"
                return Fault(sourced.partition, sourced.offset, why)
        return command

    def _decide(self, batch: PartitionBatch, sourced: Sourced, command: AnyCommand) -> TopicCommand | None:
        """Decide a command; returns it undecided where others have a say in it that they were not asked for."""
        partition = self._partition
        command = _stamped(command, partition.last_ms)
        decision = _decision(partition.state, command, sourced)
        if (
            isinstance(decision, Fault)
            and isinstance(command, ReviewTopics | BalanceLeaders)
            and len(command.topics) > 1
        ):
            decision = self._decided_singly(batch, sourced, command)
        if isinstance(decision, Decision) and decision.consult:
            assert isinstance(command, TopicCommand), "others have a say in nothing else"
            return command
        self._keep_or_pass_over(batch, sourced, command, decision)
        return None

    async def _decide_with_word(self, batch: PartitionBatch, sourced: Sourced, command: TopicCommand) -> None:
        self._keep_or_pass_over(batch, sourced, *await self._consulted_alone(command, sourced))

    def _keep_or_pass_over(
        self, batch: PartitionBatch, sourced: Sourced, command: AnyCommand, decision: Decision | Fault
    ) -> None:
        fault = decision if isinstance(decision, Fault) else self._keep(batch, sourced, command, decision)
        if fault is not None:
            self._pass_over(batch, fault, command)

    def _decided_singly(
        self, batch: PartitionBatch, sourced: Sourced, command: ReviewTopics | BalanceLeaders
    ) -> Decision:
        """What can be decided of topics of which one raises: no topic's decision looks at another's, and one must not
        keep the others without leaders."""
        decided = Decision()
        for topic in command.topics:
            one = _decision(self._partition.state, replace(command, topics=(topic,)), sourced)
            if isinstance(one, Fault):
                batch.faults.append(one)
            else:
                decided = Decision(decided.events + one.events, decided.answers + one.answers)
        return decided

    def _keep(self, batch: PartitionBatch, sourced: Sourced, command: AnyCommand, decision: Decision) -> Fault | None:
        """Bring the state past a decision; why that cannot be, where it cannot."""
        partition = self._partition
        try:
            cause, values = _encoded(command, decision)
            size = sum(map(len, values)) + size_of_answers(decision)
            if size > RECORD_BYTES_MAX - _ROOM_BYTES:
                why = f"its events and answers take {size} bytes, more than a record may"
                return Fault(sourced.partition, sourced.offset, why)
            records = partition.decided(sourced.offset, command.at_ms, cause, decision.events, values)
        except LogError:
            raise
        except Exception as error:
            return _fault(command, sourced, error)
        batch.records += records
        for said in self._at_once(records):
            decision, values = self._decided_with_it(batch, sourced, said, decision, values)
        answers = encode_answers(decision, partition.state.topics)
        batch.values.append(encode_record(Decided(partition.fold.epoch, sourced.offset, values, answers)))
        return None

    def _decided_with_it(
        self, batch: PartitionBatch, sourced: Sourced, said: AnyCommand, decision: Decision, values: tuple[bytes, ...]
    ) -> tuple[Decision, tuple[bytes, ...]]:
        """The decision on a command, with that on what brokers said of it. Where that raises, they say it once more."""
        try:
            more = decide(self._partition.state, said)
            cause, their_values = _encoded(said, more)
            batch.records += self._partition.decided_with_it(said.at_ms, cause, more.events, their_values)
        except LogError:
            raise
        except Exception as error:
            batch.faults.append(_fault(said, sourced, error))
            return decision, values
        return Decision(decision.events + more.events, decision.answers + more.answers), values + their_values

    def _pass_over(self, batch: PartitionBatch, fault: Fault, command: AnyCommand | None) -> None:
        partition, answers = self._partition, b""
        if isinstance(command, _OF_CLIENTS):
            code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
            error = Decision((), (Answer(command.request_id, command.topic, code, NOT_DECIDED),))
            answers = encode_answers(error, partition.state.topics)
        batch.faults.append(fault)
        batch.values.append(encode_record(Decided(partition.fold.epoch, fault.offset, (), answers, fault.why)))
        partition.fold.take_own(fault.offset)

    def _pass_over_copy(self, batch: PartitionBatch, sourced: Sourced, copy: TopicCommand | ClusterCommand) -> None:
        fold, what = self._partition.fold, type(copy).__name__
        batch.copies.append(Copy(sourced.partition, sourced.offset, what, copy.request_id, copy.topic))
        batch.values.append(encode_record(Decided(fold.epoch, sourced.offset, ())))
        fold.take_own(sourced.offset)

    # --- those who have a say

    async def _consulted_together(self, commands: Sequence[TopicCommand]) -> dict[int, AnyCommand]:
        """Those commands that would need somebody's word if they were decided now, with it, by the identity of the
        command."""
        if self._judge is None and self._cluster is None:
            return {}
        state = self._partition.state
        decided_before = self._partition.decided_before
        needing = [each for each in commands if not decided_before(each) and _needs_a_word(state, each)]
        judged: dict[int, AnyCommand] = {}
        for group in _each_topic_once(needing):
            try:
                words = await with_verdicts(group, state, self._judge, self._cluster)
            except PolicyRunnerClosed:
                raise
            except Exception:
                continue  # each is shown alone in its turn, and the one at fault passed over
            judged.update((id(command), _any(word)) for command, word in zip(group, words, strict=True))
        return judged

    async def _consulted_alone(self, command: TopicCommand, sourced: Sourced) -> tuple[AnyCommand, Decision | Fault]:
        state = self._partition.state
        try:
            [word] = await with_verdicts([command], state, self._judge, self._cluster)
        except PolicyRunnerClosed:
            raise
        except Exception as error:
            return _any(command), _fault(_any(command), sourced, error)
        decision = _decision(state, _any(word), sourced)
        assert isinstance(decision, Fault) or not decision.consult, "all who have a say were asked"
        return _any(word), decision


def _each_topic_once(commands: Sequence[TopicCommand]) -> list[list[TopicCommand]]:
    """The commands in groups in which no topic is there twice: they are shown topic by topic."""
    groups: list[dict[str, TopicCommand]] = []
    for command in commands:
        free = next((group for group in groups if command.topic not in group), None)
        if free is None:
            groups.append({command.topic: command})
        else:
            free[command.topic] = command
    return [list(group.values()) for group in groups]


def _decision(state: State, command: AnyCommand, sourced: Sourced) -> Decision | Fault:
    """What `decide` says; what it raises is a bug, which must not stop the partition for good."""
    try:
        return decide(state, command)
    except Exception as error:
        return _fault(command, sourced, error)


def _encoded(command: AnyCommand, decision: Decision) -> tuple[Cause, tuple[bytes, ...]]:
    """The cause of a decision's events, and their bytes."""
    cause = Cause(type(command).__name__, command.request_id)
    return cause, tuple([encode_event(command.at_ms, cause, event) for event in decision.events])


def _fault(command: AnyCommand, sourced: Sourced, error: Exception) -> Fault:
    why = f"{type(command).__name__} of request {command.request_id}: {one_line(error)}"
    return Fault(sourced.partition, sourced.offset, why, error)


def _any(command: TopicCommand) -> AnyCommand:
    return cast("AnyCommand", command)  # each kind of the one is among the other


def _needs_a_word(state: State, command: TopicCommand) -> bool:
    try:
        return decide(state, _any(command)).consult
    except Exception:
        return False  # it is passed over when its turn comes


def _stamped(command: AnyCommand, last_ms: int) -> AnyCommand:
    """The command as of now: gateways' clocks differ, and the time of a partition never goes back."""
    return command if command.at_ms >= last_ms else replace(command, at_ms=last_ms)
