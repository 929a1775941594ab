"""The topic indexes match the topics after every commit."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

from controller.brokers.kraft import projector
from controller.machine.apply import apply
from controller.store import keys, request_index, store, stored_topics, topic_indexes, tree
from controller.store.store import TopicStore
from controller.store.topic_indexes import Health, placeholders, situations, tallied, unhealthy
from controller.stream.log import partition
from events.codec import encode_event
from events.logs.archive import manifest
from events.logs.log import Commit, Entry
from events.logs.memory_log import InMemoryLog
from events.names import NO_LEADER, BrokerId, ShardKey
from tests.events.golden import HISTORIES, REAL, history
from tests.projections.logs import kept, story


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
        newest = [topic.name for topic in store.durable_newest(len(records))]
        assert newest == [topic.name for topic in sorted(everything, key=lambda topic: -topic.created_offset)]


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
        topics = store.durable_slice(None, 1000)
        for broker_id in map(BrokerId, range(-3, 5)):
            having = [t.name.replace(".", "_") for t in topics if any(broker_id in p.replicas for p in t.partitions)]
            assert list(store.durable_keys_of(broker_id)) == having, f"after {end} events, broker {broker_id}"
            leads = any(p.leader == broker_id for t in topics for p in t.partitions)
            assert broker_id < 0 or store.leads(broker_id, store.durable_keys_of(broker_id)) == leads
        missing = {replica for t in topics for p in t.partitions for replica in p.replicas if replica < 0}
        assert list(placeholders(log)) == sorted(missing)
    assert records, "the history has records"


def test_durable_topics_are_sliced_by_partition_count(monkeypatch: pytest.MonkeyPatch) -> None:
    _, store = kept(story("fewer\nquorum\njoin 1\nunfence 1" + "".join(f"\ncreate t{n} 3x1" for n in range(5))).log)
    keys = list(store.durable_keys_of(BrokerId(1)))
    assert keys == [f"t{n}" for n in range(5)]
    assert list(store.durable_keys_waiting()) == keys
    assert list(store.durable_keys_waiting(keys[2])) == keys[3:]
    monkeypatch.setattr("controller.store.store.PARTITIONS_PER_SLICE", 5)
    slices = store.durable_topics(keys[:3], [keys[1], ShardKey("t10"), *keys[3:]])
    assert [[t.name for t in each] for each in slices] == [["t0", "t1"], ["t2", "t3"], ["t4"]]
    left = iter(keys)
    next(store.durable_topics(left))
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
    "created": store.CREATED,
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
