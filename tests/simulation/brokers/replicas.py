"""A model of a broker's replicas: leaders append numbers, followers fetch them, and leaders change the ISR.

It models Kafka's `Partition`, `AlterPartitionManager` and `AssignmentsManager`. A number is acknowledged when the
maximal ISR has it (KIP-497), and only while the ISR has min.insync.replicas (KIP-966). The leader reports ISR members
with their broker epochs (KIP-903). Brokers report the directory of a replica (KIP-858).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.kafka.messages import ApiKey, cluster
from controller.kafka.messages.records import PartitionRecord
from controller.machine.errors import ErrorCode
from tests.simulation.brokers.machine import Key, Replica
from tests.simulation.virtual_time import virtual_loop
from tests.simulation.world import ConnectionLost

if TYPE_CHECKING:
    from tests.simulation.brokers.broker import Broker

LAG_S = 1.5
"""replica.lag.time.max.ms."""
ENTRIES_MAX = 150
"""Maximum length of a partition's log."""
TAKES = 0.4
"""Probability per tick that a leader appends a number."""
AGAIN = (int(ErrorCode.INELIGIBLE_REPLICA),)
"""After these errors the leader keeps its committed ISR; after others it waits for new metadata."""
Pair = tuple[Key, bytes]
"""A partition, and the directory of its replica."""


class Remote:
    """The leader's view of a follower's progress."""

    __slots__ = ("caught_up_at", "end", "epoch", "fetched_at", "leader_end")

    def __init__(self, now: float) -> None:
        self.end, self.epoch = -1, -1
        self.caught_up_at = self.fetched_at = now
        self.leader_end = 1 << 60
        """The leader's log end offset at the follower's last fetch."""


class Led:
    """The leader's state of a partition in one epoch."""

    def __init__(self, partition: PartitionRecord, start: int, now: float) -> None:
        self.epoch = partition.leader_epoch
        self.start = start
        """The leader's log end offset at the start of its epoch."""
        self.remotes = {each: Remote(now) for each in partition.replicas}
        self.high_watermark = 0
        self.waiting: list[tuple[int, int]] = []
        """(offset, number) of appended numbers that are not acknowledged yet."""
        self.take(partition)

    def take(self, partition: PartitionRecord) -> None:
        """Apply a newer partition record."""
        self.isr, self.partition_epoch = partition.isr, partition.partition_epoch
        self.pending: tuple[int, ...] | None = None
        """The ISR that was reported but not confirmed yet."""
        self.is_sent = False

    def fetched(self, follower: Broker, end: int, leader_end: int, now: float) -> None:
        """A follower fetches from offset `end`, so it has everything below."""
        remote = self.remotes.setdefault(follower.id, Remote(now))
        remote.end, remote.epoch = end, follower.epoch if follower.epoch is not None else -1
        if end >= leader_end:
            remote.caught_up_at = now
        elif end >= remote.leader_end:
            remote.caught_up_at = max(remote.caught_up_at, remote.fetched_at)
        remote.fetched_at, remote.leader_end = now, leader_end

    @property
    def maximal_isr(self) -> set[int]:
        """The union of the committed and the pending ISR."""
        return {*self.isr, *(self.pending or ())}


class Replicas:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._world, self._machine = broker.world, broker.machine
        self.led: dict[Key, Led] = {}
        self.changed = True
        self._mine: dict[Key, PartitionRecord] = {}
        self._min_isrs: dict[bytes, int] = {}
        self._reports = False

    def serves(self, topic_id: bytes, index: int) -> bool:
        self._look()
        mine = self._mine.get((topic_id, index))
        return mine is not None and mine.leader == self._broker.id and self._broker.is_caught_up

    def _look(self) -> None:
        if self.changed:
            view, self.changed = self._broker.view, False
            self._mine = view.partitions_of(self._broker.id)
            self._min_isrs = {topic_id: view.min_isr(topic_id) for topic_id, _ in self._mine}
            for key in self._machine.replicas.keys() - self._mine.keys():
                del self._machine.replicas[key]

    def tick(self) -> tuple[dict[Key, cluster.AlterPartitionData], list[Pair]]:
        """Lead and follow for one step. Returns the changes to report, none while a report is in flight."""
        self._look()
        me, now = self._broker.id, virtual_loop().time()
        moved: list[Pair] = []
        self.led = {key: led for key, led in self.led.items() if key in self._mine}
        for key, partition in self._mine.items():
            replica = self._machine.replica(key, partition)
            known = self._machine.replicas.get(key)
            lie = dict(zip(partition.replicas, partition.directories, strict=False))
            is_seen = known is not None and known.directory in self._broker.directories  # else it failed before
            if known is not None and is_seen and lie.get(me, known.directory) != known.directory:
                moved.append((key, known.directory))
            if replica is None or partition.leader != me:
                self.led.pop(key, None)
                if replica is not None and partition.leader >= 0:
                    self._follow(key, partition, replica, now)
            else:
                self._lead(key, partition, replica, now)
        if self._reports:
            return {}, []
        reports = {key: self._report(key, led) for key, led in self.led.items() if led.pending and not led.is_sent}
        return reports, moved

    def as_before(self) -> tuple[dict[Key, cluster.AlterPartitionData], list[Pair]]:
        """The reports of a replaced process, which does not know that it was replaced."""
        if self._reports:
            return {}, []
        for led in self.led.values():
            led.pending, led.is_sent = led.isr[:1], False
        return {key: self._report(key, led) for key, led in self.led.items()}, []

    # --- following

    def _follow(self, key: Key, partition: PartitionRecord, replica: Replica, now: float) -> None:
        leader = self._world.machines[partition.leader].broker
        if leader is None or leader.is_paused:
            return
        led, log = leader.replicas.led.get(key), leader.machine.replicas.get(key)
        if led is None or log is None or led.epoch != partition.leader_epoch or log.directory in leader.machine.failed:
            return
        replica.agree_with(log)
        led.fetched(self._broker, len(replica.entries), len(log.entries), now)
        replica.entries += log.entries[len(replica.entries) : len(replica.entries) + self._world.rng.randint(1, 20)]
        if self._world.rng.random() < 0.3:
            replica.flushed = len(replica.entries)

    # --- leading

    def _lead(self, key: Key, partition: PartitionRecord, replica: Replica, now: float) -> None:
        led = self.led.get(key)
        if led is None or led.epoch != partition.leader_epoch:
            led = self.led[key] = Led(partition, len(replica.entries), now)
            self._world.answers.leads(key, self._broker, led.epoch)
        elif partition.partition_epoch > led.partition_epoch:
            led.take(partition)
        for each in partition.replicas:
            led.remotes.setdefault(each, Remote(now))
        enough = len(led.isr) >= self._min_isrs[key[0]]
        if enough:
            self._acknowledge(key, led, replica)
            if self._world.produces and len(replica.entries) < ENTRIES_MAX and self._world.rng.random() < TAKES:
                number = self._world.next_number()
                led.waiting.append((len(replica.entries), number))
                replica.entries.append((led.epoch, number))
        if self._world.rng.random() < 0.3:
            replica.flushed = len(replica.entries)
        if led.pending is None:
            self._change_isr(led, partition, replica, now)

    def _acknowledge(self, key: Key, led: Led, replica: Replica) -> None:
        me = self._broker.id
        ends = [led.remotes[each].end if each in led.remotes else -1 for each in led.maximal_isr if each != me]
        led.high_watermark = max(led.high_watermark, min([len(replica.entries), *ends]))
        while led.waiting and led.waiting[0][0] < led.high_watermark:
            self._world.witness.acknowledged(key, led.waiting.pop(0)[1], led.epoch)

    def _change_isr(self, led: Led, partition: PartitionRecord, replica: Replica, now: float) -> None:
        me = self._broker.id
        late = {each for each in led.isr if each != me and now - led.remotes[each].caught_up_at > LAG_S}
        if late:
            led.pending = tuple(each for each in led.isr if each not in late)
            return
        back = [each for each in partition.replicas if each not in led.isr and each >= 0 and self._may_join(led, each)]
        if back:
            led.pending = (*led.isr, back[0])

    def _may_join(self, led: Led, broker_id: int) -> bool:
        remote, known = led.remotes[broker_id], self._broker.view.broker(broker_id)
        if known is None or known.fenced or known.in_controlled_shutdown:
            return False
        return remote.end >= max(led.high_watermark, led.start) and remote.epoch == known.broker_epoch

    # --- reports to the controller

    def _report(self, key: Key, led: Led) -> cluster.AlterPartitionData:
        assert led.pending is not None, "no ISR change is pending"
        led.is_sent = True
        states = [cluster.BrokerState(broker_id=each, broker_epoch=self._epoch_of(led, each)) for each in led.pending]
        has_epochs = self._machine.isr_version >= 3
        return cluster.AlterPartitionData(
            partition_index=key[1],
            leader_epoch=led.epoch,
            partition_epoch=led.partition_epoch,
            new_isr=() if has_epochs else led.pending,
            new_isr_with_epochs=tuple(states) if has_epochs else (),
        )

    def _epoch_of(self, led: Led, broker_id: int) -> int:
        if broker_id == self._broker.id:
            return self._broker.epoch or -1
        return led.remotes[broker_id].epoch

    async def report(self, reports: dict[Key, cluster.AlterPartitionData], moved: list[Pair]) -> None:
        """Send the reports to the controller, one request at a time."""
        self._reports = True
        try:
            if reports:
                await self._alter(reports)
            if moved:
                await self._assign(moved)
        except ConnectionLost:
            self._again(reports)
        finally:
            self._reports = False

    def _again(self, reports: dict[Key, cluster.AlterPartitionData]) -> None:
        for key, report in reports.items():
            led = self.led.get(key)
            if led is not None and (led.epoch, led.partition_epoch) == (report.leader_epoch, report.partition_epoch):
                led.is_sent = False

    async def _alter(self, reports: dict[Key, cluster.AlterPartitionData]) -> None:
        broker = self._broker
        by_topic: dict[bytes, list[cluster.AlterPartitionData]] = {}
        for (topic_id, _), report in reports.items():
            by_topic.setdefault(topic_id, []).append(report)
        request = cluster.AlterPartitionRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch or -1,
            topics=tuple(
                cluster.AlterPartitionTopic(topic_id=each, partitions=tuple(all_)) for each, all_ in by_topic.items()
            ),
        )
        seen = self._world.witness.end
        answer = await broker.call("isr", ApiKey.ALTER_PARTITION, self._machine.isr_version, request)
        self._world.answers.alter_partition(seen, request, answer)
        if answer.error_code:
            self._world.counts[f"AlterPartition {answer.error_code}"] += 1
            self._again(reports)
            return
        for topic in answer.topics:
            for one in topic.partitions:
                self._world.counts[f"AlterPartition {one.error_code}"] += 1
                key = (topic.topic_id, one.partition_index)
                self._altered(self.led.get(key), reports[key], one)

    def _altered(self, led: Led | None, report: cluster.AlterPartitionData, one: cluster.AlterPartitionResult) -> None:
        if led is None or (led.epoch, led.partition_epoch) != (report.leader_epoch, report.partition_epoch):
            return
        if one.error_code in AGAIN:
            led.pending, led.is_sent = None, False
        elif one.error_code == 0 and one.leader_epoch == led.epoch:
            led.isr, led.partition_epoch, led.pending, led.is_sent = one.isr, one.partition_epoch, None, False
        elif one.error_code == ErrorCode.NOT_CONTROLLER:
            led.is_sent = False

    async def _assign(self, moved: list[Pair]) -> None:
        broker = self._broker
        by_place: dict[bytes, dict[bytes, list[cluster.AssignReplicasPartition]]] = {}
        for (topic_id, index), directory in moved:
            one = cluster.AssignReplicasPartition(partition_index=index)
            by_place.setdefault(directory, {}).setdefault(topic_id, []).append(one)
        request = cluster.AssignReplicasToDirsRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch or -1,
            directories=tuple(
                cluster.AssignReplicasDirectory(
                    id=directory,
                    topics=tuple(
                        cluster.AssignReplicasTopic(topic_id=each, partitions=tuple(all_))
                        for each, all_ in topics.items()
                    ),
                )
                for directory, topics in by_place.items()
            ),
        )
        seen = self._world.witness.end
        answer = await broker.call("isr", ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, request)
        self._world.answers.assigned(seen, request, answer)
        self._world.counts[f"AssignReplicasToDirs {answer.error_code}"] += 1
