"""Random walks of Kafka's controller: batches of records, each valid after the ones before. Hypothesis draws the seed
and the number of batches."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from random import Random
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from controller.kafka.messages import records as kinds
from controller.kafka.messages.access import EntityData
from controller.kafka.messages.records import MetadataRecord, PartitionChangeRecord
from controller.quorum.log.image import MetadataImage
from controller.quorum.log.record_kinds import CORDONED_SINCE
from events.names import shard_key
from tests.brokers.kraft.follower import ENTRY, LOGIN, change, config, level, partition, registered

NAMES = ("a", "b", "a.b", "a_b", "pay.orders")
BROKERS = (1, 2, 3, 4)
KEYS = ("retention.ms", "min.insync.replicas", "cleanup.policy")
RESOURCES = ((4, ""), (4, "1"), (16, "all"), (32, "group"))
DIRECTORIES = tuple(bytes([n]) * 16 for n in range(100, 104))

Batch = tuple[MetadataRecord, ...]


def walks(batches_max: int = 40) -> st.SearchStrategy[tuple[Batch, ...]]:
    return st.builds(walk, st.integers(0, 2**32 - 1), st.integers(1, batches_max))


def walk(seed: int, batches: int) -> tuple[Batch, ...]:
    kafka = KafkaWalk(Random(seed))
    return (kafka.first(), *(kafka.batch() for _ in range(batches)))


class KafkaWalk:
    """A controller that decides at random and records its decisions."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.image = MetadataImage()
        self.offset = 0
        self.count = 0
        self.level = 0

    def first(self) -> Batch:
        """The first batch of a log."""
        self.level = self.chance.choice((27, CORDONED_SINCE))
        record = level("metadata.version", self.level)
        self.image.apply(record)
        self.offset += 1
        return (record,)

    def batch(self) -> Batch:
        records: list[MetadataRecord] = []
        steps = 1 + self.chance.choice((0, 0, 0, 1, 2, 5))
        for _ in range(steps):
            step = self.chance.choices(STEPS, WEIGHTS)[0]
            for record in step(self):
                records.append(record)
                self.image.apply(record)
                self.offset += 1
        if not records:
            records = [kinds.NoOpRecord()]
            self.offset += 1
        return tuple(records)

    # --- brokers

    def register(self) -> Iterator[MetadataRecord]:
        broker_id = self.chance.choice(BROKERS)
        yield replace(
            registered(broker_id, self.offset),
            incarnation_id=self._id("incarnation"),
            rack=self.chance.choice((None, "a", "b")),
            fenced=self.chance.random() < 0.8,
            in_controlled_shutdown=self.chance.random() < 0.1,
            log_dirs=DIRECTORIES[: self.chance.randint(1, 2)],
            cordoned_log_dirs=self._cordoned(),
        )

    def change_broker(self) -> Iterator[MetadataRecord]:
        for one in self._some(kinds.RegisterBrokerRecord):
            yield kinds.BrokerRegistrationChangeRecord(
                broker_id=one.broker_id,
                broker_epoch=one.broker_epoch,
                fenced=self.chance.choice((-1, 0, 1)),
                in_controlled_shutdown=self.chance.choice((0, 0, 1)),
                log_dirs=self.chance.choice(((), DIRECTORIES[:1], DIRECTORIES[1:3])),
                cordoned_log_dirs=self._cordoned(),
            )

    def fence_as_before(self) -> Iterator[MetadataRecord]:
        for one in self._some(kinds.RegisterBrokerRecord):
            kind = self.chance.choice((kinds.FenceBrokerRecord, kinds.UnfenceBrokerRecord))
            yield kind(id=one.broker_id, epoch=one.broker_epoch)

    def unregister(self) -> Iterator[MetadataRecord]:
        for one in self._some(kinds.RegisterBrokerRecord):
            yield kinds.UnregisterBrokerRecord(broker_id=one.broker_id, broker_epoch=one.broker_epoch)

    # --- topics

    def create(self) -> Iterator[MetadataRecord]:
        taken = {shard_key(each.name) for each in self.image.all(kinds.TopicRecord)}
        names = [name for name in NAMES if shard_key(name) not in taken]
        if names:
            yield from self._created(self.chance.choice(names))

    def _created(self, name: str) -> Iterator[MetadataRecord]:
        topic_id = self._id("topic")
        yield kinds.TopicRecord(name=name, topic_id=topic_id)
        if self.chance.random() < 0.5:
            yield config(2, name, self.chance.choice(KEYS), "1")
        yield from self._placed(topic_id, range(self.chance.randint(1, 3)))

    def _placed(self, topic_id: bytes, indexes: range) -> Iterator[MetadataRecord]:
        for index in self.chance.sample(indexes, len(indexes)):
            replicas = self._replicas()
            directories = tuple(self.chance.choice(DIRECTORIES) for _ in replicas)
            yield replace(partition(topic_id, index, *replicas), directories=directories)

    def delete(self) -> Iterator[MetadataRecord]:
        for one in self._some(kinds.TopicRecord):
            yield kinds.RemoveTopicRecord(topic_id=one.topic_id)
            if self.chance.random() < 0.5:
                same_key = [name for name in NAMES if shard_key(name) == shard_key(one.name)]
                yield from self._created(self.chance.choice(same_key))

    def add_partitions(self) -> Iterator[MetadataRecord]:
        for one in self._some(kinds.TopicRecord):
            count = len(self.image.partitions[one.topic_id])
            yield from self._placed(one.topic_id, range(count, count + self.chance.randint(1, 3)))

    def change_partition(self) -> Iterator[MetadataRecord]:
        """In one of twelve cases with a record that Kafka's controllers never write, but readers accept."""
        for one in self._some(kinds.TopicRecord):
            index, known = self.chance.choice(list(self.image.partitions[one.topic_id].items()))
            if self.chance.random() < 1 / 12:
                yield replace(known, isr=known.replicas[:1], partition_epoch=known.partition_epoch + 5)
            else:
                yield self._change(one.topic_id, index)

    def _change(self, topic_id: bytes, index: int) -> PartitionChangeRecord:
        changes: dict[str, Any] = {}
        if self.chance.random() < 0.3:
            replicas = self._replicas()
            changes = {"replicas": replicas, "directories": tuple(self.chance.choice(DIRECTORIES) for _ in replicas)}
        for name in ("isr", "adding_replicas", "removing_replicas", "eligible_leader_replicas", "last_known_elr"):
            if self.chance.random() < 0.3:
                changes[name] = self.chance.choice(((), self._replicas()))
        if self.chance.random() < 0.4:
            changes["leader"] = self.chance.choice((-1, *BROKERS))
        if self.chance.random() < 0.1:
            changes["leader_recovery_state"] = self.chance.choice((0, 1))
        return change(topic_id, index, **changes)

    def clear_eligible(self) -> Iterator[MetadataRecord]:
        name = self.chance.choice(["", *(each.name for each in self._some(kinds.TopicRecord))])
        yield kinds.ClearElrRecord(topic_name=name)

    # --- other records

    def configure(self) -> Iterator[MetadataRecord]:
        resources = [*RESOURCES, *((2, each.name) for each in self.image.all(kinds.TopicRecord))]
        kind, name = self.chance.choice(resources)
        value = self.chance.choice((None, "1", "2"))
        yield config(kind, name, self.chance.choice(KEYS), value)

    def limit(self) -> Iterator[MetadataRecord]:
        parts = self.chance.choice(((("user", "bob"),), (("client-id", None), ("user", None)), (("ip", "10.0.0.1"),)))
        entity = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in parts)
        yield kinds.ClientQuotaRecord(
            entity=tuple(self.chance.sample(entity, len(entity))),
            key=self.chance.choice(("producer_byte_rate", "consumer_byte_rate")),
            value=float(self.chance.randint(1, 9)),
            remove=self.chance.random() < 0.3,
        )

    def log_in(self) -> Iterator[MetadataRecord]:
        user, mechanism = self.chance.choice(("alice", "bob")), self.chance.choice((1, 2))
        login = replace(LOGIN, name=user, mechanism=mechanism, stored_key=self._id("key"))
        if self.image.find(login) is not None and self.chance.random() < 0.5:
            yield kinds.RemoveUserScramCredentialRecord(name=user, mechanism=mechanism)
        else:
            yield login

    def permit(self) -> Iterator[MetadataRecord]:
        held = {(each.principal, each.operation) for each in self.image.all(kinds.AccessControlEntryRecord)}
        one = (f"User:{self.chance.choice(('alice', 'bob'))}", self.chance.randint(3, 8))
        if one not in held:
            yield replace(ENTRY, id=self._id("entry"), principal=one[0], operation=one[1])

    def permit_no_more(self) -> Iterator[MetadataRecord]:
        for one in self._some(kinds.AccessControlEntryRecord):
            yield kinds.RemoveAccessControlEntryRecord(id=one.id)
            if self.chance.random() < 0.3:
                yield replace(one, id=self._id("entry"))

    def set_feature(self) -> Iterator[MetadataRecord]:
        name = self.chance.choice(("group.version", "eligible.leader.replicas.version"))
        yield level(name, self.chance.choice((0, 1)))

    def give_producer_ids(self) -> Iterator[MetadataRecord]:
        for one in self._some(kinds.RegisterBrokerRecord):
            known = next((each.next_producer_id for each in self.image.all(kinds.ProducerIdsRecord)), 0)
            yield kinds.ProducerIdsRecord(
                broker_id=one.broker_id, broker_epoch=one.broker_epoch, next_producer_id=known + 1000
            )

    def not_the_machines(self) -> Iterator[MetadataRecord]:
        yield self.chance.choice(
            (
                kinds.NoOpRecord(),
                kinds.RegisterControllerRecord(controller_id=3001),
                kinds.UnregisterControllerRecord(controller_id=3001),
                kinds.DelegationTokenRecord(owner="User:a", token_id="t"),
                kinds.RemoveDelegationTokenRecord(token_id="t"),
                kinds.ZkMigrationStateRecord(zk_migration_state=0),
            )
        )

    # --- random values

    def _cordoned(self) -> tuple[bytes, ...] | None:
        return self.chance.choice((None, None, (), DIRECTORIES[:1])) if self.level >= CORDONED_SINCE else None

    def _some(self, kind: type[Any]) -> list[Any]:
        """An existing one, or None."""
        there = list(self.image.all(kind))
        return [self.chance.choice(there)] if there else []

    def _replicas(self) -> tuple[int, ...]:
        return tuple(self.chance.sample(BROKERS, self.chance.randint(1, 3)))

    def _id(self, what: str) -> bytes:
        self.count += 1
        return sha256(f"{what} {self.count}".encode()).digest()[:16]


Step = Callable[[KafkaWalk], Iterator[MetadataRecord]]
_WEIGHED: dict[Step, int] = {
    KafkaWalk.register: 6,
    KafkaWalk.change_broker: 6,
    KafkaWalk.fence_as_before: 2,
    KafkaWalk.unregister: 1,
    KafkaWalk.create: 8,
    KafkaWalk.delete: 4,
    KafkaWalk.add_partitions: 3,
    KafkaWalk.change_partition: 13,
    KafkaWalk.clear_eligible: 2,
    KafkaWalk.configure: 8,
    KafkaWalk.limit: 3,
    KafkaWalk.log_in: 3,
    KafkaWalk.permit: 3,
    KafkaWalk.permit_no_more: 2,
    KafkaWalk.set_feature: 2,
    KafkaWalk.give_producer_ids: 2,
    KafkaWalk.not_the_machines: 2,
}
STEPS, WEIGHTS = tuple(_WEIGHED), tuple(_WEIGHED.values())
