"""Restoring the events topic from a folder: readers reach the same state, and workers continue."""

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from controller.store.tree import head_of
from controller.stream.log import restoring
from controller.stream.log.partition import PartitionState
from controller.stream.log.restoring import NotRestored, _furthest, _next_source, _ToRestore
from events.catalog import EVENT_VERSION
from events.logs.events_topic import Decided, Fence, encode_record
from projections.replay.log.secondary import FrozenLog
from tests.stream.log.records import Writing, create, joined
from tests.stream.log.test_partition import opened, read_all


def worker(data: Path, topics: int) -> PartitionState:
    """A folder whose partition was taken over three times."""
    state = opened(data)
    writing = Writing(state)
    for epoch in (1, 2, 3):
        writing.fence(epoch)
        writing.decide(*joined(epoch))
    writing.decide(*(create(f"t{number}") for number in range(topics)))
    state.commit()
    return state


@pytest.mark.parametrize(("chunk_bytes", "next_source"), [(1, 0), (1000, 11), (1 << 19, 7000)])
def test_readers_of_a_restored_events_topic_reach_the_same_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, next_source: int
) -> None:
    monkeypatch.setattr(restoring, "CHUNK_BYTES", chunk_bytes)
    before = worker(tmp_path / "before", 20)
    with closing(FrozenLog(before.log.path)) as log:
        topic = list(_ToRestore(log, before.reader.position, next_source, 0).records())
    after = opened(tmp_path / "after")
    read_all(after, topic)
    assert list(after.log.read()) == list(before.log.read())
    assert head_of(after.log) == head_of(before.log)
    assert [*after.store.durable_from(None)] == [*before.store.durable_from(None)]
    assert after.reader.next_source == next_source
    assert after.reader.epoch > before.reader.epoch, "records of earlier workers no longer count"
    epoch = after.reader.epoch + 1
    for record in (Fence(epoch, "w", "1.0", EVENT_VERSION, (), next_source), Decided(epoch, next_source, ())):
        assert after.accept(after.reader.kafka_offset, encode_record(record)) is not None
    for state in (before, after):
        state.close()


def test_restore_uses_the_folder_with_the_most_events(tmp_path: Path) -> None:
    for name, topics in (("a", 3), ("b", 7), ("c", 5)):
        worker(tmp_path / name, topics).close()
    folders = [tmp_path / name for name in ("a", "b", "c", "empty")]
    with ExitStack() as held:
        log, reached = _furthest(held, folders, 2)
        assert log.path.parent.name == "b"
        assert reached.position.next_event == log.next_offset
        with pytest.raises(NotRestored, match=r"there is no partition 1 in .*: name the folder of a gateway"):
            _furthest(held, folders, 1)


def test_restore_starts_at_an_existing_command(tmp_path: Path) -> None:
    state = worker(tmp_path / "a", 1)
    position = state.reader.position
    state.close()
    here = position.next_source
    assert _next_source(position, 0, here + 5) == (here, 0)
    assert _next_source(position, 0, 0) == (0, 0), "the topic was recreated"
    assert _next_source(position, here + 2, here + 5) == (here + 2, 2), "two undecided commands were deleted"
