"""The recorder applies events immediately, writes them with the resulting state, and never decreases times."""

from itertools import groupby
from typing import Any

import pytest

from controller.brokers.kraft import projector as projector_module
from controller.brokers.kraft.projector import MetadataProjector
from controller.machine.apply import CannotApply, concerns_topic
from controller.quorum.log.batches import Pair
from controller.store.recorder import WITHOUT_METADATA_LOG, Recorder
from controller.store.store import TopicStore
from events.catalog import (
    BrokerUnfenced,
    Cause,
    Configs,
    CreateRejected,
    Event,
    Recorded,
    SettingsChanged,
    TopicCreated,
    TopicVanished,
)
from events.codec import decode_event
from events.external_decision import FOLLOW
from events.logs.log import request_offsets, shard_offsets
from events.names import BrokerId, RequestId, TopicName, shard_key
from tests.brokers.kraft.logs import access_history, real_history
from tests.events.golden import history
from tests.support.memory_log import InMemoryLog

CAUSE = Cause("ChangeSettings", RequestId("r"))


def changed(value: str) -> SettingsChanged:
    settings: Configs = (("num.partitions", value),)
    return SettingsChanged(settings, "1.0")


def recorder(log: InMemoryLog) -> Recorder:
    return Recorder(log, TopicStore(log))


def test_recorded_events_are_applied_immediately_and_logged_at_commit() -> None:
    log = InMemoryLog("cluster")
    one = recorder(log)
    records = [*one.record(5, CAUSE, [changed("1"), changed("2")]), *one.record(7, CAUSE, [changed("3")])]
    assert [record.offset for record in records] == [0, 1, 2]
    assert one.state.cluster.settings.num_partitions == 3
    assert log.next_offset == 0
    one.commit({b"x": b"more"})
    assert [decode_event(offset, value) for offset, value in log.read()] == records
    assert log.get(b"x") == b"more"
    assert recorder(log).state.cluster.settings.num_partitions == 3, "the commit includes the state"


def test_recorded_event_times_never_decrease() -> None:
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


@pytest.mark.parametrize(("command", "indexed"), [("CreateTopic", True), ("AdoptMetadata", False), (FOLLOW, True)])
def test_events_are_indexed_by_request_except_adopted_ones(command: str, indexed: bool) -> None:
    log = InMemoryLog("cluster")
    one = recorder(log)
    rejected = CreateRejected(RequestId("r"), TopicName("t"), 17, "A bad name.", "validation:name")
    one.record(1, Cause(command, RequestId("r")), [rejected])
    one.commit()
    assert list(request_offsets(log, "r")) == ([0] if indexed else [])
    assert list(shard_offsets(log, "t")) == [0]


def snapshot(recorder: Recorder, events: list[Event]) -> Any:
    state = recorder.state
    topics = [state.topics.get(shard_key(event.topic)) for event in events if concerns_topic(event)]  # type: ignore[union-attr]
    return state.cluster, list(state.waiting.items()), topics, recorder.last_ms


def steps(records: list[Recorded]) -> list[tuple[Recorded, list[Event]]]:
    groups = (list(group) for _, group in groupby(records, lambda record: (record.at_ms, record.cause)))
    return [(group[0], [record.event for record in group]) for group in groups]


DOES_NOT_FIT = BrokerUnfenced(BrokerId(999), 1, "never registered")
Written = tuple[list[tuple[int, bytes]], list[tuple[bytes, bytes]], list[list[Pair]]]
"""The events and state keys of a log, and the batches of its metadata log."""


def written(records: list[Recorded], commits: int, *, fails: bool, kraft: bool = False) -> Written:
    """Write records with this many commands per commit. With `fails`, each command first fails after each of its
    events."""
    log, batches = InMemoryLog("cluster"), list[list[Pair]]()
    store, projector = TopicStore(log), MetadataProjector(log)
    projector.log_end = lambda: sum(map(len, batches))
    recorder = Recorder(log, store, projector if kraft else WITHOUT_METADATA_LOG)
    commands = steps(records)
    for number, (first, events) in enumerate(commands, 1):
        before = snapshot(recorder, events)
        for fails_at in range(1, len(events) + 1) if fails else ():
            with pytest.raises(CannotApply):
                recorder.record(first.at_ms, first.cause, [*events[:fails_at], DOES_NOT_FIT])
            assert snapshot(recorder, events) == before, f"{fails_at} of {events}"
        recorder.record(first.at_ms, first.cause, events)
        if number % commits == 0 or number == len(commands):
            commit = recorder.take_commit()
            if kraft:
                batches += projector.batches(log.next_offset, [entry.value for entry in commit.entries])
                projector.became_durable()
            log.write(commit)
            log.flush()
            store.became_durable(recorder.state)
    assert [decode_event(offset, value) for offset, value in log.read()] == records
    return list(log.read()), list(log.scan(b"")), batches


@pytest.mark.parametrize("commits", [1, 5, 1000])
@pytest.mark.parametrize("name", ["life", "brokers", "refusals", "cluster", "access"])
def test_a_failed_command_leaves_the_log_and_state_unchanged(name: str, commits: int) -> None:
    records = history(name)
    assert written(records, commits, fails=True) == written(records, commits, fails=False)


@pytest.mark.parametrize(("commits", "most"), [(1, 1000), (5, 1000), (5, 3), (1000, 1000), (1000, 1), (1000, 3)])
@pytest.mark.parametrize("records", [real_history(), access_history()], ids=["real", "access"])
def test_a_failed_command_leaves_the_metadata_log_unchanged(
    records: list[Recorded], commits: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the commit is split into batches of `most` records."""
    monkeypatch.setattr(projector_module, "RECORDS_PER_BATCH", most)
    logs = [written(records, commits, fails=fails, kraft=True) for fails in (True, False)]
    assert logs[0] == logs[1], "equal batches, epochs and ACL ids, byte for byte"


def test_a_topic_recreated_in_one_command_is_the_newest_pending_create() -> None:
    """Equals applying each event alone."""
    records = [one for one in history("life") if isinstance(one.event, TopicCreated)][:2]
    (first, second), log = records, InMemoryLog("cluster")
    one = recorder(log)
    one.record(1, CAUSE, [first.event, second.event])
    assert isinstance(first.event, TopicCreated)
    vanished = TopicVanished(first.event.topic, first.event.topic_id, "gone")
    one.record(2, CAUSE, [vanished, first.event])
    waiting = list(one.state.waiting.items())
    assert waiting[-1] == (shard_key(first.event.topic), 3)
    assert len(waiting) == 2
