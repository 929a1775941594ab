"""The topic indexes match the topics after every commit."""

import random
from collections import Counter
from itertools import permutations

import pytest
from msgspec.structs import replace

from controller.brokers.kraft import projector
from controller.machine.apply import apply
from controller.machine.partitions.blocks import BLOCK, blocks_of, changed, extended
from controller.machine.state import Topic
from controller.store import keys, request_index, store, stored_topics, topic_indexes, tree
from controller.store.keys import Puts
from controller.store.store import TopicStore
from controller.store.topic_indexes import (
    Health,
    blocks_with,
    placeholders,
    put_replicas,
    situations,
    tallied,
    unhealthy,
)
from controller.stream.log import partition
from events.catalog import Partition
from events.codec import encode_event
from events.logs.archive import manifest
from events.logs.log import Commit, Entry
from events.names import NO_LEADER, BrokerId, Offset, ShardKey, TopicId, TopicName
from tests.events.golden import HISTORIES, REAL, history
from tests.projections.logs import kept, story
from tests.support.memory_log import InMemoryLog


def counted(store: TopicStore) -> tuple[dict[BrokerId, tuple[int, int]], Health, dict[str, int]]:
    partitions = [one for topic in store.durable_from(None) for one in topic.partitions]
    leaders = Counter(one.leader for one in partitions)
    replicas = Counter(replica for one in partitions for replica in one.replicas)
    health = Health(
        sum(len(one.isr) < len(one.replicas) for one in partitions),
        leaders[NO_LEADER],
        sum(count for replica, count in replicas.items() if replica < 0),
    )
    loads = {key: (leaders[key], replicas[key]) for key in leaders.keys() | replicas.keys() if key >= 0}
    each = {topic.name: sum(situations(topic).values()) for topic in store.durable_from(None)}
    return loads, health, {name: count for name, count in each.items() if count}


@pytest.mark.parametrize("at_once", [1, 3, 1000])
@pytest.mark.parametrize("name", HISTORIES)
def test_tallies_and_indexes_by_health_and_age_match_the_topics(name: str, at_once: int) -> None:
    log = InMemoryLog("c")
    store = TopicStore(log)
    state = store.state()
    entries: list[Entry] = []
    records = history(name)
    for number, record in enumerate(records, 1):
        entries.append(Entry(encode_event(record.at_ms, record.cause, record.event), apply(state, record)))
        if number % at_once and number < len(records):
            continue
        log.write(Commit(entries, store.changes(state)))
        log.flush()
        store.became_durable(state)
        entries = []
        everything = list(store.durable_from(None))
        loads, health, unhealthy_partitions = counted(store)
        assert store.durable_tallies == tallied(everything), number
        assert (store.durable_tallies.brokers, store.durable_tallies.health) == (loads, health)
        assert {one.name: sum(one.situations.values()) for one in unhealthy(log)} == unhealthy_partitions
        waits = {topic.name for topic in everything if topic.ready_at_ms is None}
        incomplete = {
            topic.name
            for topic in everything
            if any(
                len(one.isr) < len(one.replicas) or one.leader < 0 or min(one.replicas) < 0 for one in topic.partitions
            )
        }
        assert [topic.name for topic in store.durable_unhealthy(None)] == [
            topic.name for topic in everything if topic.name in waits | incomplete
        ]


STORY = f"""
fewer
{REAL.strip()}
unfence 1
create u 2x2 timeout=0
create v.w on=0:1 timeout=0
create x 1x5 timeout=0
delete u
"""


@pytest.mark.parametrize("given", [STORY, "1 2 3\ncreate t 3x2\ncreate u 2x3\nfence 1\nreconcile t u\ndelete t"])
def test_the_index_by_broker_matches_the_topics_after_every_event(given: str) -> None:
    records = story(given).log
    for end in range(len(records) + 1):
        log, store = kept(records[:end])
        topics = [*store.durable_from(None)]
        for broker_id in map(BrokerId, range(-3, 5)):
            having = [t.name.replace(".", "_") for t in topics if any(broker_id in p.replicas for p in t.partitions)]
            assert [key for key, _ in blocks_with(log, broker_id)] == having, f"after {end} events, broker {broker_id}"
            leads = any(p.leader == broker_id for t in topics for p in t.partitions)
            load = store.durable_tallies.brokers.get(broker_id)
            assert broker_id < 0 or (load is not None, load is not None and load[0] > 0) == (having != [], leads)
        missing = {replica for t in topics for p in t.partitions for replica in p.replicas if replica < 0}
        assert list(placeholders(log)) == sorted(missing)
    assert records, "the history has records"


def test_the_index_by_broker_names_the_blocks_with_a_replica() -> None:
    key, log, chance = ShardKey("t"), InMemoryLog("c"), random.Random(1)
    topic: Topic | None = None
    for step in range(200):
        ids = chance.sample(range(-1, 6), 2)
        some = Partition((BrokerId(ids[0]), BrokerId(ids[1])), (), NO_LEADER, 0)
        after = topic
        if topic is None:
            after = Topic(TopicName("t"), TopicId(bytes(16)), [some] * chance.randint(1, 2 * BLOCK), (), 0, Offset(0))
        elif step % 20 == 19:
            after = None
        elif step % 3:
            indexes = chance.sample(range(len(topic.partitions)), min(len(topic.partitions), 1 + step))
            after = replace(topic, partitions=changed(topic.partitions, dict.fromkeys(indexes, some)))
        else:
            after = replace(topic, partitions=extended(topic.partitions, [some] * 100))
        puts: Puts = {}
        put_replicas(puts, log, key, topic, after)
        log.write(Commit([Entry(b"", key)], puts))
        topic = after
        blocks = () if topic is None else blocks_of(topic.partitions)
        for broker_id in map(BrokerId, range(-1, 6)):
            having = [n for n, block in enumerate(blocks) if any(broker_id in one.replicas for one in block)]
            expected = [(key, sum(1 << n for n in having))] if having else []
            assert list(blocks_with(log, broker_id)) == expected, f"after step {step}, broker {broker_id}"


def test_durable_parts_have_few_topics_or_partitions_with_the_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    creates = [f"create t{n} 3x1" for n in range(5)] + ["create u 7x1", "create v 600x1"]
    _, store = kept(story("fewer\nquorum\njoin 1\njoin 2\nunfence 1\nunfence 2\n" + "\n".join(creates)).log)
    keys = list(store.durable_keys_waiting())
    assert keys == [*(f"t{n}" for n in range(5)), "u", "v"]
    assert list(store.durable_keys_waiting(keys[2])) == keys[3:]
    monkeypatch.setattr("controller.store.store.PARTITIONS_PER_SLICE", 5)
    parts = list(store.durable_parts((BrokerId(1),), [keys[1], ShardKey("t10"), keys[5]]))
    assert [[t.name for t in part.topics] for part in parts[:5]] == [["t0", "t1"], ["t2", "t3"], ["t4"], ["u"], ["u"]]
    assert [part.partitions for part in parts[:5]] == [None, None, None, (0, 1, 2, 3, 4), (5, 6)], "u is whole"
    of_first = [n for n, one in enumerate(parts[-1].topics[0].partitions) if 1 in one.replicas]
    assert [n for part in parts[5:] for n in part.partitions or ()] == of_first
    assert len(of_first) == 300
    left = iter(keys)
    next(store.durable_parts((), left))
    assert keys[-1] in left, "keys are read lazily"


OF_A_LOG = {
    "topics": stored_topics.TOPIC,
    "ids": store.TOPIC_ID,
    "waiting": store.WAITING,
    "cluster": store.CLUSTER,
    "rules": keys.RULES,
    "counts": store.COUNTS,
    "users": keys.SCRAM,
    "entries": keys.ACL,
    "quotas": keys.QUOTA,
    "replicas": topic_indexes.REPLICAS,
    "requests": request_index.REQUEST,
    "facets": request_index.FACET,
    "unhealthy": topic_indexes.UNHEALTHY,
    "tallies": topic_indexes.TALLIES,
    "created in a range": topic_indexes.CREATED_IN,
    "tree": tree.HEAD,
    "archive": manifest.ARCHIVE_KEY,
}
OF_A_PARTITION = {"position": partition.POSITION}
OF_A_VOTER = {"mark": projector.MARK, "ids of entries": projector.ENTRY}


def test_no_key_prefix_is_a_prefix_of_another() -> None:
    for others in (OF_A_PARTITION, OF_A_VOTER):
        for (one, key), (other, longer) in permutations({**OF_A_LOG, **others}.items(), 2):
            assert not longer.startswith(key), f"{one} is a prefix of {other}"
