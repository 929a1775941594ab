"""Recording events: applied at once, in the log with the state that they led to, and never out of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from typing import Any

import pytest

from controller.brokers.kraft import projector as projector_module
from controller.brokers.kraft.projector import MetadataProjector
from controller.machine.apply import concerns_topic
from controller.machine.state import State
from controller.quorum.log.batches import Pair
from controller.store.recorder import WITHOUT_METADATA_LOG, Projector, Recorder
from controller.store.store import TopicStore
from events.catalog import Cause, Configs, CreateRejected, Event, Recorded, SettingsChanged
from events.codec import decode_event
from events.logs.log import Commit, request_offsets, shard_offsets
from events.logs.memory_log import InMemoryLog
from events.names import RequestId, ShardKey, TopicName, shard_key
from tests.brokers.kraft.logs import access_history, real_history
from tests.events.golden import history

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
    assert list(request_offsets(log, "r")) == ([0] if indexed else [])
    assert list(shard_offsets(log, "t")) == [0]


class Breaking:
    """Applies as another does, and fails after so many events."""

    def __init__(self, real: Projector) -> None:
        self._real = real
        self.left: int | None = None
        self.batches: list[list[Pair]] = []
        self.end = 0

    def apply(self, state: State, record: Recorded) -> ShardKey:
        key = self._real.apply(state, record)
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise ZeroDivisionError("after the event was applied")
        return key

    def changes(self) -> Mapping[bytes, bytes | None]:
        return self._real.changes()

    def reload(self) -> None:
        self._real.reload()

    def savepoint(self) -> Callable[[], None]:
        return self._real.savepoint()

    def write(self, log: InMemoryLog, commit: Commit) -> None:
        if isinstance(self._real, MetadataProjector):
            for pairs in self._real.batches(log.next_offset, [entry.value for entry in commit.entries]):
                self.batches.append(pairs)
                self.end += len(pairs)
            self._real.became_durable()
        log.write(commit)


def snapshot(recorder: Recorder, events: list[Event]) -> Any:
    state = recorder.state
    topics = [state.topics.get(shard_key(event.topic)) for event in events if concerns_topic(event)]  # type: ignore[union-attr]
    return state.cluster, list(state.waiting.items()), topics, recorder.last_ms


def steps(records: list[Recorded]) -> list[tuple[Recorded, list[Event]]]:
    """The events of each command."""
    groups = (list(group) for _, group in groupby(records, lambda record: (record.at_ms, record.cause)))
    return [(group[0], [record.event for record in group]) for group in groups]


def written(records: list[Recorded], projector: Breaking, log: InMemoryLog, commits: int) -> InMemoryLog:
    """A log of these records, so many commands in a commit, after each of which fails once at each of its events."""
    store = TopicStore(log)
    recorder = Recorder(log, store, projector)
    commands = steps(records)
    for number, (first, events) in enumerate(commands, 1):
        before = snapshot(recorder, events)
        for fails_at in range(1, len(events) + 1) if projector.left is not None else ():
            projector.left = fails_at
            with pytest.raises(ZeroDivisionError):
                recorder.record(first.at_ms, first.cause, events)
            assert snapshot(recorder, events) == before, f"{fails_at} of {events}"
            projector.left = -1
        recorder.record(first.at_ms, first.cause, events)
        if number % commits == 0 or number == len(commands):
            projector.write(log, recorder.take_commit())
            log.flush()
            store.became_durable(recorder.state)
    return log


def all_of(log: InMemoryLog) -> tuple[list[Recorded], list[tuple[bytes, bytes]]]:
    return [decode_event(offset, value) for offset, value in log.read()], list(log.scan(b""))


@pytest.mark.parametrize("commits", [1, 5, 1000])
@pytest.mark.parametrize("name", ["life", "brokers", "refusals", "cluster", "access"])
def test_a_step_that_fails_leaves_no_trace(name: str, commits: int) -> None:
    failing, smooth = Breaking(WITHOUT_METADATA_LOG), Breaking(WITHOUT_METADATA_LOG)
    failing.left = -1
    records = history(name)
    with_failures = written(records, failing, InMemoryLog("cluster"), commits)
    assert all_of(with_failures) == all_of(written(records, smooth, InMemoryLog("cluster"), commits))
    assert all_of(with_failures)[0] == records


@pytest.mark.parametrize(("commits", "most"), [(1, 1000), (5, 1000), (5, 3), (1000, 1000), (1000, 1), (1000, 3)])
@pytest.mark.parametrize("records", [real_history(), access_history()], ids=["real", "access"])
def test_nor_in_the_log_that_real_brokers_follow(
    records: list[Recorded], commits: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where the commit is parted into batches of so many records."""
    monkeypatch.setattr(projector_module, "RECORDS_PER_BATCH", most)
    logs = []
    for fails in (True, False):
        log = InMemoryLog("cluster")
        real = MetadataProjector(log)
        projector = Breaking(real)
        real.log_end = partial(getattr, projector, "end")
        projector.left = -1 if fails else None
        logs.append((all_of(written(records, projector, log, commits)), projector.batches))
    assert logs[0] == logs[1], "batches, epochs and ids of entries byte for byte"
