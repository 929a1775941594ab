"""Readers see a log with archived events as one log. A crash at any step loses and duplicates no event. Changes in the
archive are detected."""

import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import Mock

import pytest
from rocksdict import DBRecoveryMode, WriteBatch

from controller.serving import archiving
from controller.serving.archiver import Archiver
from controller.store.request_index import IndexedRequest, RequestIndex, requests_between
from events.catalog import Cause, CreateAnswered, Recorded
from events.logs.archive import archive
from events.logs.archive.manifest import ManifestWriter, Segment, find_manifest, segment_changes, segments_of
from events.logs.archive.store import Folder
from events.logs.log import SHARD, Commit, Entry, LogCorrupted, read_one, shard_offsets, shard_runs
from events.logs.rocksdb_database import RETAINED, Database, Page, pack
from events.logs.rocksdb_log import RocksDbLog
from events.names import Offset, RequestId, TopicName
from projections.queries.events import newest_of
from projections.queries.proving import Audit
from projections.queries.query import Queries
from projections.queries.requests import RequestFilter, scan_requests
from projections.replay.log.secondary import frozen_log
from tests.projections.logs import explain
from tests.replay.history import open_log
from tests.store.archive.archives import (
    OTHER,
    SEGMENT,
    WRITER,
    archive_all,
    archiver,
    assert_one_log,
    forget_all,
    query_of_log,
    take_snapshot,
)


def events_of(log: RocksDbLog) -> list[bytes]:
    return [value for _, value in log.read()]


def test_every_read_of_an_archived_log_equals_the_complete_log(cut: RocksDbLog, whole: RocksDbLog) -> None:
    assert_one_log(cut, whole)


def test_reads_of_archived_shards_skip_deleted_rocksdb_keys(cut: RocksDbLog, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = list(cut.shard_keys())
    page = Database._page

    def without_runs(self: Database, family: Any, lower: bytes, *of: Any) -> Page:
        assert not lower.startswith(SHARD)
        return page(self, family, lower, *of)

    monkeypatch.setattr(Database, "_page", without_runs)
    assert any(shard_runs(cut, keys, 0, cut.start_offset))


def test_the_archive_index_cache_is_bounded_over_all_logs(
    cut: RocksDbLog, whole: RocksDbLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = lru_cache(2)(archive.Archive.index.__wrapped__)
    monkeypatch.setattr(archive.Archive, "index", kept)
    key = next(iter(cut.shard_keys()))
    cut.flush()
    assert cut.path is not None
    with frozen_log(cut.path) as seen:
        for log in (cut, seen, cut):
            assert list(shard_offsets(log, key)) == list(shard_offsets(whole, key))
            assert kept.cache_info().currsize == 2


@pytest.mark.parametrize("after", range(1, 12))
def test_concurrent_readers_find_all_segments(cut: RocksDbLog, after: int) -> None:
    """The second reader starts after this many lines of the first."""
    looked, end = archive.Archive(cut), cut.start_offset
    segments = [one for one in segments_of(cut) if one.end <= end]
    found, lines, before = list[list[Segment]](), count(), sys.gettrace()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not archive.Archive.segments.__code__:
            return None
        if event == "line" and next(lines) == after:
            found.append(list(looked.segments(0, end)))
        return trace

    sys.settrace(trace)
    try:
        found.append(list(looked.segments(0, end)))
    finally:
        sys.settrace(before)
    assert found in ([segments], [segments] * 2)


def test_a_frozen_log_reads_archived_and_local_events(cut: RocksDbLog, whole: RocksDbLog) -> None:
    cut.flush()
    assert cut.path is not None
    with frozen_log(cut.path) as seen:
        assert seen.start_offset == cut.start_offset
        assert_one_log(seen, whole)


def test_queries_of_an_archived_log_equal_the_complete_log(cut: RocksDbLog, whole: RocksDbLog) -> None:
    end, queries = whole.next_offset, (query_of_log(cut), query_of_log(whole))
    for at in range(1, end, 97):
        assert queries[0].topics_at(at, "", 1000) == queries[1].topics_at(at, "", 1000), at
        assert queries[0].cluster_at(at) == queries[1].cluster_at(at), at
    both = [Queries([one]) for one in queries]
    names = [topic.name for topic in both[1].newest(None, 1000)]
    for name in names[::5]:
        assert explain(both[0], name) == explain(both[1], name), name
        newest = [list(newest_of(one, name, end)) for one in queries]
        assert newest[0] == newest[1], name
    assert _requests(cut) == _requests(whole)
    assert len(requests_between(cut, 0, end)) < len(requests_between(whole, 0, end)) / 3, "the rest is archived"


def test_current_topics_are_listed_without_archive_reads(
    cut: RocksDbLog, whole: RocksDbLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Queries([query_of_log(log)]) for log in (cut, whole)]
    monkeypatch.setattr(archive, "read_stored", Mock(side_effect=AssertionError))
    shown, expected = (one.rows(one.newest(None, 1000)) for one in rows)
    assert shown == expected
    assert min(row.created_offset for row in shown) < cut.start_offset


def test_an_audit_reads_archived_and_local_events(cut: RocksDbLog) -> None:
    found = Audit(cut, query_of_log(cut), heads=(), public_key=None)
    assert found.findings == []
    assert found.size == cut.next_offset


@pytest.mark.parametrize("place", ["kept", "event"])
def test_an_audit_finds_a_replaced_local_copy_of_an_archived_event(cut: RocksDbLog, place: str) -> None:
    other, batch, database = read_one(cut, 7), WriteBatch(raw_mode=True), cut._readable()
    if place == "kept":
        batch.put(RETAINED + pack(5), other, database.views_handle)
    else:
        batch.put(pack(5), other)
    database.write(batch)
    assert read_one(cut, 5) == other, "reads return the replaced event"
    found = Audit(cut, query_of_log(cut), heads=(), public_key=None)
    assert found.findings == ["the local copy of event 5 is not the event in the archive"]


# --- retention


def test_retention_drops_only_archived_events_before_a_snapshot(log: RocksDbLog, tmp_path: Path) -> None:
    assert not archiving.drop(log, [], 10**15, 0, 0), "nothing is archived"
    manifests = archive_all(log, tmp_path / "archive")
    assert not archiving.drop(log, manifests, 10**15, 0, 0), "there is no snapshot"
    take_snapshot(log, SEGMENT + 10)
    assert not archiving.drop(log, manifests, manifests[0].last_ms, 0, -1), "no event is old enough"
    assert not archiving.drop(log, manifests, 10**15, -1, -1), "retention is unlimited"
    assert archiving.drop(log, manifests, 10**15, 0, -1)
    assert log.start_offset == SEGMENT, "the snapshot is in the second segment"
    assert not archiving.drop(log, manifests, 10**15, 0, 0)


LIMITS = """
# start snapshot now kept_ms kept_bytes | first kept
  0     400      500 -1      -1         | 0
  0     400      500 0       -1         | 400
  0     399      500 0       -1         | 300
  100   400      500 0       -1         | 400
  0     400      500 250     -1         | 200
  0     400      500 -1      2500       | 200
  0     400      500 -1      0          | 400
  0     100      500 -1      0          | 100
  0     0        500 0       0          | 0
  200   100      500 0       0          | 200
"""


@pytest.mark.parametrize("line", LIMITS.strip().splitlines()[1:])
def test_retention_is_limited_by_time_and_bytes(line: str) -> None:
    given, expected = line.split("|")
    start, snapshot, now_ms, kept_ms, kept_bytes = map(int, given.split())
    manifests = [
        Segment(
            start=at, end=at + 100, first_ms=at, last_ms=at + 99, event_version=1,
            event_bytes=1000, tree="", events=None, footer=None,  # type: ignore[arg-type]
        )
        for at in range(0, 400, 100)
    ]  # fmt: skip
    assert archiving.first_kept(manifests, start, snapshot, now_ms, kept_ms, kept_bytes) == int(expected)


def test_a_crash_while_events_are_dropped_loses_nothing(folder: Path, whole: RocksDbLog, tmp_path: Path) -> None:
    with closing(open_log(folder)) as log:
        manifests = archive_all(log, tmp_path / "archive")
        take_snapshot(log, manifests[-1].end)
        log.flush()
    steps: list[Callable[[RocksDbLog], object]] = [lambda log: archiving.drop(log, manifests, 10**15, 0, -1)]
    for manifest in manifests[:2]:
        steps += [partial(_leave, manifest, step) for step in range(4)]
    whole_page = _requests(whole)
    for step in steps:
        with closing(open_log(folder)) as log:
            step(log)
        with closing(open_log(folder)) as log:
            assert list(log.read()) == list(whole.read())
            for key in ("", *whole.shard_keys()):
                assert list(shard_offsets(log, key)) == list(shard_offsets(whole, key)), key
            assert _requests(log) == whole_page


def _leave(segment: Segment, last: int, log: RocksDbLog) -> None:
    """Run the first steps that remove a segment from the indexes. Finished steps are repeated, as after a crash."""
    assert archiving.next_to_clean_up(log, segments_of(log)) == segment
    steps = list(archiving.clean_up(log, segment, log.archive.index(segment)))
    for step in steps[: {0: 1, 1: 2, 2: len(steps) - 1}.get(last, len(steps))]:
        step()


def _requests(log: RocksDbLog) -> list[object]:
    """Returns the pages of all requests, and of filtered ones."""
    end, questions = log.next_offset, Queries([query_of_log(log)])
    filters = [RequestFilter(), RequestFilter(principal="User:ann"), RequestFilter(outcome="rejected")]
    pages = [scan_requests(questions, one, (end,), until=(end,), since=(0,), limit=1000) for one in filters]
    return [*pages, scan_requests(questions, filters[0], (200,), until=(150,), since=(20,), limit=1000)]


def _listed(log: RocksDbLog, which: RequestFilter) -> list[IndexedRequest]:
    end, questions = log.next_offset, Queries([query_of_log(log)])
    return list(scan_requests(questions, which, (end,), until=(end,), since=(0,), limit=1000).requests)


def _answer_late(log: RocksDbLog, late: IndexedRequest) -> None:
    """The newest event answers a request with a timeout."""
    answer = CreateAnswered(RequestId(late.request_id), TopicName(late.topics[0]), 7, "late", 60_000)
    cause = Cause("ExpireRequest", RequestId(late.request_id))
    index = RequestIndex(log)
    index._recent[late.request_id] = late  # the process that accepted the request answers it
    record = Recorded(Offset(log.next_offset - 1), 0, cause, answer)
    log.write(Commit(own=index.changes([record], [Entry(b"", "", late.request_id)])))


def _check_late(log: RocksDbLog, before: list[IndexedRequest], late: IndexedRequest) -> None:
    after = _listed(log, RequestFilter())
    assert [one.request_id for one in after] == [one.request_id for one in before], "each once, in order"
    assert late not in after
    timed_out = _listed(log, RequestFilter(outcome="timed-out"))
    assert late.request_id in [one.request_id for one in timed_out]
    assert all(one.outcomes.get("timed-out") for one in timed_out)


def test_a_request_answered_after_its_events_were_dropped_is_listed(cut: RocksDbLog) -> None:
    before = _listed(cut, RequestFilter())
    late = next(one for one in before[::-1] if one.topics and one.outcomes.get("created"))
    assert late.requested_offset < cut.start_offset
    _answer_late(cut, late)
    _check_late(cut, before, late)


def test_a_request_changed_after_archiving_is_retained_in_the_log(log: RocksDbLog, tmp_path: Path) -> None:
    segments = archive_all(log, tmp_path / "archive")
    take_snapshot(log, segments[-1].end)
    before = _listed(log, RequestFilter())
    late = next(one for one in before[::-1] if one.topics and one.outcomes.get("created"))
    _answer_late(log, late)
    assert archiving.drop(log, segments, 10**15, 0, -1)
    forget_all(log)
    assert late.requested_offset < log.start_offset
    _check_late(log, before, late)


def test_reads_continue_while_events_are_dropped(log: RocksDbLog, whole: RocksDbLog, tmp_path: Path) -> None:
    manifests = archive_all(log, tmp_path / "archive")
    take_snapshot(log, manifests[-1].end)
    events, of_cluster = log.read(), shard_offsets(log, "")
    seen = [next(events) for _ in range(10)]
    offsets = [next(of_cluster) for _ in range(3)]
    assert archiving.drop(log, manifests, 10**15, 0, -1)
    forget_all(log)
    assert [*seen, *events] == list(whole.read())
    assert [*offsets, *of_cluster] == list(shard_offsets(whole, ""))


@pytest.mark.parametrize("lost", [5, 40, 80])
def test_a_lost_event_after_dropped_ones_fails_the_open(folder: Path, tmp_path: Path, lost: int) -> None:
    with closing(open_log(folder)) as log:
        manifests = archive_all(log, tmp_path / "archive")
        take_snapshot(log, manifests[-1].end)
        assert archiving.drop(log, manifests[:2], 10**15, 0, -1)
        start = log.start_offset
        assert start + 80 < log.next_offset
    database = Database.open(folder, 1 << 20, DBRecoveryMode.absolute_consistency())
    batch = WriteBatch(raw_mode=True)
    batch.delete((start + lost).to_bytes(8, "big"))
    database.write(batch)
    database.close()
    with pytest.raises(LogCorrupted, match=f"deletes events among {start + lost} to {start + lost}"):
        open_log(folder)


# --- exactly once


class Died(BaseException):
    """The process was killed."""


class Dying(Folder):
    """A folder whose process dies before or after one of its writes."""

    def __init__(self, folder: Path, calls: int, after: bool) -> None:
        super().__init__(folder)
        self.left = calls
        self.after = after

    def write(self, name: str, content: bytes | memoryview) -> None:
        self.left -= 1
        if not self.left and not self.after:
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / f"{name}.unfinished").write_bytes(content[: len(content) // 2])
            raise Died
        super().write(name, content)
        if not self.left:
            raise Died


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("calls", range(1, 9))
def test_a_crash_at_any_archiving_step_archives_each_segment_once(
    folder: Path, whole: RocksDbLog, tmp_path: Path, calls: int, after: bool
) -> None:
    place = tmp_path / "archive"
    with closing(open_log(folder)) as log:
        store = Dying(place, calls, after)
        dying = archiver(log, store)
        with suppress(Died):
            while (segment := dying.step()) is not None:
                log.write(Commit(own=segment_changes(segment)))
        assert store.left == 0, "the archiver died"
    with closing(open_log(folder)) as log:
        manifests = archive_all(log, place, OTHER)
        assert [one.start for one in manifests] == list(range(0, SEGMENT * len(manifests), SEGMENT))
        assert len(manifests) == log.next_offset // SEGMENT
        there = find_manifest(Folder(place))
        assert there is not None
        assert list(there.segments) == manifests
        assert len(list((place / "events").glob("*.parquet"))) == len(manifests), "each once"
        end = manifests[-1].end
        assert [value for _, value in log.archive.read(0, end)] == events_of(whole)[:end]


def test_archiving_stops_between_two_batches(log: RocksDbLog, tmp_path: Path) -> None:
    def stop() -> None:
        raise Died

    place = Folder(tmp_path / "archive")
    at_work = Archiver(log, place, ManifestWriter(place, WRITER), segment_events=SEGMENT, pause=stop)
    with pytest.raises(Died):
        at_work.step()
    assert not list((tmp_path / "archive").glob("*/*"))
