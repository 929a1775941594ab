"""`topicwright serve` takes snapshots while it works, and reads of the past start from them."""

from __future__ import annotations

from pathlib import Path

from controller.cli.folder import FolderBackend
from events.logs.snapshots import FOLDER
from projections.views.topics import TopicsView
from tests.serving.service import Load, Serving, check_log, serving, wait_until

SETTINGS = {"log.snapshot.interval.events": "200"}


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
