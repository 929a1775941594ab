"""A batch of commands of one partition, decided: what a worker writes for it.

Order is all: command after command, each on the state that the ones before have left. The create-topic policies are
foreign code and may be slow, so those creates of the batch that they will be asked about are judged together before
the first is decided; one that turns out to need them only then is judged alone.

A command that cannot be read, that lies in the wrong partition, or on which `decide` raises, is a poison command: it is
recorded with its cause, whoever asked is told, and the partition goes on. It would otherwise stop every worker in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from controller.machine.commands import AnyCommand, Ask, ClusterAsk, CreateTopic
from controller.machine.decide import decide
from controller.machine.decision import Answer, Decision
from controller.machine.errors import ErrorCode
from controller.machine.state import State
from controller.policy.runner import PolicyJudge
from controller.policy.shown import as_policies_see_it
from controller.runtime.stream.answers import encode_answers, size_of_details
from controller.runtime.stream.commands import CommandError, decode_command, home_of
from controller.runtime.stream.partition import PartitionState
from controller.runtime.stream.transport import RECORD_BYTES_MAX
from events.catalog import Cause, Recorded, Verdict
from events.codec import encode_event
from events.kafka_record import Decided, encode_record

NOT_DECIDED = "The controller cannot decide this request. Its log has the cause."
_ROOM_BYTES = 1 << 16
"""What a record takes beside its events and answers, and room to spare."""


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


class Batch(msgspec.Struct):
    """What became of the commands of one partition: the bytes to append, one record a command, and what they say."""

    values: list[bytes] = []
    records: list[Recorded] = []
    faults: list[Fault] = []


class Deciding:
    """Decides the commands of one partition on its state."""

    def __init__(self, partition: PartitionState, partitions: int, judge: PolicyJudge | None) -> None:
        self._partition = partition
        self._partitions = partitions
        self._judge = judge

    async def decide_all(self, commands: Sequence[Sourced]) -> Batch:
        """Decide commands at consecutive offsets from the next on. The state is ahead of Kafka afterwards.

        Raises CommandFromNewerVersion, PolicyRunnerClosed.
        """
        read = [(sourced, self._read(sourced)) for sourced in commands]
        verdicts = await self._judged([each for _, each in read if isinstance(each, CreateTopic)])
        batch = Batch()
        for sourced, command in read:
            if isinstance(command, Fault):
                self._pass_over(batch, command, None)
            else:
                await self._decide(batch, sourced, command, verdicts.get(id(command)))
        return batch

    def _read(self, sourced: Sourced) -> AnyCommand | Fault:
        try:
            command = decode_command(sourced.value)
        except CommandError as error:
            return Fault(sourced.partition, sourced.offset, str(error))
        if isinstance(command, Ask | ClusterAsk):
            home = home_of(command, self._partitions)
            if home != sourced.partition:
                what = f"topic {command.topic!r}" if isinstance(command, Ask) else type(command).__name__
                why = f"{what} is decided in partition {home} of {self._partitions}"
                return Fault(sourced.partition, sourced.offset, why)
        return command

    async def _decide(self, batch: Batch, sourced: Sourced, command: AnyCommand, verdict: Verdict | None) -> None:
        partition = self._partition
        command = _stamped(command, partition.last_ms)
        decision = _decision(partition.state, command, sourced)
        if isinstance(decision, Decision) and decision.consult and isinstance(command, CreateTopic):
            command = replace(command, verdict=verdict or await self._judged_alone(command))
            decision = _decision(partition.state, command, sourced)
        if isinstance(decision, Fault):
            self._pass_over(batch, decision, command)
            return
        cause = Cause(type(command).__name__, command.request_id)
        values = tuple(encode_event(command.at_ms, cause, event) for event in decision.events)
        size = sum(map(len, values)) + size_of_details(decision)
        if size > RECORD_BYTES_MAX - _ROOM_BYTES:
            why = f"its events and answers take {size} bytes, more than a record may"
            self._pass_over(batch, Fault(sourced.partition, sourced.offset, why), command)
            return
        epoch = partition.fold.epoch
        batch.records += partition.decided(sourced.offset, command.at_ms, cause, decision.events, values)
        answers = encode_answers(decision, partition.state.topics)
        batch.values.append(encode_record(Decided(epoch, sourced.offset, values, answers)))

    def _pass_over(self, batch: Batch, fault: Fault, command: AnyCommand | None) -> None:
        partition, answers = self._partition, b""
        if isinstance(command, Ask | ClusterAsk):
            code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
            told = Decision((), (Answer(command.request_id, command.topic, code, NOT_DECIDED),))
            answers = encode_answers(told, partition.state.topics)
        batch.faults.append(fault)
        batch.values.append(encode_record(Decided(partition.fold.epoch, fault.offset, (), answers, fault.why)))
        partition.fold.take_own(fault.offset, 0)

    # --- policies

    async def _judged(self, creates: Sequence[CreateTopic]) -> dict[int, Verdict]:
        """The verdicts on those creates that would need one if they were decided now, by the command's identity."""
        if self._judge is None or not creates:
            return {}
        state = self._partition.state
        asked = [command for command in creates if _needs_verdict(state, command)]
        if not asked:
            return {}
        settings = state.cluster.settings
        verdicts = await self._judge.judge([as_policies_see_it(command, settings) for command in asked])
        return {id(command): verdict for command, verdict in zip(asked, verdicts, strict=True)}

    async def _judged_alone(self, command: CreateTopic) -> Verdict:
        assert self._judge is not None, "policies are set, so they are loaded"
        [verdict] = await self._judge.judge([as_policies_see_it(command, self._partition.state.cluster.settings)])
        return verdict


def _decision(state: State, command: AnyCommand, sourced: Sourced) -> Decision | Fault:
    """What `decide` says; what it raises is a bug, which must not stop the partition for good."""
    try:
        return decide(state, command)
    except Exception as error:
        why = f"{type(command).__name__} of request {command.request_id}: {type(error).__name__}: {error}"
        return Fault(sourced.partition, sourced.offset, why, error)


def _needs_verdict(state: State, command: CreateTopic) -> bool:
    try:
        return decide(state, command).consult
    except Exception:
        return False  # it is passed over when its turn comes


def _stamped(command: AnyCommand, last_ms: int) -> AnyCommand:
    """The command as of now: fronts' clocks differ, and the time of a partition never goes back."""
    return command if command.at_ms >= last_ms else replace(command, at_ms=last_ms)
