"""A command whose events cannot all be applied changes nothing: state, log and metadata log are as before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from typing import Any

import pytest

from controller.brokers.kraft.log import projector as projector_module
from controller.brokers.kraft.log.batches import Pair
from controller.brokers.kraft.log.projector import MetadataProjector
from controller.machine.apply import concerns_topic
from controller.machine.state import State
from events.catalog import Event, Recorded
from events.codec import decode_event
from events.logs.log import Commit
from events.logs.memory_log import InMemoryLog
from events.names import ShardKey, shard_key
from projections.store.recorder import EVENTS_ALONE, Projector, Recorder
from projections.store.store import TopicStore
from tests.brokers.kraft.logs import access_history, real_history
from tests.events.golden import history


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
    failing, smooth = Breaking(EVENTS_ALONE), Breaking(EVENTS_ALONE)
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
