"""Snapshots are taken concurrently, rebuilt from events, and thinned. Queries of the past read them."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given as drawn
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from controller.store.recorder import Recorder
from controller.store.snapshotting import (
    SNAPSHOT_KINDS,
    SNAPSHOTS_MAX,
    Snapshotting,
    StateRebuild,
    missing,
    spacing,
    state_keys,
    too_many,
)
from controller.store.store import TopicStore
from events.catalog import EVENT_VERSION, Recorded
from events.codec import encode_event
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import FOLDER, SnapshotInfo, open_snapshot, snapshot_info, snapshot_offsets, store_snapshot
from projections.queries.query import Query
from tests.events.logs.rocksdb_folders import flip
from tests.machine.rig import topics_of
from tests.machine.walks import NAMES, Walk, _walk, walked, walks
from tests.projections.logs import kept as in_memory
from tests.projections.logs import listed, query_of

Work = Callable[[], None]


class Waiting(Executor):
    """Runs work when the test calls `Kept.work`."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def submit(self, work: Callable[..., None], *args: object) -> None:  # type: ignore[override]
        self.works.append(partial(work, *args))


class Notes(Snapshotting):
    """Snapshots that record their log lines."""

    def __init__(self, log: RocksDbLog, interval: int, query: Query) -> None:
        super().__init__(log, interval, query.snapshot_pairs)
        self.thread = Waiting()
        self.offsets: list[int] = []
        self.failures: list[str] = []
        self._lines = self

    def info(self, _: str, *, offset: int, **size: int) -> None:
        assert size["bytes"] > 0
        self.offsets.append(offset)

    def warning(self, _: str, why: str) -> None:
        self.failures.append(why)


class Kept:
    """A log in a folder with snapshots, which are written when the test calls `work`."""

    def __init__(self, folder: Path, interval: int = 0) -> None:
        self.log = RocksDbLog(folder, cluster_id=None, new_cluster_id=lambda: "kept", cache_bytes=1 << 20)
        self.store = TopicStore(self.log)
        self.recorder = Recorder(self.log, self.store)
        self.query = Query(self.log, lambda: self.store)
        self.snapshotting = Notes(self.log, interval, self.query)
        assert isinstance(self.snapshotting.thread, Waiting)
        self.waiting = self.snapshotting.thread.works

    def commit(self, records: list[Recorded]) -> None:
        """Write the records of a commit; takes a snapshot if one is due."""
        for one in records:
            self.recorder.record_encoded([one], [encode_event(one.at_ms, one.cause, one.event)])
        self.recorder.commit()
        self.log.flush()
        self.store.became_durable(self.recorder.state)
        self.snapshotting.take_if_due()

    def live(self, records: list[Recorded], of_each: int = 1) -> None:
        """Write all records, and run pending snapshots after each commit."""
        for commit in commits_of(records, of_each):
            self.commit(commit)
            self.work()

    def work(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()

    def state_at(self, offset: int) -> list[tuple[bytes, bytes]]:
        with open_snapshot(self.log, offset) as snapshot:
            return list(state_keys(snapshot))


@contextmanager
def kept(interval: int = 0) -> Iterator[Kept]:
    with TemporaryDirectory() as folder:
        one = Kept(Path(folder) / "log", interval)
        yield one
        one.log.close()


def commits_of(records: list[Recorded], of_each: int = 1) -> Iterator[list[Recorded]]:
    """Returns commits of `of_each` whole commands."""
    commit: list[Recorded] = []
    commands = 0
    for record in records:
        if commit and record.cause != commit[-1].cause:
            commands += 1
            if commands % of_each == 0:
                yield commit
                commit = []
        commit.append(record)
    if commit:
        yield commit


@drawn(walks(60), st.integers(1, 12), st.integers(1, 4))
@hypothesis_settings(max_examples=8, deadline=None)
def test_past_queries_with_snapshots_equal_those_without(walk: Walk, interval: int, of_each: int) -> None:
    records = list(walked(walk).log)
    plain = query_of(records)
    with kept(interval) as one:
        one.snapshotting.begin()
        one.live(records, of_each)
        assert not one.snapshotting.failures
        assert one.snapshotting.offsets or len(records) < interval * 2 + 60, "some snapshots were taken"
        for end in range(len(records) + 1):
            assert one.query.topics_at(end, "", 1000) == plain.topics_at(end, "", 1000), f"topics at end {end}"
            assert one.query.cluster_at(end) == plain.cluster_at(end), f"brokers at end {end}"
            rows = listed(one.query, end, 1)
            assert tuple(rows) == plain.topics_at(end, "", 1000).rows, f"pages of one at end {end}"
            for row in rows:
                assert one.query.topic_at(row.name, end) == row, f"{row.name} at end {end}"


@drawn(walks(60), st.integers(2, 12))
@hypothesis_settings(max_examples=10, deadline=None)
def test_a_rebuilt_snapshot_equals_the_taken_one(walk: Walk, interval: int) -> None:
    records = list(walked(walk).log)
    with kept(interval) as one:
        one.live(records)
        assert one.snapshotting.offsets or len(records) < interval
        for offset in one.snapshotting.offsets:
            refold = StateRebuild(one.log, lambda: None)
            assert refold.go_to(offset) == offset, "it is at a command boundary"
            taken = one.state_at(offset)
            assert list(refold.pairs()) == taken, f"at {offset}"


@drawn(walks(60), st.lists(st.integers(1, 200), min_size=1, max_size=5))
@hypothesis_settings(max_examples=10, deadline=None)
def test_state_rebuild_stops_at_command_boundaries(walk: Walk, ends: list[int]) -> None:
    records = list(walked(walk).log)
    with kept() as one:
        one.commit(records) if records else None
        refold = StateRebuild(one.log, lambda: None)
        for end in sorted(min(end, len(records)) for end in ends):
            at = refold.go_to(end)
            assert at >= end
            assert at == len(records) or records[at].cause != records[at - 1].cause
            log, _ = in_memory(records[:at])
            assert list(refold.pairs()) == [pair for prefix in SNAPSHOT_KINDS for pair in log.scan(prefix)], f"at {at}"


def story(count: int) -> list[Recorded]:
    """A long deterministic walk with some topics at its end."""
    for seed in range(1000):
        rig = walked(_walk(seed, 200))
        if len(rig.log) >= count and len(list(topics_of(rig.state))) > 2:
            return list(rig.log)
    raise AssertionError("no walk is so long")


def test_damaged_and_missing_snapshots_are_rebuilt_at_start() -> None:
    records = story(120)
    with TemporaryDirectory() as place:
        one = Kept(Path(place) / "log", 10)
        one.live(records)
        taken = one.snapshotting.offsets
        assert len(taken) >= 6
        folder = one.log.path / FOLDER
        files = sorted(folder.iterdir())
        flip(files[2], 60)
        for file in files[4:-1]:
            file.unlink()
        (folder / "1.snapshot.tmp").write_bytes(b"half")
        one.log.close()

        again = Kept(Path(place) / "log", 10)
        again.snapshotting.begin(rebuild=True)
        again.work()
        assert [why for why in again.snapshotting.failures if files[2].name in why]
        assert not list(folder.glob("*.tmp"))
        offsets = snapshot_offsets(again.log)
        gaps = [after - before for before, after in zip([0, *offsets], [*offsets, len(records)], strict=True)]
        assert max(gaps) <= 2 * 10 + 20, f"no gap is too large: {offsets}"
        plain = query_of(records)
        for end in range(len(records)):
            assert again.query.topics_at(end, "", 100) == plain.topics_at(end, "", 100), f"at end {end}"
        again.log.close()


def test_a_snapshot_damaged_at_runtime_is_skipped() -> None:
    records = story(120)
    plain = query_of(records)
    with kept(10) as one:
        one.live(records)
        for file in sorted((one.log.path / FOLDER).iterdir())[1::2]:
            flip(file, 40)
        for end in range(0, len(records), 3):
            assert one.query.topics_at(end, "", 100) == plain.topics_at(end, "", 100), f"at end {end}"
            for name in NAMES:
                if any(row.name == name for row in plain.topics_at(end, "", 100).rows):
                    assert one.query.topic_at(name, end) == plain.topic_at(name, end)


def test_a_snapshot_excludes_concurrent_writes() -> None:
    records = story(100)
    with kept(10) as one:
        commits = commits_of(records)
        while not one.waiting:
            one.commit(next(commits))
        end = one.log.next_offset
        for commit in commits:
            one.commit(commit)
        assert len(one.waiting) == 1, "one snapshot at a time"
        one.work()
        assert one.snapshotting.offsets == [end]
        refold = StateRebuild(one.log, lambda: None)
        refold.go_to(end)
        assert list(refold.pairs()) == one.state_at(end)


def test_no_snapshot_is_taken_of_unsynced_events() -> None:
    records = story(60)
    with kept(10) as one:
        for commit in commits_of(records):
            for record in commit:
                one.recorder.record_encoded([record], [encode_event(record.at_ms, record.cause, record.event)])
            one.recorder.commit()
            one.snapshotting.take_if_due()
        assert not one.waiting
        one.log.flush()
        one.snapshotting.take_if_due()
        assert one.waiting


def test_close_cancels_snapshots_in_progress() -> None:
    records = story(60)
    with kept(10) as one:
        for commit in commits_of(records):
            one.commit(commit)
        one.snapshotting.close()
        one.work()
        assert not one.snapshotting.offsets
        assert not one.snapshotting.failures
        assert snapshot_offsets(one.log) == []


def test_closing_the_log_releases_frozen_state() -> None:
    with TemporaryDirectory() as place:
        one = Kept(Path(place) / "log", 10)
        for commit in commits_of(story(60)):
            one.commit(commit)
        one.log.close()
        one.work()
        assert one.snapshotting.failures
        again = Kept(Path(place) / "log", 10)
        assert snapshot_offsets(again.log) == []
        again.log.close()


def test_a_failed_snapshot_is_reported_without_files(tmp_path: Path) -> None:
    with kept(10) as one:
        (one.log.path / FOLDER).write_bytes(b"in the way")
        one.live(story(60))
        assert not one.snapshotting.offsets
        assert "snapshots" in one.snapshotting.failures[0]


def test_snapshots_are_thinned_evenly_and_the_newest_is_retained() -> None:
    offsets: list[int] = []
    for number in range(1, 1000):
        offsets.append(number * 105 + number % 7)
        gone = too_many(offsets, 100)
        assert offsets[-1] not in gone
        offsets = [one for one in offsets if one not in gone]
        assert len(offsets) <= SNAPSHOTS_MAX
        gaps = [after - before for before, after in zip([0, *offsets], offsets, strict=False)]
        assert max(gaps) <= 4 * spacing(100, offsets[-1]), f"{number}: {gaps}"
    assert too_many(offsets, 100) == []


def test_snapshot_gaps_beyond_twice_the_interval_are_missing() -> None:
    assert missing([], 35, 10) == [10, 20]
    assert missing([10, 20, 30], 45, 10) == []
    assert missing([10, 40], 45, 10) == [20, 30]
    assert missing([], 15, 10) == []
    assert spacing(10, 640) == 10
    assert spacing(10, 650) == 20


def test_snapshot_interval_0_disables_snapshots() -> None:
    with kept(0) as one:
        one.snapshotting.begin()
        for commit in commits_of(story(60)):
            one.commit(commit)
        assert not one.waiting


def test_a_snapshot_of_a_newer_event_version_is_skipped() -> None:
    with kept() as one:
        one.commit(story(60))
        end = one.log.next_offset
        about = snapshot_info(one.log, end)
        store_snapshot(
            one.log, SnapshotInfo(about.cluster_id, end, EVENT_VERSION + 1, about.last_event), [(b"t", b"?")]
        )
        assert one.query.topics_at(end, "", 100) == query_of(story(60)).topics_at(end, "", 100)
