"""An independent model of brokers and partitions, built from the durable events, and its invariants.

It shares no rule with the machine. These hold after each durable event. Epochs increase by one and never decrease. A
leader is in the ISR and was live at its election. An elected leader has every acknowledged number, unless the topic or
the request allows unclean election. The ELR is disjoint from the ISR, and empty if the ISR has min.insync.replicas.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from controller.kafka.messages.records import RegisterBrokerRecord
from events import catalog
from events.catalog import Cause, Recorded
from events.codec import decode_event
from tests.simulation.brokers.machine import BROKERS, MIN_ISR, Key, decoded
from tests.simulation.witness import Witness

if TYPE_CHECKING:
    from tests.simulation.brokers.world import World

NOBODY = -1
NOWHERE = bytes(16)
UNCLEAN = "unclean.leader.election.enable"
ELR = "eligible.leader.replicas.version"


class Known(NamedTuple):
    """A broker's state from the events; `epoch` is the broker epoch in Kafka's protocol."""

    epoch: int
    incarnation: str
    fenced: bool = True
    leaving: bool = False
    directories: tuple[bytes, ...] = ()
    unclean: bool = False

    @property
    def lives(self) -> bool:
        return not self.fenced and not self.leaving


class Part(NamedTuple):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...]
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    recovering: bool = False

    def directory_of(self, broker_id: int) -> bytes:
        found = zip(self.replicas, self.directories, strict=False)
        return next((directory for replica, directory in found if replica == broker_id), NOWHERE)


def _part(partition: catalog.Partition) -> Part:
    metadata = partition.replica_metadata
    assert metadata is not None, "the partition has no replica metadata"
    return Part(
        partition.replicas,
        partition.isr,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        metadata.directories,
        metadata.elr,
        metadata.last_known_elr,
        metadata.recovering,
    )


class History:
    """The values of a variable over time; time is the number of durable events."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.values: list[Any] = []

    def add(self, end: int, value: Any) -> None:
        self.ends.append(end)
        self.values.append(value)

    def at(self, end: int) -> Any:
        """The value after `end` events; None before the first."""
        index = bisect_right(self.ends, end) - 1
        return self.values[index] if index >= 0 else None

    @property
    def now(self) -> Any:
        return self.values[-1] if self.values else None


class LifeWitness(Witness):
    """Reads the event log, and the registrations in the metadata log."""

    def __init__(self, world: World) -> None:
        super().__init__(world.disk.kept)
        self._world = world
        self.brokers: dict[int, History] = {}
        self.parts: dict[Key, History] = {}
        self.names: dict[str, bytes] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.of_all: dict[str, str] = {}
        self.elr = False
        self._cause: Cause | None = None
        self._min_isr: dict[str, int] = {}
        """The min.insync.replicas by topic before the current command, which decides by it."""
        self.wire: dict[str, int] = {}
        """Incarnation → broker epoch, which is the offset of its registration in the metadata log."""
        self.acked: dict[Key, set[int]] = {}
        self._unclean: dict[Key, int] = {}
        """The newest leader epoch that began with an unclean election."""
        self._lossy: set[Key] = set()
        """Partitions whose uncleanly elected leader has not started to lead."""
        self._early: dict[tuple[Key, int], tuple[int, set[int]]] = {}
        """(partition, epoch) → leader and its numbers, if it leads before its election is in the event log."""
        self._metadata_end = 0

    @property
    def end(self) -> int:
        """The number of durable events."""
        return len(self.seen)

    def look(self) -> None:
        """Read the events that have become durable since the last call."""
        if len(self.seen) >= self._log.durable_offset:
            return
        self._look_at_metadata()
        for offset, value in self._log.read(len(self.seen), self._log.durable_offset):
            record = decode_event(offset, value)
            self.seen.append(value)
            self._follow(record)
            self.take(record.event)

    def _look_at_metadata(self) -> None:
        for batch in self._world.quorum_disk.batches(self._metadata_end):
            for _, records in decoded(batch.data):
                for at, record in enumerate(records, batch.base_offset):
                    if isinstance(record, RegisterBrokerRecord):
                        assert record.broker_epoch == at, f"{record} is at offset {at}"
                        self.wire[record.incarnation_id.hex()] = at
        self._metadata_end = self._world.quorum_disk.durable_end

    def broker(self, broker_id: int, end: int | None = None) -> Known | None:
        history = self.brokers.get(broker_id)
        found: Known | None = None if history is None else history.now if end is None else history.at(end)
        return found

    def part(self, key: Key, end: int | None = None) -> Part | None:
        history = self.parts.get(key)
        found: Part | None = None if history is None else history.now if end is None else history.at(end)
        return found

    def config(self, topic: str, name: str) -> str | None:
        """The topic's config, or else the cluster-wide default."""
        return self.configs.get(topic, {}).get(name) or self.of_all.get(name)

    def min_isr(self, topic: str) -> int:
        first = self.part((self.names[topic], 0))
        factor = len(first.replicas) if first is not None else 1
        return min(int(self.config(topic, MIN_ISR) or 1), factor)

    # --- producers

    def acknowledged(self, key: Key, number: int, epoch: int) -> None:
        """The leader of an epoch has acknowledged a number to its producer."""
        self._world.counts["acknowledged"] += 1
        if (key, epoch) in self._early:
            self._early[key, epoch][1].add(number)
        if epoch >= self._unclean.get(key, 0):
            self.acked.setdefault(key, set()).add(number)

    def leads(self, key: Key, broker_id: int, epoch: int) -> None:
        """Check when a broker starts to lead: it has every acknowledged number, or was elected uncleanly."""
        part = self.part(key)
        if part is not None and epoch > part.leader_epoch:
            self._early[key, epoch] = broker_id, self._holds(broker_id, key)
        elif part is not None and (part.leader, part.leader_epoch) == (broker_id, epoch):
            self._leads_with(key, part, self._holds(broker_id, key))

    def _leads_with(self, key: Key, part: Part, held: set[int]) -> None:
        acked = self.acked.get(key, set())
        if key in self._lossy:
            self._lossy.discard(key)
            self.acked[key] = acked & held
            return
        assert acked <= held, f"acknowledged {sorted(acked - held)} are missing on leader {part.leader}: {part}"

    def _holds(self, broker_id: int, key: Key) -> set[int]:
        replica = self._world.machines[broker_id].replicas.get(key)
        return replica.numbers if replica is not None else set()

    # --- events

    def _follow(self, record: Recorded) -> None:
        event: Any = record.event
        if record.cause != self._cause:
            self._cause, self._min_isr = record.cause, {}
        match event:
            case catalog.BrokerRegistered():
                directories = event.details.log_dirs if event.details else ()
                known = Known(
                    self.wire[event.incarnation],
                    event.incarnation,
                    True,
                    False,
                    directories,
                    bool(event.details and not event.details.clean),
                )
                self.brokers.setdefault(event.broker_id, History()).add(self.end, known)
            case catalog.BrokerFenced():
                self._broker_is(event.broker_id, fenced=True)
            case catalog.BrokerUnfenced():
                self._broker_is(event.broker_id, fenced=False, unclean=False)
            case catalog.BrokerLeaving():
                self._broker_is(event.broker_id, leaving=True)
            case catalog.LogDirsChanged():
                self._broker_is(event.broker_id, directories=event.log_dirs)
            case catalog.BrokerUnregistered():
                self.brokers[event.broker_id].add(self.end, None)
            case catalog.FeaturesChanged():
                self.elr = dict(event.features).get(ELR, 0) > 0
            case catalog.ResourceConfigsChanged() if (event.kind, event.name) == (BROKERS, ""):
                self.of_all = dict(event.configs)
            case _:
                self._follow_topic(event, record.cause.command)

    def _follow_topic(self, event: Any, command: str) -> None:
        match event:
            case catalog.TopicCreated():
                self.names[event.topic] = event.topic_id
                self.configs[event.topic] = dict(event.configs)
                self._new(event.topic, 0, event.partitions)
            case catalog.PartitionsAdded():
                self._new(event.topic, event.first, event.partitions)
            case catalog.TopicConfigsChanged():
                self.configs[event.topic] = dict(event.configs)
            case catalog.TopicDeleted():
                topic_id = self.names.pop(event.topic)
                for key in self.parts:
                    if key[0] == topic_id:
                        self.parts[key].add(self.end, None)
                        self.acked.pop(key, None)
            case catalog.PartitionChanged():
                self._changed(event, command)

    def _broker_is(self, broker_id: int, **changes: Any) -> None:
        history = self.brokers[broker_id]
        history.add(self.end, history.now._replace(**changes))

    def _new(self, topic: str, first: int, partitions: Any) -> None:
        for index, one in enumerate(partitions, first):
            part = _part(one)
            key = (self.names[topic], index)
            self.parts.setdefault(key, History()).add(self.end, part)
            self._check(f"{topic}-{index}", part)
            assert part.leader == NOBODY or self._lives(part.leader, part), f"{topic}-{index}: dead leader: {part}"

    def _changed(self, event: catalog.PartitionChanged, command: str) -> None:
        key, name = (self.names[event.topic], event.partition), f"{event.topic}-{event.partition}"
        before, after = self.parts[key].now, _part(event.after)
        min_isr = self._min_isr.setdefault(event.topic, self.min_isr(event.topic))
        assert _part(event.before) == before, f"{name}: {event} after {before}"
        removed = {replica for replica in before.replicas if replica >= 0} - set(after.replicas)
        is_led_anew = after.leader != before.leader or bool(removed)
        epochs = before.leader_epoch + is_led_anew, before.partition_epoch + 1
        assert (after.leader_epoch, after.partition_epoch) == epochs, f"{name}: {event} after {before}"
        self.parts[key].add(self.end, after)
        self._check(name, after)
        if (after.isr, after.elr) != (before.isr, before.elr):
            is_enough = len(after.isr) >= min_isr
            assert not (after.elr and (is_enough or not self.elr)), f"{name}: the ELR must be empty: {after}"
        if is_led_anew and after.leader != NOBODY:
            self._elected(key, event.topic, before, after, command)
            leader, held = self._early.pop((key, after.leader_epoch), (NOBODY, set()))
            if leader == after.leader:
                self._leads_with(key, after, held)

    def _check(self, name: str, part: Part) -> None:
        assert part.leader == NOBODY or part.leader in part.isr, f"{name}: the leader is not in the ISR: {part}"
        assert {*part.isr, *part.elr} <= set(part.replicas), f"{name}: a member of ISR or ELR is not a replica: {part}"
        assert not set(part.isr) & set(part.elr), f"{name}: ISR and ELR overlap: {part}"
        assert len(set(part.isr)) == len(part.isr), f"{name}: duplicates in the ISR: {part}"
        assert part.isr or self.elr, f"{name}: the ISR is empty: {part}"
        assert all(member >= 0 for member in part.isr), f"{name}: a placeholder is in the ISR: {part}"

    def _lives(self, broker_id: int, part: Part) -> bool:
        known = self.broker(broker_id)
        return known is not None and known.lives and part.directory_of(broker_id) in (NOWHERE, *known.directories)

    def _elected(self, key: Key, topic: str, before: Part, after: Part, command: str) -> None:
        leader, name = after.leader, f"{topic}-{key[1]}"
        self._world.counts["elections"] += 1
        if leader != before.leader or before.leader == NOBODY:
            assert self._lives(leader, after), f"{name}: elected {leader} is not live: {self.broker(leader)}"
        if leader in before.isr or leader in before.elr or (command == "AlterPartition" and before.leader != NOBODY):
            return
        self._world.counts["unclean elections"] += 1
        eligible = [each for each in before.elr if not ((known := self.broker(each)) and known.unclean)]
        is_last = self.elr and not before.isr and not eligible and before.last_known == (leader,)
        allowed = self.config(topic, UNCLEAN) == "true" or command == "ElectLeaders" or is_last
        assert allowed, f"{name}: unclean election of {leader} by {command} is not allowed: {before}"
        self._unclean[key] = after.leader_epoch
        self._lossy.add(key)

    # --- after reconciliation

    def check_settled(self) -> None:
        """Check that every topic was reconciled after the last change of a broker."""
        for topic, (_, index), part in self._parts():
            self._check_settled(f"{topic}-{index}", topic, part)

    def _parts(self) -> Iterator[tuple[str, Key, Part]]:
        for topic, topic_id in self.names.items():
            for index in count():
                part = self.part((topic_id, index))
                if part is None:
                    break
                yield topic, (topic_id, index), part

    def _check_settled(self, name: str, topic: str, part: Part) -> None:
        dead = [each for each in part.isr if not self._lives(each, part)]
        if self.elr:
            assert not dead, f"{name}: {dead} in the ISR are not live: {part}"
        else:
            assert not dead or len(dead) == len(part.isr), f"{name}: {dead} in the ISR are not live: {part}"
        if part.leader != NOBODY:
            assert self._lives(part.leader, part), f"{name}: the leader is not live: {part}"
            return
        may = [*part.isr, *([] if part.isr else part.elr)]
        may = [each for each in may if self._lives(each, part)]
        assert not may, f"{name}: {may} could lead, but there is no leader: {part}"
        if self.config(topic, UNCLEAN) == "true":
            may = [each for each in part.replicas if self._lives(each, part)]
            assert not may, f"{name}: {may} could lead uncleanly, but there is no leader: {part}"

    def check_led(self) -> None:
        """Check after all brokers have run for a while: each leader has all acknowledged numbers, and all live replicas
        of its partition are in the ISR."""
        for topic, key, part in self._parts():
            if part.leader == NOBODY:
                continue
            name, acked, held = f"{topic}-{key[1]}", self.acked.get(key, set()), self._holds(part.leader, key)
            assert acked <= held, f"{name}: acknowledged {sorted(acked - held)} are missing on leader {part.leader}"
            missing = {each for each in part.replicas if self._lives(each, part)} - set(part.isr)
            assert not missing, f"{name}: {sorted(missing)} did not join the ISR: {part}"
