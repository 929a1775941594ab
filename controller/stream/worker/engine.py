"""A worker's engine: claims partitions, decides their commands, and commits the decisions that Kafka acknowledged.

The engine knows neither consumer groups nor Faust. A driver calls it with the partitions to claim or give up, and with
their commands. The events topic alone determines the owner of a partition (`events.logs.events_topic`).

- `claim`: read the partition to its end, write a fence (a record with the next epoch), and read up to the fence. If
  this fence counts, no other writer's records count after it, and the state follows from everything before it.
  Commands continue where the events end.
- `handle`: decide, append, and wait for the acknowledgement of all in-sync replicas. A decision is committed only if
  its record has exactly the next offset; otherwise another writer wrote in between.
- `revoke`: finish the current batch, and become inactive.

Kafka's errors, a takeover, and undelivered commands raise `PartitionsLost`: the partitions are closed without
unacknowledged decisions, and the driver claims them again. Deleted commands and unreadable events end the process:
continuing would lose a command, or decide on a state that differs from the log.

Time, Kafka, policies and the leader's tasks are arguments, so that a simulation can run this code.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from functools import partial

from controller.serving.archiving import archive_store
from controller.stream.log.partition import PartitionState
from controller.stream.log.topics import KafkaUnavailable
from controller.stream.log.transport import Transport
from controller.stream.worker.owner_tasks import PartitionLeader, WorkerContext
from controller.stream.worker.partition_decider import PartitionBatch, Sourced
from events.catalog import EVENT_VERSION, Cause, SettingsChanged
from events.codec import encode_event
from events.logs.events_topic import Fence, decode_record, encode_record
from events.logs.log import LogCorrupted
from events.names import RequestId

DELIVERIES_MAX = 3
"""Failed deliveries of a command, while later ones arrive, before it counts as deleted."""

IsCurrent = Callable[[], bool]
"""True while the assignment of a claim is valid."""


class PartitionsLost(Exception):
    """The partitions are lost, and their state is dropped: claim them again, a little later."""


class CommandsMissing(LogCorrupted):
    """Undecided commands were deleted."""


class Engine:
    """Owns the claimed partitions: decides and commits their commands."""

    def __init__(self, context: WorkerContext, lead: Callable[..., PartitionLeader] = PartitionLeader) -> None:
        self.context = context
        self._lead = lead
        self.leaders: dict[int, PartitionLeader] = {}
        """The claimed partitions whose commands are accepted."""
        self.claim_again: Callable[[], None] = lambda: None
        """Makes the driver claim the partitions again."""
        self._transport: Transport | None = None
        self._states: dict[int, PartitionState] = {}
        self._claims = 0
        self._undelivered: dict[int, tuple[int, int]] = {}
        """By partition: the last undelivered command's offset, and how often that command was missing."""
        self._lock = asyncio.Lock()

    @property
    def transport(self) -> Transport:
        if self._transport is None:
            self._transport = self.context.connect()
        return self._transport

    def _rejected(self, why: str) -> None:
        """Kafka rejected commands of a leader: the partitions must be claimed again."""
        self.context.watcher.lost(why)
        self.claim_again()

    def next_source(self, partition: int) -> int:
        """The offset of the next command of a claimed partition."""
        return self._states[partition].reader.next_source

    # --- ownership

    async def claim(self, partitions: Collection[int], is_current: IsCurrent) -> bool:
        """Claim partitions and give up all others. Returns False, with none active, if `is_current` becomes false.

        Raises PartitionsLost; and LogError, RecordError, EventDecodeError, which must end the process.
        """
        async with self._lock:
            await self._deactivate()
            for partition in set(self._states) - set(partitions):
                self._states.pop(partition).close()
            try:
                for partition in sorted(partitions):
                    if not await self._claim_partition(partition, is_current):
                        return False
            except KafkaUnavailable as error:
                await self._release(str(error))
                raise PartitionsLost(str(error)) from error
            if not is_current():
                return False
            for partition in sorted(partitions):
                state = self._states[partition]
                self.leaders[partition] = self._lead(self.context, state, lambda: self.transport, self._rejected)
            return True

    async def revoke(self) -> None:
        """Stop accepting commands, after the current batch is acknowledged."""
        async with self._lock:
            await self._deactivate()

    async def close(self) -> None:
        """Close everything. Only the caches remain, which are always a prefix of the log."""
        async with self._lock:
            await self._release(None)

    async def _deactivate(self) -> None:
        leaders, self.leaders = self.leaders, {}
        for _, leader in sorted(leaders.items()):
            await leader.end()

    async def _release(self, why: str | None) -> None:
        await self._deactivate()
        states, self._states = self._states, {}
        for state in states.values():
            state.close()
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()
        if why is not None:
            self.context.watcher.lost(why)

    async def _claim_partition(self, partition: int, is_current: IsCurrent) -> bool:
        """Fence the partition and read up to the fence; False if `is_current` becomes false."""
        started = self.context.clock()
        first, end = await self.transport.events_range(partition)
        state = self._states.get(partition)
        if state is not None and state.reader.kafka_offset < first:
            self._states.pop(partition).close()
            state = None
        state = state or await self._open(partition, first)
        start = state.reader.kafka_offset
        state.check_end(end)
        if not await self._read(state, end, is_current):
            return False
        while True:
            fence = self._fence(state)
            end = await self.transport.append(partition, [encode_record(fence)]) + 1
            if not await self._read(state, end, is_current):
                return False
            if state.reader.writer == fence.writer:
                break
        await self._check_commands(state)
        self.context.watcher.claimed(partition, state.reader.epoch, end - start, self.context.clock() - started)
        return True

    async def _open(self, partition: int, first_record: int) -> PartitionState:
        context = self.context
        archive = archive_store(context.settings, partition)
        opening = partial(
            PartitionState.open,
            context.data,
            partition,
            cluster_id=context.topics.cluster_id,
            topic_id=context.topics.events_id,
            archive=archive,
            memory_bytes=context.settings.store_cache_bytes // context.topics.partitions,
            first_record=first_record,
        )
        state = opening() if archive is None else await asyncio.to_thread(opening)  # it may download a base
        self._states[partition] = state
        return state

    def _fence(self, state: PartitionState) -> Fence:
        context, cluster = self.context, state.state.cluster
        self._claims += 1
        writer = f"{context.writer}-{self._claims}"
        events: tuple[bytes, ...] = ()
        if (cluster.settings_pairs, cluster.release) != (context.decision_settings, context.release):
            at_ms = max(self.context.clock_ms(), state.last_ms)
            before = cluster.settings_pairs if cluster.release else None
            changed = SettingsChanged(context.decision_settings, context.release, before)
            events = (encode_event(at_ms, Cause("ChangeSettings", RequestId(f"settings-{writer}")), changed),)
        reader = state.reader
        return Fence(reader.epoch + 1, writer, context.release, EVENT_VERSION, events, reader.next_source)

    async def _read(self, state: PartitionState, end: int, is_current: IsCurrent) -> bool:
        """Read the events partition up to `end`; False if `is_current` becomes false."""
        start = state.reader.kafka_offset
        if start < end:
            async with aclosing(self.transport.read(state.partition, start, end)) as portions:
                async for portion in portions:
                    for offset, value in portion:
                        state.accept(offset, value)
                    state.commit()
                    if not is_current():
                        return False
                    await asyncio.sleep(0)
        return is_current()

    async def _check_commands(self, state: PartitionState) -> None:
        """Raise CommandsMissing unless the next command exists, or is the next to be appended."""
        following = state.reader.next_source
        begin, end = await self.transport.commands_range(state.partition)
        where = f"commands partition {state.partition}"
        if following < begin:
            raise CommandsMissing(
                f"{where}: commands {following} to {begin - 1} were deleted before they were decided; "
                "raise retention.ms of the commands topic, and keep workers running"
            )
        if following > end:
            raise CommandsMissing(
                f"{where} ends at {end}, and the events topic proves {following} commands: it was recreated. "
                "Recreate both topics, or choose others with stream.commands.topic and stream.events.topic"
            )

    # --- deciding

    async def handle(self, commands: Sequence[Sourced]) -> None:
        """Decide commands of active partitions. Other commands, and decided commands, are dropped.

        Returns when all is acknowledged and committed. Raises PartitionsLost, CommandsMissing, CommandFromNewerVersion,
        PolicyRunnerClosed.
        """
        async with self._lock:
            batches: list[tuple[PartitionBatch, asyncio.Task[int]]] = []
            started = self.context.clock()
            try:
                for partition, group in _by_partition(commands).items():
                    if partition in self.leaders:
                        batch = await self._decided(partition, group)
                        if batch.values:
                            append = self.transport.append(partition, batch.values)
                            batches.append((batch, asyncio.create_task(append)))
                for batch, appending in batches:
                    if await appending != batch.first_record:
                        await self._find_own(batch.partition, batch.first_record, batch.values)
            except KafkaUnavailable as error:
                await asyncio.gather(*(appending for _, appending in batches), return_exceptions=True)
                await self._release(str(error))
                raise PartitionsLost(str(error)) from error
            for batch, _ in batches:
                batch.partition.commit()
                for fault in batch.faults:
                    self.context.watcher.skipped(fault)
                for sourced, command in batch.copies:
                    self.context.watcher.duplicate(sourced, command)
                self.context.watcher.committed(len(batch.values), batch.records, self.context.clock() - started)
                self.leaders[batch.partition.partition].decided_further(batch.records)

    async def _decided(self, partition: int, commands: list[Sourced]) -> PartitionBatch:
        state, leader, context = self._states[partition], self.leaders[partition], self.context
        following = state.reader.next_source
        fresh: list[Sourced] = []
        for sourced in commands:
            if sourced.offset == following + len(fresh):
                fresh.append(sourced)
            elif sourced.offset > following + len(fresh):
                await self._undelivered_command(partition, following + len(fresh), sourced.offset)
        immediate_commands = leader.brokers.immediate_commands
        batch = PartitionBatch(state, context.topics.partitions, context.judge, leader.cluster, immediate_commands)
        await batch.decide_all(fresh)
        return batch

    async def _undelivered_command(self, partition: int, expected: int, received: int) -> None:
        """A driver skipped a command. Raises KafkaUnavailable if it still exists, so that it is fetched again."""
        what = f"commands partition {partition}: expected command {expected}, got {received}"
        begin, _ = await self.transport.commands_range(partition)
        if expected < begin:
            raise CommandsMissing(f"{what}; the oldest in the topic is {begin}")
        skipped, times = self._undelivered.get(partition, (expected, 0))
        times = times + 1 if skipped == expected else 1
        self._undelivered[partition] = expected, times
        if times == DELIVERIES_MAX:
            raise CommandsMissing(
                f"{what}, {times} times: the topic must have cleanup.policy=delete and no transactional writers"
            )
        raise KafkaUnavailable(what)

    async def _find_own(self, state: PartitionState, start: int, values: Sequence[bytes]) -> None:
        """Another writer's records are at the expected offset: read on to see whether this worker's records count.

        This worker's records count if the others do not: a replaced worker may write for a while before it notices.
        """
        partition, epoch, found = state.partition, state.reader.epoch, 0
        _, end = await self.transport.events_range(partition)
        async with aclosing(self.transport.read(partition, start, end)) as portions:
            async for portion in portions:
                for _, value in portion:
                    if found < len(values) and value == values[found]:
                        found += 1
                        continue
                    record = decode_record(value)
                    if isinstance(record, Fence) and record.epoch == epoch + 1:
                        raise KafkaUnavailable(f"events partition {partition} was taken over by {record.writer}")
        if found < len(values):
            raise KafkaUnavailable(
                f"events partition {partition}: Kafka did not store {len(values) - found} of {len(values)} records of "
                "this worker"
            )
        state.reader.skip(end - start - len(values))


def _by_partition(commands: Sequence[Sourced]) -> dict[int, list[Sourced]]:
    """The commands of each partition, in order, together: a partition has one append in flight.

    With two appends, the first could fail and the second arrive. The topic would then hold decisions based on missing
    ones, and the partition would be unreadable.
    """
    groups: dict[int, list[Sourced]] = {}
    for sourced in commands:
        groups.setdefault(sourced.partition, []).append(sourced)
    return groups
