"""Each commit extends the log's Merkle tree, which equals the tree over its events."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.store import tree
from controller.store.recorder import Recorder
from controller.store.store import TopicStore
from controller.store.tree import HEAD, TreeReader, head_of, stored_head
from events.catalog import Cause, SettingsChanged
from events.codec import encode_event
from events.logs.log import Commit, Entry, EventLog, LogCorrupted, read_one
from events.logs.merkle import EMPTY_ROOT, Frontier, leaf_hash, root_from_inclusion
from events.names import RequestId
from tests.events.logs.rocksdb_folders import open_log
from tests.support.memory_log import InMemoryLog


@pytest.fixture(params=["memory", "disk"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventLog]:
    opened: EventLog = InMemoryLog("c") if request.param == "memory" else open_log(tmp_path / "log")
    yield opened
    opened.close()


def event(number: int) -> SettingsChanged:
    return SettingsChanged((("num.partitions", str(number)),), "1")


def cause() -> Cause:
    return Cause("ChangeSettings", RequestId("settings"))


def recorded(log: EventLog, commits: list[int]) -> Recorder:
    recorder = Recorder(log, TopicStore(log))
    for count in commits:
        for number in range(count):
            recorder.record(5, cause(), [event(number)])
        recorder.commit()
        log.flush()
    return recorder


def root_by_hand(log: EventLog, size: int) -> bytes:
    frontier = Frontier()
    frontier.extend((value for _, value in log.read(0, size)), 99)
    return frontier.root()


def test_each_commit_extends_the_merkle_tree(log: EventLog) -> None:
    assert head_of(log) == (0, EMPTY_ROOT)
    sizes, counts = [0], [1, 2, 250, 3, 0, 700, 1, 67, 1, 300]
    for count in counts:
        recorded(log, [count])
        sizes.append(sizes[-1] + count)
        assert stored_head(log) == head_of(log) == (sizes[-1], root_by_hand(log, sizes[-1]))
    assert stored_head(log)[0] == sum(counts)


def test_the_merkle_tree_is_independent_of_recorder_restarts() -> None:
    logs = InMemoryLog("c"), InMemoryLog("c")
    counts = [1, 300, 5, 512, 256]
    recorded(logs[0], counts)
    for count in counts:
        recorded(logs[1], [count])
    assert list(logs[0].scan(HEAD)) == list(logs[1].scan(HEAD))
    assert len(list(logs[0].scan(HEAD))) == 1 + 4 + 2 + 1, "the head, and the complete subtrees of 256 events or more"


def test_merkle_roots_and_proofs_at_block_boundaries(log: EventLog) -> None:
    recorded(log, [777, 1, 800])
    reader = TreeReader(log)
    chosen = random.Random(5)
    for size in (1, 2, 255, 256, 257, 511, 512, 513, 777, 1024, 1577, 1578):
        root = reader.root(size)
        assert root == root_by_hand(log, size)
        for offset in {0, size - 1, chosen.randrange(size)}:
            leaf = leaf_hash(read_one(log, offset))
            assert root_from_inclusion(leaf, offset, size, reader.inclusion(offset, size)) == root


class Counted(InMemoryLog):
    reads = 0

    def get(self, key: bytes) -> bytes | None:
        self.reads += 1
        return super().get(key)

    def read(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        self.reads += 1
        assert end is not None
        assert end - start <= tree.BLOCK
        return super().read(start, end)


def test_an_inclusion_proof_reads_a_bounded_number_of_keys() -> None:
    log = Counted("c")
    recorded(log, [900] * 30)
    reader = TreeReader(log)
    for offset in (0, 13_333, 26_999):
        log.reads = 0
        path = reader.inclusion(offset, 27_000 - offset % 500 if offset < 26_000 else 27_000)
        assert len(path) <= 15
        assert log.reads <= 3 * len(path)


def test_a_merkle_tree_with_missing_events_is_damage(log: EventLog) -> None:
    recorded(log, [300])
    log.write(Commit([Entry(encode_event(5, cause(), event(0)))]))
    log.flush()
    with pytest.raises(LogCorrupted, match="its tree covers 300 events instead of 301"):
        recorded(log, [1])


def test_a_lost_commit_also_reverts_the_merkle_tree() -> None:
    log = InMemoryLog("c")
    recorder = recorded(log, [255])
    recorder.record(5, cause(), [event(1)] * 5)
    recorder.commit()
    assert stored_head(log)[0] == 260
    log.drop_unflushed()
    assert stored_head(log) == head_of(log) == (255, root_by_hand(log, 255))
    recorded(log, [9])
    assert stored_head(log) == (264, root_by_hand(log, 264))


def test_events_that_contradict_the_merkle_tree_are_an_error() -> None:
    log = InMemoryLog("c")
    recorded(log, [300])
    log._events[299] = encode_event(6, cause(), event(0))
    with pytest.raises(LogCorrupted, match="its first 300 events are not those of its tree"):
        recorded(log, [])


@pytest.mark.parametrize("head", [b"", b"\0" * 39, (301).to_bytes(8, "big") + b"\0" * 32])
def test_a_malformed_tree_head_is_an_error(head: bytes) -> None:
    log = InMemoryLog("c")
    recorded(log, [300])
    log.write(Commit(own={HEAD: head}))
    with pytest.raises(LogCorrupted, match=r"instead of 300|the head of its tree has"):
        stored_head(log)


def test_tree_readers_accept_a_commit_before_its_events_are_visible() -> None:
    log = InMemoryLog("c")
    recorded(log, [600])
    root = TreeReader(log).root(512)
    log.next_offset = log.durable_offset = 599  # as another thread sees it during a commit
    assert TreeReader(log).root(512) == root
    assert tree.range_root(log, 256, 512) == tree.stored_subtree(log, 8, 1)


def test_a_missing_subtree_is_an_error() -> None:
    log = InMemoryLog("c")
    recorded(log, [600])
    first = next(key for key, _ in log.scan(HEAD, HEAD))
    log.write(Commit([Entry(b"e")], {first: None}))
    log.flush()
    with pytest.raises(LogCorrupted, match="lacks the hash over events 0 to 255"):
        TreeReader(log).inclusion(256, 512)
