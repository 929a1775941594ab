"""Recording events: applied at once, in the log with the state that they led to, and never out of time."""

from __future__ import annotations

import pytest

from events.catalog import Cause, Configs, CreateRejected, SettingsChanged
from events.codec import decode_event
from events.logs.memory_log import InMemoryLog
from events.names import RequestId, TopicName
from projections.store.recorder import Recorder
from projections.store.store import TopicStore

CAUSE = Cause("ChangeSettings", RequestId("r"))


def changed(value: str) -> SettingsChanged:
    settings: Configs = (("num.partitions", value),)
    return SettingsChanged(settings, "1.0")


def recorder(log: InMemoryLog) -> Recorder:
    return Recorder(log, TopicStore(log))


def test_events_are_applied_at_once_and_in_the_log_after_a_commit() -> None:
    log = InMemoryLog("cluster")
    one = recorder(log)
    records = [*one.record(5, CAUSE, [changed("1"), changed("2")]), *one.record(7, CAUSE, [changed("3")])]
    assert [record.offset for record in records] == [0, 1, 2]
    assert one.state.cluster.settings.num_partitions == 3
    assert log.next_offset == 0
    one.commit({b"x": b"more"})
    assert [decode_event(offset, value) for offset, value in log.read()] == records
    assert log.get(b"x") == b"more"
    assert recorder(log).state.cluster.settings.num_partitions == 3, "the state is in the same commit"


def test_the_next_event_knows_the_time_of_the_newest() -> None:
    log = InMemoryLog("cluster")
    one = recorder(log)
    assert one.last_ms == 0
    one.record(7, CAUSE, [changed("1")])
    one.record(5, CAUSE, [changed("2")])
    assert one.last_ms == 7
    one.commit()
    one.record(9, CAUSE, [changed("3")])
    one.commit()
    assert recorder(log).last_ms == 9


@pytest.mark.parametrize("indexed", [True, False])
def test_requests_find_their_events_unless_these_are_not_indexed(indexed: bool) -> None:
    log = InMemoryLog("cluster")
    one = recorder(log)
    rejected = CreateRejected(RequestId("r"), TopicName("t"), 17, "A bad name.", "validation:name")
    one.record(1, CAUSE, [rejected], indexed=indexed)
    one.commit()
    assert list(log.request_offsets("r")) == ([0] if indexed else [])
    assert list(log.shard_offsets("t")) == [0]
