"""The topic store: state of the machine, views of readers, and cached topics."""

import random

import pytest
from msgspec.structs import replace

from controller.machine.access.acls import Acls
from controller.machine.access.bucket_map import changed
from controller.machine.state import Broker, Cluster, Counts, PendingCreate, RulesVersion, Topic
from controller.store import store as stores
from controller.store.keys import ACL, QUOTA, put_access
from controller.store.store import CLUSTER, TOPIC_ID, WAITING, TopicStore
from controller.store.stored_topics import TopicCache
from events.access import QuotaEntity
from events.catalog import Endpoint, Partition
from events.logs.log import Commit, Entry
from events.names import BrokerId, Offset, RequestId, ShardKey, TopicId, TopicName, shard_key
from tests.machine.access.tables import acl
from tests.projections.logs import kept, story
from tests.support.memory_log import InMemoryLog

NAMES = ("a", "b", "c.d", "c_d", "e")


def id_of(text: str) -> TopicId:
    return TopicId(text.encode().ljust(16, b"."))


def topic(name: str, partitions: int = 1, *, born: int = 0, ready: bool = True, topic_id: str = "") -> Topic:
    one = Partition((BrokerId(1),), (BrokerId(1),), BrokerId(1))
    return Topic(
        TopicName(name),
        id_of(topic_id or name),
        (one,) * partitions,
        (("retention.ms", "1"),),
        1_700_000_000_000,
        Offset(born),
        1_700_000_000_001 if ready else None,
        () if ready else (BrokerId(2),),
        None if ready else PendingCreate(RequestId("r"), 1, 2),
    )


class Bench:
    """A store on a log in memory."""

    def __init__(self, partitions_cached: int = 100) -> None:
        self.log = InMemoryLog("cluster")
        self.store = TopicStore(self.log, partitions_cached)
        self.state = self.store.state()

    def write(self) -> dict[bytes, bytes | None]:
        """Write the state of the machine, without a sync."""
        changes = self.store.changes(self.state)
        self.log.write(Commit((Entry(b"event"),), changes))
        return changes

    def flush(self) -> None:
        self.log.flush()
        self.store.became_durable(self.state)

    def commit(self, *topics: Topic, gone: tuple[str, ...] = ()) -> dict[bytes, bytes | None]:
        for name in gone:
            self.store.put(shard_key(name), None)
        for one in topics:
            self.store.put(shard_key(one.name), one)
        changes = self.write()
        self.flush()
        return changes

    def keys(self, kind: bytes) -> list[bytes]:
        return [key[1:] for key, _ in self.log.scan(kind)]


def test_stored_topics_are_visible_to_readers_when_durable() -> None:
    bench = Bench()
    first, second = topic("a"), topic("a", 3)
    bench.store.put(ShardKey("a"), first)
    assert bench.store.get(ShardKey("a")) is first
    assert bench.store.durable(ShardKey("a")) is None
    bench.write()
    assert bench.store.durable(ShardKey("a")) is None, "written, but not durable"
    assert [*bench.store.durable_from(None)] == []
    assert bench.store.durable_name_of(first.topic_id) is None
    assert bench.store.durable_counts == Counts(0, 0)
    bench.flush()
    assert bench.store.durable(ShardKey("a")) == first
    assert [*bench.store.durable_from(None)] == [first]
    assert bench.store.durable_name_of(first.topic_id) == "a"
    assert bench.store.durable_counts == Counts(1, 1)
    bench.store.put(ShardKey("a"), second)
    bench.write()
    assert bench.store.durable(ShardKey("a")) == first
    assert [*bench.store.durable_from(None)] == [first]
    bench.store.became_durable(bench.state)
    assert [*bench.store.durable_from(None)] == [second]
    assert bench.store.durable_counts == Counts(1, 3)


def test_a_deletion_is_visible_to_readers_when_durable() -> None:
    bench = Bench()
    bench.commit(*map(topic, ("a", "b", "d")))
    bench.store.put(ShardKey("b"), None)
    bench.store.put(ShardKey("c"), topic("c"))
    bench.write()
    assert [one.name for one in bench.store.durable_from(None)] == ["a", "b", "d"]
    assert [one.name for one in bench.store.durable_from("a")] == ["b", "d"]
    assert [one.name for one in bench.store.durable_from("b")] == ["d"]
    assert bench.store.durable_name_of(id_of("b")) == "b"
    bench.flush()
    assert [one.name for one in bench.store.durable_from(None)] == ["a", "c", "d"]
    assert bench.store.durable_name_of(id_of("b")) is None
    assert bench.keys(TOPIC_ID) == [id_of("a"), id_of("c"), id_of("d")]


def test_a_topic_recreated_in_one_commit_replaces_the_old_one() -> None:
    bench = Bench()
    bench.commit(topic("a", 2, topic_id="old"))
    bench.store.put(ShardKey("a"), None)
    bench.store.put(ShardKey("a"), topic("a", 5, born=7, ready=False, topic_id="new"))
    bench.write()
    assert bench.store.durable_name_of(id_of("old")) == "a"
    assert bench.store.durable_name_of(id_of("new")) is None
    bench.flush()
    assert bench.store.durable_name_of(id_of("old")) is None
    assert bench.store.durable_name_of(id_of("new")) == "a"
    assert bench.keys(TOPIC_ID) == [id_of("new")]
    assert bench.keys(WAITING) == [b"a"]
    assert bench.store.durable_counts == Counts(1, 5)


def test_a_topic_with_the_same_shard_key_replaces_the_old_one() -> None:
    bench = Bench()
    bench.commit(topic("c.d"))
    assert bench.store.durable_named("c.d") is not None
    assert bench.store.durable_named("c_d") is None, "another name has the shard key"
    bench.commit(topic("c_d"), gone=("c.d",))
    assert bench.store.durable_named("c.d") is None
    assert bench.store.durable_name_of(id_of("c_d")) == "c_d"
    assert bench.store.durable_counts == Counts(1, 1)


def test_pending_topics_are_loaded_in_creation_order() -> None:
    bench = Bench()
    bench.commit(topic("z", born=3, ready=False), topic("a", born=500, ready=False), topic("m", born=4, ready=False))
    bench.commit(topic("b"))
    again = TopicStore(bench.log).state()
    assert list(again.waiting.items()) == [("z", 3), ("m", 4), ("a", 500)]
    changes = bench.commit(topic("m", born=4, ready=True), gone=("z",))
    assert changes[WAITING + b"m"] is None
    assert list(TopicStore(bench.log).state().waiting) == ["a"]


def test_unchanged_topics_are_not_written() -> None:
    bench = Bench()
    bench.commit(topic("a"), topic("b"))
    bench.store.get(ShardKey("a"))
    bench.store.get(ShardKey("missing"))
    assert bench.store.changes(bench.state) == {}
    known = bench.store.get(ShardKey("b"))
    bench.store.put(ShardKey("b"), known)
    assert bench.store.changes(bench.state) == {}


def test_the_cluster_round_trips_through_the_store() -> None:
    bench = Bench()
    endpoint = Endpoint("PLAINTEXT", "h", 1)
    rules = RulesVersion(1, "[[rule]]", "0f", "User:ann")
    cluster = Cluster(settings_pairs=(("num.partitions", "3"), ("log.retention.ms", "9")), release="1", rules=rules)
    for broker_id, fenced in ((2, True), (1, False)):
        cluster = cluster.with_broker(Broker(BrokerId(broker_id), broker_id * 10, "i", "r", (endpoint,), fenced))
    bench.state.cluster = cluster
    bench.store.put(ShardKey("a"), topic("a"))
    bench.write()
    assert bench.store.durable_cluster == Cluster(), "not durable yet"
    bench.flush()
    assert bench.store.durable_cluster is cluster
    found = TopicStore(bench.log).durable_cluster
    assert (found.brokers, found.live, found.usable_racks) == (cluster.brokers, (1,), ("r",))
    assert found.rules == rules
    assert (found.last_broker_epoch, found.release, found.settings.num_partitions) == (20, "1", 3)
    assert found.settings.topic_defaults == (("log.retention.ms", "9"),)
    assert bench.store.changes(bench.state) == {}, "a second commit writes nothing"
    bench.state.cluster = cluster.with_brokers({BrokerId(1): cluster.brokers[BrokerId(1)]})
    assert [*bench.store.changes(bench.state)] == [CLUSTER], "broker events do not write rules"


def test_slices_are_limited_by_topics_and_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "TOPICS_PER_SLICE", 2)
    bench = Bench()
    bench.commit(*(topic(name, count) for name, count in (("a", 1), ("b", 5), ("c", 1), ("d", 9), ("e", 1))))
    names = [[one.name for one in some] for some in stores.topic_slices(lambda: bench.store, 6)]
    assert names == [["a", "b"], ["c", "d"], ["e"]]
    assert [one.name for one in next(stores.topic_slices(lambda: bench.store, 1, "c"))] == ["d"], "at least one topic"


@pytest.mark.parametrize("cached", [1, 5, 1000])
def test_the_topic_cache_does_not_change_results(cached: int) -> None:
    bench = Bench(cached)
    plain: dict[str, Topic] = {}
    rng = random.Random(cached)
    for born in range(400):
        name = f"t{rng.randrange(30)}"
        if rng.random() < 0.2:
            bench.commit(gone=(name,))
            plain.pop(name, None)
        else:
            plain[name] = topic(name, rng.randint(1, 4), born=born, topic_id=f"{name}/{born}")
            bench.commit(plain[name])
        looked = f"t{rng.randrange(30)}"
        assert bench.store.get(ShardKey(looked)) == plain.get(looked), f"after {born} commits"
        assert bench.store.durable(ShardKey(looked)) == plain.get(looked), f"readers, after {born} commits"
    assert [*bench.store.durable_from(None)] == [plain[name] for name in sorted(plain)]
    counts = Counts(len(plain), sum(len(one.partitions) for one in plain.values()))
    assert bench.store.durable_counts == TopicStore(bench.log).durable_counts == counts
    assert bench.keys(TOPIC_ID) == sorted(one.topic_id for one in plain.values())


def test_the_topic_cache_is_bounded_when_topics_grow() -> None:
    cache = TopicCache(10)
    for number in range(100):
        cache.put(ShardKey(f"t{number}"), topic("t", 3))
    held = [number for number in range(100) if cache.get(ShardKey(f"t{number}")) is not None]
    assert held == [97, 98, 99], "ten partitions"
    cache = TopicCache(10)
    for size in range(1, 9):
        for name in NAMES:
            cache.put(ShardKey(name), topic(name, size))
        held_partitions = sum(len(one.partitions) for name in NAMES if (one := cache.get(ShardKey(name))))
        assert held_partitions <= 10, f"{held_partitions} partitions are cached"


def test_recently_used_topics_stay_cached() -> None:
    cache = TopicCache(10)
    wanted = topic("wanted")
    cache.put(ShardKey("wanted"), wanted)
    for number in range(100):
        cache.put(ShardKey(f"t{number}"), topic("t", 2))
        assert cache.get(ShardKey("wanted")) is wanted, f"after {number + 1} others"
    cache.drop(ShardKey("wanted"))
    assert cache.get(ShardKey("wanted")) is None
    cache.drop(ShardKey("never there"))


ENTRIES = [acl(f"u{number}/allow/read/topic/t{number % 7}") for number in range(50)]
BOB: QuotaEntity = (("user", "bob"),)


def changes(before: Cluster, after: Cluster) -> dict[bytes, bytes | None]:
    puts: dict[bytes, bytes | None] = {}
    put_access(puts, before, after)
    return puts


def test_acl_and_quota_changes_write_only_changed_keys() -> None:
    before = Cluster(acls=Acls().with_all(ENTRIES))
    more = Cluster(acls=before.acls.with_all([acl("new/allow/read/topic/t1")]))
    fewer = Cluster(acls=before.acls.without(ENTRIES[:2]))
    assert [value for key, value in changes(before, more).items() if key.startswith(ACL)] == [b""]
    assert list(changes(before, fewer).values()) == [None, None]
    assert changes(before, before) == {}
    limited = replace(before, quotas=changed(before.quotas, BOB, (("controller_mutation_rate", 2.5),)))
    assert [key[:1] for key in changes(before, limited)] == [QUOTA]
    assert list(changes(limited, replace(limited, quotas=changed(limited.quotas, BOB, None))).values()) == [None]


STORY = """
1
acls bob/allow/read/topic/a… bob/deny/all/topic/*/10.0.0.7 eve/allow/create/cluster/kafka-cluster
unacls topic/match/abc/bob/read
quotas user:bob/controller_mutation_rate=2.5 client-id:<default>/request_percentage=7
quotas user:bob/controller_mutation_rate=-
create t 1x1
"""


def test_stored_acls_and_quotas_are_loaded_at_start() -> None:
    rig = story(STORY)
    log, store = kept(rig.log)
    for cluster in (store.durable_cluster, TopicStore(log).state().cluster):
        assert set(cluster.acls) == set(rig.state.cluster.acls)
        assert (cluster.acls.count, cluster.quotas) == (2, {(("client-id", None),): (("request_percentage", 7.0),)})
        assert list(cluster.acls.covering(2, "abc")) == list(rig.state.cluster.acls.covering(2, "abc"))
