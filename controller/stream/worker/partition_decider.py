"""Deciding a batch of commands of one partition: the records that a worker writes for it.

Commands are decided in order, each on the state after the previous ones. Create-topic policies and the target cluster
may be slow. So all commands of the batch that need approval are submitted to them together before the first is decided;
a command that needs approval only later is submitted alone.

A poison command is one that cannot be read, lies in the wrong partition, or raises when it is decided or applied. It is
recorded with its cause, its client gets an error, and the partition goes on with the state before it. Otherwise it
would stop every worker in turn.

A duplicate of a recently decided command (`recent_requests`) is skipped: its record has neither events nor answers, and
the client gets the answer of the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec
from msgspec.structs import replace

from controller.engine.decider import DryRunner, with_verdicts
from controller.engine.faults import NAME_CHARS_MAX, one_line
from controller.machine.commands.access import ClusterCommand
from controller.machine.commands.commands import AnyCommand, BalanceLeaders, ReconcileTopics, TopicCommand
from controller.machine.decide import decide
from controller.machine.decision import Answer, Decision
from controller.machine.errors import ErrorCode
from controller.machine.state import State
from controller.policy.runner import PolicyJudge, PolicyRunnerClosed
from controller.stream.log.codec import CommandError, decode_command, encode_answers, home_of, size_of_answers
from controller.stream.log.partition import PartitionState
from controller.stream.log.transport import RECORD_BYTES_MAX
from events.catalog import Cause, Recorded
from events.codec import encode_event
from events.logs.events_topic import Decided, encode_record
from events.logs.log import LogError

NOT_DECIDED = "The controller cannot decide this request. Its log has the cause."
_OF_CLIENTS = (TopicCommand, ClusterCommand)
_ROOM_BYTES = 1 << 16
"""Space in a record besides its events and answers."""


ImmediateCommands = Callable[[Sequence[Recorded]], Sequence[AnyCommand]]


class Sourced(msgspec.Struct, frozen=True, gc=False):
    """A record of the commands topic."""

    partition: int
    offset: int
    value: bytes | None


class Fault(msgspec.Struct, frozen=True):
    """A skipped command and why; `error` if deciding raised."""

    partition: int
    offset: int
    why: str
    error: Exception | None = None


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """A skipped duplicate of a decided command."""

    partition: int
    offset: int
    what: str
    request_id: str
    topic: str


class PartitionBatch(msgspec.Struct):
    """The result for the commands of one partition: the records to append, one a command, and their contents."""

    values: list[bytes] = []
    records: list[Recorded] = []
    faults: list[Fault] = []
    copies: list[Duplicate] = []


class PartitionDecider:
    """Decides the commands of one partition on its state. `judge` and `cluster` give verdicts; `immediate_commands`
    returns the brokers' commands that follow from a command's events; they are in the same record."""

    def __init__(
        self,
        partition: PartitionState,
        partitions: int,
        judge: PolicyJudge | None,
        cluster: DryRunner | None,
        immediate_commands: ImmediateCommands,
    ) -> None:
        self._partition = partition
        self._immediate_commands = immediate_commands
        self._partitions = partitions
        self._judge = judge
        self._cluster = cluster

    async def decide_all(self, commands: Sequence[Sourced]) -> PartitionBatch:
        """Decide commands at consecutive offsets from the next on. The state is ahead of Kafka afterwards.

        Raises CommandFromNewerVersion, PolicyRunnerClosed.
        """
        self._partition.detect_duplicates()
        read = [(sourced, self._read(sourced)) for sourced in commands]
        judged = await self._approved_together([each for _, each in read if isinstance(each, TopicCommand)])
        batch = PartitionBatch()
        for sourced, command in read:
            if isinstance(command, Fault):
                self._skip(batch, command, None)
            elif isinstance(command, _OF_CLIENTS) and self._partition.is_duplicate(command):
                self._skip_duplicate(batch, sourced, command)
            else:
                pending = self._decide(batch, sourced, judged.get(id(command), command))
                if pending is not None:
                    await self._decide_approved(batch, sourced, pending)
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
        """Decide a command; returns it if it still needs approval."""
        partition = self._partition
        command = _stamped(command, partition.last_ms)
        decision = _decision(partition.state, command, sourced)
        if (
            isinstance(decision, Fault)
            and isinstance(command, ReconcileTopics | BalanceLeaders)
            and len(command.topics) > 1
        ):
            decision = self._decided_singly(batch, sourced, command)
        if isinstance(decision, Decision) and decision.needs_approval:
            assert isinstance(command, TopicCommand), "others have a say in nothing else"
            return command
        self._apply_or_skip(batch, sourced, command, decision)
        return None

    async def _decide_approved(self, batch: PartitionBatch, sourced: Sourced, command: TopicCommand) -> None:
        self._apply_or_skip(batch, sourced, *await self._approved_alone(command, sourced))

    def _apply_or_skip(
        self, batch: PartitionBatch, sourced: Sourced, command: AnyCommand, decision: Decision | Fault
    ) -> None:
        fault = decision if isinstance(decision, Fault) else self._apply(batch, sourced, command, decision)
        if fault is not None:
            self._skip(batch, fault, command)

    def _decided_singly(
        self, batch: PartitionBatch, sourced: Sourced, command: ReconcileTopics | BalanceLeaders
    ) -> Decision:
        """Decide topic by topic after one of them raised: decisions are independent, and one topic must not keep the
        others without leaders."""
        decided = Decision()
        for topic in command.topics:
            one = _decision(self._partition.state, replace(command, topics=(topic,)), sourced)
            if isinstance(one, Fault):
                batch.faults.append(one)
            else:
                decided = Decision(decided.events + one.events, decided.answers + one.answers)
        return decided

    def _apply(self, batch: PartitionBatch, sourced: Sourced, command: AnyCommand, decision: Decision) -> Fault | None:
        """Apply a decision; returns why it cannot be applied, if so."""
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
        for reported in self._immediate_commands(records):
            decision, values = self._decided_with_it(batch, sourced, reported, decision, values)
        answers = encode_answers(decision, partition.state.topics)
        batch.values.append(encode_record(Decided(partition.reader.epoch, sourced.offset, values, answers)))
        return None

    def _decided_with_it(
        self,
        batch: PartitionBatch,
        sourced: Sourced,
        reported: AnyCommand,
        decision: Decision,
        values: tuple[bytes, ...],
    ) -> tuple[Decision, tuple[bytes, ...]]:
        """The decision extended by that on a broker's command. If that raises, the brokers report again."""
        try:
            more = decide(self._partition.state, reported)
            cause, their_values = _encoded(reported, more)
            batch.records += self._partition.decided_in_same_record(reported.at_ms, cause, more.events, their_values)
        except LogError:
            raise
        except Exception as error:
            batch.faults.append(_fault(reported, sourced, error))
            return decision, values
        return Decision(decision.events + more.events, decision.answers + more.answers), values + their_values

    def _skip(self, batch: PartitionBatch, fault: Fault, command: AnyCommand | None) -> None:
        partition, answers = self._partition, b""
        if isinstance(command, _OF_CLIENTS):
            code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
            error = Decision((), (Answer(command.request_id, command.topic, code, NOT_DECIDED),))
            answers = encode_answers(error, partition.state.topics)
        batch.faults.append(fault)
        batch.values.append(encode_record(Decided(partition.reader.epoch, fault.offset, (), answers, fault.why)))
        partition.reader.skip_own(fault.offset)

    def _skip_duplicate(self, batch: PartitionBatch, sourced: Sourced, copy: TopicCommand | ClusterCommand) -> None:
        reader, what = self._partition.reader, type(copy).__name__
        batch.copies.append(Duplicate(sourced.partition, sourced.offset, what, copy.request_id, copy.topic))
        batch.values.append(encode_record(Decided(reader.epoch, sourced.offset, ())))
        reader.skip_own(sourced.offset)

    # --- approval

    async def _approved_together(self, commands: Sequence[TopicCommand]) -> dict[int, AnyCommand]:
        """The commands that need approval now, with the verdicts, by the identity of the command."""
        if self._judge is None and self._cluster is None:
            return {}
        state = self._partition.state
        is_duplicate = self._partition.is_duplicate
        needing = [each for each in commands if not is_duplicate(each) and _needs_approval(state, each)]
        judged: dict[int, AnyCommand] = {}
        for group in _each_topic_once(needing):
            try:
                approved_commands = await with_verdicts(group, state, self._judge, self._cluster)
            except PolicyRunnerClosed:
                raise
            except Exception:
                continue  # each is submitted alone in its turn, and the one at fault is skipped
            judged |= {id(command): _any(done) for command, done in zip(group, approved_commands, strict=True)}
        return judged

    async def _approved_alone(self, command: TopicCommand, sourced: Sourced) -> tuple[AnyCommand, Decision | Fault]:
        state = self._partition.state
        try:
            [approved] = await with_verdicts([command], state, self._judge, self._cluster)
        except PolicyRunnerClosed:
            raise
        except Exception as error:
            return _any(command), _fault(_any(command), sourced, error)
        decision = _decision(state, _any(approved), sourced)
        assert isinstance(decision, Fault) or not decision.needs_approval, "all approvals are there"
        return _any(approved), decision


def _each_topic_once(commands: Sequence[TopicCommand]) -> list[list[TopicCommand]]:
    """The commands in groups without repeated topics: approval works topic by topic."""
    groups: list[dict[str, TopicCommand]] = []
    for command in commands:
        free = next((group for group in groups if command.topic not in group), None)
        if free is None:
            groups.append({command.topic: command})
        else:
            free[command.topic] = command
    return [list(group.values()) for group in groups]


def _decision(state: State, command: AnyCommand, sourced: Sourced) -> Decision | Fault:
    """The decision. An exception is a bug, which must not stop the partition for good."""
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


def _needs_approval(state: State, command: TopicCommand) -> bool:
    try:
        return decide(state, _any(command)).needs_approval
    except Exception:
        return False  # it is skipped when its turn comes


def _stamped(command: AnyCommand, last_ms: int) -> AnyCommand:
    """The command at a time not before the partition's: gateways' clocks differ."""
    return command if command.at_ms >= last_ms else replace(command, at_ms=last_ms)
