"""A rebuild from a snapshot and the events after it equals a rebuild from all events."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from controller.store.snapshotting import StateRebuild, state_keys
from controller.store.store import TopicStore
from controller.store.stored_topics import TOPIC
from events.logs.log import shard_offsets
from events.logs.snapshots import FOLDER, open_snapshot, snapshot_info, snapshot_offsets, store_snapshot
from projections.queries.query import Query
from projections.replay.log.log_ref import LogRef
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import Options
from projections.replay.rebuild.compare import run_compare
from projections.replay.rebuild.rebuild import beginning, run_rebuild
from projections.replay.redecide.backtest import count_effects, tally
from projections.replay.redecide.whatif import WhatIf
from projections.replay.runner import InProcess
from projections.replay.shards import AT_FIRST, newest_snapshot, rows_of
from projections.replay.spark.session import OnSpark
from tests.events.logs.rocksdb_folders import flip
from tests.replay.history import open_log


@pytest.fixture(scope="module")
def kept(history: LogRef, tmp_path_factory: pytest.TempPathFactory) -> LogRef:
    """The history with two snapshots."""
    folder = tmp_path_factory.mktemp("kept") / "log"
    shutil.copytree(history.path, folder, ignore=shutil.ignore_patterns("LOCK"))
    log = open_log(folder)
    store = TopicStore(log)
    query, refold = Query(log, lambda: store), StateRebuild(log, lambda: None)
    for offset in (log.next_offset // 3, log.next_offset * 2 // 3):
        at = refold.go_to(offset)
        store_snapshot(log, snapshot_info(log, at), query.snapshot_pairs(at, refold.pairs()))
    log.close()
    return LogRef(str(folder), folder)


def newest_of(ref: LogRef) -> list[int]:
    with frozen_log(ref.path) as log:
        return snapshot_offsets(log)


def test_rebuild_from_a_snapshot_equals_rebuild_from_scratch(spark: SparkSession, kept: LogRef) -> None:
    first, second = newest_of(kept)
    with frozen_log(kept.path) as log:
        end = log.next_offset
    for at, began in ((None, second), (str(end - 1), second), (str(first + 1), first), (str(first - 1), first)):
        whole = run_rebuild(InProcess(), kept, Options(at=at, from_scratch=True, all_rows=True))
        quick = run_rebuild(InProcess() if at else OnSpark(spark), kept, Options(at=at, all_rows=True))
        assert quick.rows == whole.rows, f"at {at}"
        assert quick.about["snapshot_offset"] == began - 1
        assert "snapshot_offset" not in whole.about
        stop = int(at) + 1 if at else end
        words = f"begun at the snapshot of offset {began - 1}, with {stop - began} event"
        assert quick.lines[-1].startswith(words)
        assert not any("snapshot" in line for line in whole.lines)


def test_rebuild_before_the_first_snapshot_reads_all_events(kept: LogRef) -> None:
    first, second = newest_of(kept)
    assert newest_snapshot(kept, {0: first - 1}) is AT_FIRST
    assert newest_snapshot(kept, {0: second - 1}).offset == first
    assert beginning(kept, {0: second}, Options(from_scratch=True)) is AT_FIRST


def test_compare_from_scratch_does_not_trust_a_wrong_snapshot(kept: LogRef, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(kept.path, folder)
    ref = LogRef(str(folder), folder)
    assert not run_compare(InProcess(), ref, Options()).found
    newest = newest_of(ref)[-1]
    log = open_log(folder)
    store = TopicStore(log)
    refold = StateRebuild(log, lambda: None)
    refold.go_to(newest)
    lost = next(
        key
        for key, _ in refold.pairs()
        if key.startswith(TOPIC) and not any(shard_offsets(log, key[1:].decode(), newest))  # no event is folded on it
    )
    (folder / FOLDER / f"{newest:020}.snapshot").unlink()
    pairs = [pair for pair in refold.pairs() if pair[0] != lost]
    query = Query(log, lambda: store)
    store_snapshot(log, snapshot_info(log, newest), query.snapshot_pairs(newest, iter(pairs)))
    log.close()
    trusting = run_compare(InProcess(), ref, Options())
    assert trusting.found, "a wrong snapshot is found"
    assert any("--from-scratch" in line for line in trusting.lines)
    assert not run_compare(InProcess(), ref, Options(from_scratch=True)).found


def test_a_damaged_snapshot_is_skipped(kept: LogRef, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(kept.path, folder)
    ref = LogRef(str(folder), folder)
    first, second = newest_of(ref)
    flip(folder / FOLDER / f"{second:020}.snapshot", 20)
    assert newest_snapshot(ref, {0: second}).offset == first
    with frozen_log(kept.path) as log, open_snapshot(log, first) as snapshot:
        assert list(state_keys(snapshot))


def test_a_backtest_from_a_snapshot_equals_one_from_the_first_event(kept: LogRef) -> None:
    first, _ = newest_of(kept)
    with frozen_log(kept.path) as log:
        ends = {0: log.next_offset}
    begin, tried = newest_snapshot(kept, {0: first}), WhatIf(rules="[[rule]]\nname = 'r'\nrefuse = 'all'\n")
    assert begin.offset == first
    whole, part = (
        tally(rows_of(count_effects(InProcess(), kept, ends, tried, first + 1, each))).to_pylist()
        for each in (AT_FIRST, begin)
    )
    assert part == whole
    assert any(one["change"] == "refused" for one in part)
