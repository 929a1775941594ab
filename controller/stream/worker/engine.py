"""A worker's engine: takes partitions over, decides their commands, keeps what Kafka has acknowledged.

It knows neither consumer groups nor Faust. A driver has it claim the partitions that it was assigned, feeds it their
commands, and has it give up those that are taken away; who really owns a partition is settled in the events topic
alone, by the rule of `events.logs.kafka_fold`.

- `claim`: read the partition to its end, write a fence with the next epoch, read up to it. If ours counts, nobody
  else's records do from there on, and the state is the fold of everything before. Commands go on where that says.
- `handle`: decide, append, wait for the acknowledgement of all in-sync replicas. Only where the records came to lie at
  the very next offset is the decision kept; anything else means that somebody wrote in between.
- `revoke`: let the batch in hand end, and stop being active.

Kafka's own troubles, being taken over, and commands that a driver did not deliver though they are there, are `Lost`:
the partitions are closed without what was not acknowledged, and the driver claims them anew. Commands that are gone, or
events that cannot be read, end the process: to go on would be to lose a command, or to decide on a state that is not
the log's.

Time, Kafka, policies and what owners do beside deciding come as arguments, so that a simulation can drive this code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from controller.engine.decider import DryRunner
from controller.machine.commands.commands import AnyCommand
from controller.policy.runner import PolicyJudge
from controller.stream.log.beginning import ArchiveOf
from controller.stream.log.partition import MEMORY, Memory, PartitionState
from controller.stream.log.transport import KafkaTrouble, Topics, Transport
from controller.stream.worker.partition_decider import Copy, Fault, PartitionBatch, PartitionDecider, Sourced
from events.catalog import EVENT_VERSION, Cause, Configs, Recorded, SettingsChanged
from events.codec import encode_event
from events.logs.kafka_record import Fence, decode_record, encode_record
from events.logs.log import LogCorrupted
from events.names import RequestId

DELIVERIES_MAX = 3
"""So often a command may fail to come, with later ones coming, before it is held to be gone."""

Still = Callable[[], bool]
"""Whether the assignment that a claim is made for is still in force."""


class Lost(Exception):
    """The partitions are not ours for the moment, and no memory of them is kept: claim them anew, a little later."""


class CommandsMissing(LogCorrupted):
    """Commands that were never decided are gone."""


class Identity(msgspec.Struct, frozen=True):
    """Who writes: `writer` is unique to the process; the settings are those that decisions depend on."""

    writer: str
    release: str
    settings: Configs


class Owner(Protocol):
    """What is done beside deciding for as long as a partition is owned: deadlines, brokers, reviews."""

    def begin(self, partition: PartitionState) -> None:
        """The partition is ours; its state is that of the log."""
        ...

    def immediate_commands(self, partition: PartitionState, records: Sequence[Recorded]) -> Sequence[AnyCommand]:
        """What brokers say of events the moment that they are in Kafka: it is decided with them, in one record."""
        ...

    def learn(self, partition: PartitionState, records: Sequence[Recorded]) -> None:
        """Records of the partition are in Kafka, and committed; there may be none."""
        ...

    async def end(self, partition: int) -> None:
        """The partition is not ours any more."""
        ...


class Watcher(Protocol):
    """What the engine reports to: for log lines and figures."""

    def claimed(self, partition: int, epoch: int, read: int, seconds: float) -> None: ...
    def committed(self, commands: int, records: Sequence[Recorded], seconds: float) -> None: ...
    def passed_over(self, fault: Fault) -> None: ...
    def decided_before(self, copy: Copy) -> None: ...
    def lost(self, why: str) -> None: ...


class Engine:
    """The partitions that this process owns, and their commands' way through the machine.

    `cluster_of` gives the cluster that carries out what is decided in a partition, None where there is none.
    """

    def __init__(
        self,
        data: Path,
        topics: Topics,
        identity: Identity,
        *,
        connect: Callable[[], Transport],
        owner: Owner,
        watcher: Watcher,
        clock: Callable[[], float],
        clock_ms: Callable[[], int],
        judge: PolicyJudge | None = None,
        cluster_of: Callable[[int], DryRunner | None] = lambda _: None,
        archive: ArchiveOf | None = None,
        memory: Memory = MEMORY,
    ) -> None:
        self.active: set[int] = set()
        """The partitions that are claimed and whose commands are taken."""
        self.data = data
        self._topics = topics
        self._identity = identity
        self._memory = memory
        self._connect = connect
        self._owner = owner
        self._watcher = watcher
        self._clock = clock
        self._clock_ms = clock_ms
        self._judge = judge
        self._cluster_of = cluster_of
        self._archive = archive
        self._transport: Transport | None = None
        self._states: dict[int, PartitionState] = {}
        self._claims = 0
        self._undelivered: dict[int, tuple[int, int]] = {}
        """The command that did not come last in a partition, and how often."""
        self._lock = asyncio.Lock()

    @property
    def transport(self) -> Transport:
        """The connection to Kafka, until its next trouble."""
        if self._transport is None:
            self._transport = self._connect()
        return self._transport

    def next_source(self, partition: int) -> int:
        """The offset of the next command of a claimed partition."""
        return self._states[partition].fold.next_source

    # --- ownership

    async def claim(self, partitions: Collection[int], still: Still) -> bool:
        """Take partitions over, and give up all others; False, and nothing is active, if `still` says no meanwhile.

        Raises Lost; and LogError, RecordError, EventDecodeError for what ends the process.
        """
        async with self._lock:
            await self._deactivate()
            for partition in set(self._states) - set(partitions):
                self._states.pop(partition).close()
            try:
                for partition in sorted(partitions):
                    if not await self._take_over(partition, still):
                        return False
            except KafkaTrouble as trouble:
                await self._let_go(str(trouble))
                raise Lost(str(trouble)) from trouble
            if not still():
                return False
            for partition in sorted(partitions):
                self.active.add(partition)
                self._owner.begin(self._states[partition])
            return True

    async def revoke(self) -> None:
        """Stop taking commands. The batch in hand is decided and acknowledged first."""
        async with self._lock:
            await self._deactivate()

    async def close(self) -> None:
        """Let go of everything. Nothing but the cache is kept, and that is always a prefix of the log."""
        async with self._lock:
            await self._let_go(None)

    async def _deactivate(self) -> None:
        owned, self.active = self.active, set()
        for partition in sorted(owned):
            await self._owner.end(partition)

    async def _let_go(self, why: str | None) -> None:
        await self._deactivate()
        states, self._states = self._states, {}
        for state in states.values():
            state.close()
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()
        if why is not None:
            self._watcher.lost(why)

    async def _take_over(self, partition: int, still: Still) -> bool:
        """Fence the partition and bring its state up to that; False if `still` says no before it is done."""
        started = self._clock()
        first, end = await self.transport.events_range(partition)
        state = self._states.get(partition)
        if state is not None and state.fold.kafka_offset < first:
            self._states.pop(partition).close()
            state = None
        state = state or await self._open(partition, first)
        start = state.fold.kafka_offset
        state.check_end(end)
        if not await self._read(state, end, still):
            return False
        while True:
            fence = self._fence(state)
            end = await (await self.transport.append(partition, [encode_record(fence)])) + 1
            if not await self._read(state, end, still):
                return False
            if state.fold.writer == fence.writer:
                break
        await self._check_commands(state)
        self._watcher.claimed(partition, state.fold.epoch, end - start, self._clock() - started)
        return True

    async def _open(self, partition: int, first_record: int) -> PartitionState:
        cluster_id, topic_id, archive = self._topics.cluster_id, self._topics.events_id, self._archive
        opening = partial(
            PartitionState.open,
            self.data,
            partition,
            cluster_id=cluster_id,
            topic_id=topic_id,
            archive=archive and archive(partition),
            memory=self._memory,
            first_record=first_record,
        )
        state = opening() if archive is None else await asyncio.to_thread(opening)  # which may fetch much
        self._states[partition] = state
        return state

    def _fence(self, state: PartitionState) -> Fence:
        identity, cluster = self._identity, state.state.cluster
        self._claims += 1
        writer = f"{identity.writer}-{self._claims}"
        events: tuple[bytes, ...] = ()
        if (cluster.settings_pairs, cluster.release) != (identity.settings, identity.release):
            at_ms = max(self._clock_ms(), state.last_ms)
            before = cluster.settings_pairs if cluster.release else None
            changed = SettingsChanged(identity.settings, identity.release, before)
            events = (encode_event(at_ms, Cause("ChangeSettings", RequestId(f"settings-{writer}")), changed),)
        fold = state.fold
        return Fence(fold.epoch + 1, writer, identity.release, EVENT_VERSION, events, fold.next_source)

    async def _read(self, state: PartitionState, end: int, still: Still) -> bool:
        """Fold the events partition up to `end`; False if `still` says no before that is done."""
        start = state.fold.kafka_offset
        if start < end:
            async with aclosing(self.transport.read(state.partition, start, end)) as portions:
                async for portion in portions:
                    for offset, value in portion:
                        state.accept(offset, value)
                    state.commit()
                    if not still():
                        return False
                    await asyncio.sleep(0)
        return still()

    async def _check_commands(self, state: PartitionState) -> None:
        """The next command must be there, or be the next that will be."""
        following = state.fold.next_source
        begin, end = await self.transport.commands_range(state.partition)
        where = f"commands partition {state.partition}"
        if following < begin:
            raise CommandsMissing(
                f"{where}: commands {following} to {begin - 1} were deleted before they were decided; "
                "raise retention.ms of the commands topic, and keep workers running"
            )
        if following > end:
            raise CommandsMissing(
                f"{where} ends at {end}, and the events topic proves {following} commands: it was made anew. "
                "Make both topics anew, or name others with stream.commands.topic and stream.events.topic"
            )

    # --- deciding

    async def handle(self, commands: Sequence[Sourced]) -> None:
        """Decide commands of partitions that are active; others, and those decided before, are dropped.

        Returns when all is acknowledged and committed. Raises Lost, CommandsMissing, CommandFromNewerVersion,
        PolicyRunnerClosed.
        """
        async with self._lock:
            batches: list[tuple[PartitionState, int, PartitionBatch, asyncio.Future[int]]] = []
            started = self._clock()
            try:
                for partition, group in _by_partition(commands).items():
                    state = self._states.get(partition)
                    if state is not None and partition in self.active:
                        expected = state.fold.kafka_offset
                        batch = await self._decided(state, group)
                        if batch.values:
                            appending = await self.transport.append(partition, batch.values)
                            batches.append((state, expected, batch, appending))
                for state, expected, batch, appending in batches:
                    if await appending != expected:
                        await self._find_own(state, expected, batch.values)
            except KafkaTrouble as trouble:
                await asyncio.gather(*(appending for *_, appending in batches), return_exceptions=True)
                await self._let_go(str(trouble))
                raise Lost(str(trouble)) from trouble
            for state, _, batch, _ in batches:
                state.commit()
                for fault in batch.faults:
                    self._watcher.passed_over(fault)
                for copy in batch.copies:
                    self._watcher.decided_before(copy)
                self._watcher.committed(len(batch.values), batch.records, self._clock() - started)
                self._owner.learn(state, batch.records)

    async def _decided(self, state: PartitionState, commands: list[Sourced]) -> PartitionBatch:
        following = state.fold.next_source
        fresh: list[Sourced] = []
        for sourced in commands:
            if sourced.offset == following + len(fresh):
                fresh.append(sourced)
            elif sourced.offset > following + len(fresh):
                await self._did_not_come(state.partition, following + len(fresh), sourced.offset)
        cluster, immediate_commands = self._cluster_of(state.partition), partial(self._owner.immediate_commands, state)
        decider = PartitionDecider(state, self._topics.partitions, self._judge, cluster, immediate_commands)
        return await decider.decide_all(fresh)

    async def _did_not_come(self, partition: int, expected: int, came: int) -> None:
        """A driver has passed a command over. Raises KafkaTrouble if it is still there, so that it is fetched again."""
        what = f"commands partition {partition}: command {expected} was to come, and {came} came"
        begin, _ = await self.transport.commands_range(partition)
        if expected < begin:
            raise CommandsMissing(f"{what}; the oldest that is there is {begin}")
        missed, times = self._undelivered.get(partition, (expected, 0))
        times = times + 1 if missed == expected else 1
        self._undelivered[partition] = expected, times
        if times == DELIVERIES_MAX:
            raise CommandsMissing(
                f"{what}, {times} times: the topic must have cleanup.policy=delete and no transactional writers"
            )
        raise KafkaTrouble(what)

    async def _find_own(self, state: PartitionState, start: int, values: Sequence[bytes]) -> None:
        """Somebody else wrote where our records were to lie: find out by reading whether ours count all the same.

        They do while the others' do not: a worker that was replaced may go on for a while before it notices.
        """
        partition, epoch, found = state.partition, state.fold.epoch, 0
        _, end = await self.transport.events_range(partition)
        async with aclosing(self.transport.read(partition, start, end)) as portions:
            async for portion in portions:
                for _, value in portion:
                    if found < len(values) and value == values[found]:
                        found += 1
                        continue
                    record = decode_record(value)
                    if isinstance(record, Fence) and record.epoch == epoch + 1:
                        raise KafkaTrouble(f"events partition {partition} was taken over by {record.writer}")
        if found < len(values):
            raise KafkaTrouble(f"events partition {partition}: {len(values) - found} of our records did not arrive")
        state.fold.pass_over(end - start - len(values))


def _by_partition(commands: Sequence[Sourced]) -> dict[int, list[Sourced]]:
    """The commands of each partition, in their order, together: a partition has one append on its way at a time.

    With two, the first could fail and the second arrive: decisions would stand in the topic that rest on others that
    do not, and the partition could not be read any further.
    """
    groups: dict[int, list[Sourced]] = {}
    for sourced in commands:
        groups.setdefault(sourced.partition, []).append(sourced)
    return groups
