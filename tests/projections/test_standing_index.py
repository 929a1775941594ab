"""How partitions stand, counted along: the same as counted anew, at every moment and through every split of the log."""

from __future__ import annotations

from collections import Counter

import pytest

from controller.machine.apply import apply
from events.codec import encode_event
from events.logs.log import Commit, Entry
from events.logs.memory_log import InMemoryLog
from events.names import NO_LEADER
from projections.store.store import TopicStore
from projections.store.topic_indexes import CREATED, TALLIES, TROUBLE, Tallies, Trouble
from tests.events.golden import HISTORIES, history


def counted_anew(store: TopicStore) -> Tallies:
    """The tallies of all topics that there are."""
    partitions = [one for topic in store.durable_from(None) for one in topic.partitions]
    leaders = Counter(one.leader for one in partitions)
    replicas = Counter(replica for one in partitions for replica in one.replicas)
    trouble = Trouble(
        sum(len(one.isr) < len(one.replicas) for one in partitions),
        leaders[NO_LEADER],
        sum(count for replica, count in replicas.items() if replica < 0),
    )
    return Tallies(
        trouble, {key: (leaders[key], replicas[key]) for key in leaders.keys() | replicas.keys() if key >= 0}
    )


@pytest.mark.parametrize("at_once", [1, 3, 1000])
@pytest.mark.parametrize("name", HISTORIES)
def test_what_is_counted_along_is_what_there_is(name: str, at_once: int) -> None:
    log = InMemoryLog("standing")
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
        assert store.durable_tallies == counted_anew(store), number
        everything = list(store.durable_from(None))
        waits = {topic.name for topic in everything if topic.ready_at_ms is None}
        troubled = {
            topic.name
            for topic in everything
            if any(
                len(one.isr) < len(one.replicas) or one.leader < 0 or min(one.replicas) < 0 for one in topic.partitions
            )
        }
        assert [topic.name for topic in store.durable_unhealthy(None)] == [
            topic.name for topic in everything if topic.name in waits | troubled
        ]
        newest = [topic.name for topic in store.durable_newest(len(records))]
        assert newest == [topic.name for topic in sorted(everything, key=lambda topic: -topic.created_offset)]


@pytest.mark.parametrize("name", HISTORIES)
def test_a_log_of_an_earlier_release_is_counted_when_it_is_opened(name: str) -> None:
    log = InMemoryLog("standing")
    store = TopicStore(log)
    state = store.state()
    records = history(name)
    half = len(records) // 2
    for number, record in enumerate(records):
        if number == half:
            for state_key in [state_key for prefix in (TROUBLE, TALLIES, CREATED) for state_key, _ in log.scan(prefix)]:
                del log._state[state_key]
                log._keys.remove(state_key)
            store = TopicStore(log)
            state = store.state()
            assert store.durable_tallies == counted_anew(store)
        key = apply(state, record)
        log.write(Commit((Entry(encode_event(record.at_ms, record.cause, record.event), key),), store.changes(state)))
        log.flush()
        store.became_durable(state)
    assert store.durable_tallies == counted_anew(store)
    again = TopicStore(log)
    assert again.durable_tallies == store.durable_tallies
    assert list(again.durable_newest(len(records))) == list(store.durable_newest(len(records)))
    assert list(again.durable_unhealthy(None)) == list(store.durable_unhealthy(None))
