"""Partitions take snapshots as they are brought further; those of a folder that has none begin at once."""

from __future__ import annotations

import time
from pathlib import Path

from controller.serving.archiving import LogSnapshots
from controller.stream.log.partition import PartitionState
from events.logs.snapshots import open_snapshot, snapshot_offsets
from projections.queries.query import Query
from projections.store.snapshotting import Refold, state_keys
from tests.stream.log.records import Writing, create, joined

INTERVAL, WITHIN_S = 20, 240


def taken(state: PartitionState, snapshots: LogSnapshots) -> int:
    """Commit, and wait for the snapshot at the end."""
    deadline = time.monotonic() + WITHIN_S
    state.commit()
    end = state.log.next_offset
    while end not in snapshot_offsets(state.log):
        assert time.monotonic() < deadline, "no snapshot was taken"
        snapshots.reached()
        time.sleep(0.01)
    return end


def test_snapshots_are_taken_and_the_past_begins_there(tmp_path: Path) -> None:
    state = PartitionState.open(tmp_path, 0, cluster_id="cluster-1", topic_id="topic-1")
    worker = Writing(state)
    worker.fence()
    worker.decide(*joined(1), *joined(2), *(create(f"t{number}") for number in range(12)))
    first = state.snapshots(INTERVAL)
    offsets = [taken(state, first)]
    first.close()
    worker.decide(*(create(f"u{number}") for number in range(12)))
    again = state.snapshots(INTERVAL)
    offsets.append(taken(state, again))
    again.close()
    assert snapshot_offsets(state.log) == offsets
    refold = Refold(state.log, lambda: None)
    for at in offsets:
        refold.go_to(at)
        with open_snapshot(state.log, at) as snapshot:
            assert dict(state_keys(snapshot)) == dict(refold.pairs())
    query = Query(state.log, lambda: state.store)
    assert len(query.topics_at(offsets[0], "", 100).rows) == 12
    state.close()


def test_interval_0_takes_no_snapshots(tmp_path: Path) -> None:
    state = PartitionState.open(tmp_path, 0, cluster_id="cluster-1", topic_id="topic-1")
    Writing(state).fence()
    state.commit()
    snapshots = state.snapshots(0)
    snapshots.reached()
    snapshots.close()
    assert snapshot_offsets(state.log) == []
    state.close()
