"""`topicwright serve` takes snapshots while it works, and is killed while it does."""

from __future__ import annotations

import random
from pathlib import Path

from controller.cli.folder import FolderBackend
from events.catalog import EVENT_VERSION
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import FOLDER, newest_snapshot, open_snapshot, snapshot_offsets
from projections.queries.query import Query
from projections.store.snapshotting import Refold, state_keys
from projections.store.store import TopicStore
from projections.views.topics import TopicsView
from tests.serving.service import Load, Serving, check_log, check_there, serving, wait_until

SETTINGS = {"log.snapshot.interval.events": "200"}
ROUNDS = 6


def newest(server: Serving) -> int:
    """The newest snapshot's offset, as the metrics have it."""
    offsets = [int(file.name[:20]) for file in (server.data / FOLDER).glob("*.snapshot")]
    return max(offsets, default=0)


def test_snapshots_are_taken_under_load_and_the_past_begins_there(tmp_path: Path) -> None:
    with serving(tmp_path, settings=SETTINGS) as server:
        load = Load(server.kafka, "load", 600)
        load.start()
        load.done()
        wait_until(lambda: newest(server) > 1000)
        at = newest(server) + 7
        status, page = server.get(f"/v1/topics?at={at}&limit=1000")
        assert status == 200
        brokers = server.get(f"/v1/brokers?at={at}")[1]
    records = check_log(server.data)
    (tmp_path / "data" / FOLDER).rename(tmp_path / "taken away")
    with FolderBackend(server.data) as backend:
        again = backend.get(TopicsView, "/topics", limit=1000, at=at)
        assert [one.name for one in again.topics] == [one["name"] for one in page["topics"]]
        assert [one.status for one in again.topics] == [one["status"] for one in page["topics"]]
    assert brokers["as_of"]["offset"] == at
    assert len(records) > at


def test_killed_at_random_moments_nothing_half_done_stays(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    loads = []
    for number in range(ROUNDS):
        with serving(tmp_path, settings=SETTINGS) as server:
            load = Load(server.kafka, f"round-{number}")
            load.start()
            loads.append(load)
            begun = newest(server)
            target = begun + moments.choice((200, 500, 900))
            wait_until(lambda: newest(server) >= target)  # noqa: B023
            server.process.popen.kill()
            load.done()
    with serving(tmp_path, settings=SETTINGS) as server:
        wait_until(lambda: not list((server.data / FOLDER).glob("*.tmp")))
        check_there(server.topics(), loads)
    check_log(server.data)
    log = RocksDbLog.open(server.data, cluster_id=None, event_version=EVENT_VERSION, new_cluster_id=str)
    try:
        offsets = snapshot_offsets(log)
        assert newest_snapshot(log) == offsets[-1], f"seed {seed}"
        refold = Refold(log, lambda: None)
        for offset in offsets:
            with open_snapshot(log, offset) as snapshot:
                taken = list(state_keys(snapshot))
            (log.path / FOLDER / f"{offset:020}.snapshot").unlink()
            assert refold.go_to(offset) == offset, f"seed {seed}"
            assert list(refold.pairs()) == taken, f"the snapshot at {offset} is of what the events say, seed {seed}"
        store = TopicStore(log)
        query = Query(log, lambda: store)
        assert query.end() == log.next_offset
    finally:
        log.close()
