"""Decides a batch of commands of one partition for the worker's engine, which appends the resulting records.

Commands are decided in order, each on the state after the previous ones. Create-topic policies and the target cluster
may be slow. So all commands of the batch that need approval are submitted to both together before the first is decided;
a command that needs approval only later is submitted alone.

A poison command cannot be read, is in the wrong partition, or raises when it is decided or applied. A record names its
cause, and the partition continues with the state before the command. Otherwise it would stop one worker after another.
If a command raises, its client gets an error; gateways send no other poison commands.

A duplicate of a recently decided command (`recent_requests`) is skipped: its record has neither events nor answers, and
the client gets the answer to the first command.
"""

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from controller.brokers.cluster.target_cluster import TargetCluster
from controller.engine.decider import Decider, needs_approval, one_line, with_pauses, with_verdicts
from controller.machine.commands import NO_TOPIC
from controller.machine.commands.access import ClusterCommand
from controller.machine.commands.commands import AnyCommand, TopicCommand
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.machine.validation import NAME_LENGTH_MAX
from controller.policy.chain import PolicyJudge, PolicyRunnerClosed
from controller.stream.log.codec import CommandError, decode_command, partition_of_command
from controller.stream.log.partition import PartitionState
from events.catalog import Recorded

NOT_DECIDED = "The controller cannot decide this request. Its log has the cause."
RequestCommand = TopicCommand | ClusterCommand


class Sourced(msgspec.Struct, frozen=True, gc=False):
    """A record of the commands topic: its partition, offset and value."""

    partition: int
    offset: int
    value: bytes | None


class Fault(msgspec.Struct, frozen=True):
    """A skipped command and why; `error` if deciding raised."""

    partition: int
    offset: int
    why: str
    error: Exception | None = None


class PartitionBatch:
    """Decides a batch of commands of one partition on its state. `judge` and `cluster` give verdicts;
    `immediate_commands` returns the brokers' commands that follow from a command's events, which go into the
    same record."""

    def __init__(
        self,
        partition: PartitionState,
        partitions: int,
        judge: PolicyJudge | None,
        cluster: TargetCluster | None,
        immediate_commands: Callable[[Sequence[Recorded]], Sequence[AnyCommand]],
    ) -> None:
        self.partition, self.first_record = partition, partition.reader.kafka_offset
        self._immediate_commands = immediate_commands
        self._partitions = partitions
        self._judge = judge
        self._cluster = cluster
        self._decider = Decider(self._fault)
        self.values: list[bytes] = []
        """The records to append, one a command; the offset of the first is to be `first_record`."""
        self.records: list[Recorded] = []
        self.faults: list[Fault] = []
        self.copies: list[tuple[Sourced, RequestCommand]] = []
        """The commands skipped as duplicates of decided commands."""
        self._sourced = Sourced(partition.partition, -1, None)
        """The command that is being decided."""

    async def decide_all(self, commands: Sequence[Sourced]) -> None:
        """Decide commands at consecutive offsets from the next on. The state is ahead of Kafka afterwards.

        Raises CommandFromNewerVersion, PolicyRunnerClosed.
        """
        partition = self.partition
        partition.detect_duplicates()
        read = [(sourced, self._read(sourced)) for sourced in commands]
        approved = await self._approved_together([each for _, each in read if isinstance(each, TopicCommand)])
        async for sourced, command in with_pauses(read):
            self._sourced = sourced
            answers: Sequence[Answer] = ()
            fault = ""
            if isinstance(command, str):
                fault = command
                self._skipped(fault)
            elif isinstance(command, RequestCommand) and partition.is_duplicate(command):
                self.copies.append((sourced, command))
            else:
                answers, fault = await self._decide(approved.get(id(command), command))
            self.values.append(partition.end_record(sourced.offset, answers, fault))

    def _read(self, sourced: Sourced) -> AnyCommand | str:
        try:
            command = decode_command(sourced.value)
        except CommandError as error:
            return str(error)
        if isinstance(command, RequestCommand):
            home = partition_of_command(command, self._partitions)
            if home != sourced.partition:
                kind, topic = type(command).__name__, command.topic[:NAME_LENGTH_MAX]
                what = f"topic {topic!r}" if isinstance(command, TopicCommand) else kind
                return f"{what} is decided in partition {home} of {self._partitions}"
        return command

    async def _decide(self, command: AnyCommand) -> tuple[Sequence[Answer], str]:
        """Decide a command. Returns the answers, and why the command failed if it did."""
        partition, faults = self.partition, len(self.faults)
        if command.at_ms < partition.last_ms:  # gateways' clocks differ
            command = replace(command, at_ms=partition.last_ms)
        decided = self._decider.decide(partition, [command], self._immediate_commands)
        if decided.needs_approval:
            try:
                approved = await with_verdicts(decided.needs_approval, partition.state, self._judge, self._cluster)
            except PolicyRunnerClosed:
                raise
            except Exception as error:
                decided.answers.append(self._fault(command, error))
            else:
                decided = self._decider.decide(partition, approved, self._immediate_commands)
                assert not decided.needs_approval, "all approvals are there"
        self.records += decided.records
        is_failed = len(self.faults) > faults and not decided.records
        return decided.answers, self.faults[faults].why if is_failed else ""

    def _fault(self, command: AnyCommand, error: Exception) -> Answer:
        self._skipped(f"{type(command).__name__} of request {command.request_id}: {one_line(error)}", error)
        topic = getattr(command, "topic", NO_TOPIC)
        return Answer(command.request_id, topic, int(ErrorCode.UNKNOWN_SERVER_ERROR), NOT_DECIDED)

    def _skipped(self, why: str, error: Exception | None = None) -> None:
        self.faults.append(Fault(self._sourced.partition, self._sourced.offset, why, error))

    async def _approved_together(self, commands: Sequence[TopicCommand]) -> dict[int, AnyCommand]:
        """The commands that need approval now, with their verdicts, by `id(command)`."""
        if self._judge is None and self._cluster is None:
            return {}
        state, is_duplicate, every = self.partition.state, self.partition.is_duplicate, with_pauses(commands)
        needing = [each async for each in every if not is_duplicate(each) and needs_approval(state, each)]
        judged: dict[int, AnyCommand] = {}
        for group in _each_topic_once(needing):
            try:
                approved_commands = await with_verdicts(group, state, self._judge, self._cluster)
            except PolicyRunnerClosed:
                raise
            except Exception:
                continue  # each is submitted alone in its turn, and the one at fault is skipped
            judged |= {id(command): done for command, done in zip(group, approved_commands, strict=True)}
        return judged


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
