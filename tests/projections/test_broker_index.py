"""Which topics have replicas on a real broker, after every event of a history."""

from __future__ import annotations

from events.names import BrokerId
from projections.store.topic_indexes import topics_of, topics_with_placeholders
from tests.events.golden import REAL
from tests.projections.logs import kept, story

STORY = f"""
fewer
{REAL.strip()}
unfence 1
create u 2x2 timeout=0
create v.w on=0:1 timeout=0
create x 1x5 timeout=0
delete u
"""


def test_the_index_is_what_the_topics_say_after_every_event() -> None:
    records = story(STORY).log
    for end in range(len(records) + 1):
        log, store = kept(records[:end])
        topics = store.durable_slice(None, 1000)
        for broker_id in map(BrokerId, range(-3, 5)):
            having = [t.name.replace(".", "_") for t in topics if any(broker_id in p.replicas for p in t.partitions)]
            assert list(topics_of(log, broker_id)) == having, f"after {end} events, broker {broker_id}"
            leads = any(p.leader == broker_id for t in topics for p in t.partitions)
            assert broker_id < 0 or store.leads(broker_id, store.durable_keys_of(broker_id)) == leads
        waiting = [str(t.name) for t in topics if any(replica < 0 for p in t.partitions for replica in p.replicas)]
        assert sorted(map(str, set(topics_with_placeholders(log)))) == waiting
    assert records, "there is a history"


def test_topics_come_in_lists_of_about_so_many_partitions() -> None:
    log, store = kept(story("fewer\nquorum\njoin 1\nunfence 1" + "".join(f"\ncreate t{n} 3x1" for n in range(5))).log)
    keys = store.durable_keys_of(BrokerId(1))
    assert keys == [f"t{n}" for n in range(5)]
    assert store.durable_keys_of(BrokerId(1), keys[0], 2) == keys[1:3]
    assert store.durable_keys_waiting() == keys
    assert [[t.name for t in each] for each in store.durable_topics(keys, 5)] == [["t0", "t1"], ["t2", "t3"], ["t4"]]
    assert list(topics_of(log, BrokerId(1), keys[2])) == keys[3:]


def test_simulated_brokers_have_no_index() -> None:
    log, _ = kept(story("1 2\ncreate t 3x2").log)
    assert list(topics_of(log, BrokerId(1))) == []
