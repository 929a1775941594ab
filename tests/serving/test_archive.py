"""`topicwright serve` archives its log and drops archived events, also when it is killed or its store is
unreachable."""

import random
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.cli.main import main
from controller.store.recovering import archived
from events.logs.archive.manifest import read_manifest, segments_of
from events.logs.archive.store import Folder
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import FOLDER
from tests.serving.service import Load, Serving, check_log, check_there, loads_on, serving, wait_until
from tests.store.archive.archives import open_any
from tests.support.s3_server import ENV, S3Server

SETTINGS = {"log.archive.interval.events": "256", "log.snapshot.interval.events": "200", "log.events.retention.ms": "0"}
ROUNDS = 2


def figure(server: Serving, name: str) -> int:
    """Returns the value of a gauge."""
    with urllib.request.urlopen(f"http://{server.http}/metrics", timeout=240) as answer:
        lines = answer.read().decode().splitlines()
    return int(float(next(line for line in lines if line.startswith(f"topicwright_{name} ")).split()[1]))


def check_archive(data: Path) -> RocksDbLog:
    """Check that segments are contiguous, and archived events match the Merkle tree; returns the log."""
    log = open_any(data)
    manifests = list(segments_of(log))
    assert [one.start for one in manifests] == [256 * number for number in range(len(manifests))]
    assert log.start_offset in {0, *(one.end for one in manifests)}
    return log


def _archived_events(folder: Path, end: int) -> Iterator[tuple[int, bytes]]:
    """Returns the events of an archive in a folder."""
    place = Folder(folder)
    for record, value in archived(place, read_manifest(place).segments):
        if record.offset < end:
            yield record.offset, value


def _first_request(server: Serving) -> str:
    """Returns the id of the first create request."""
    events = server.get("/v1/events?limit=1000")[1]["events"]
    return next(str(one["cause"]["request_id"]) for one in events if one["type"] == "CreateRequested")


def test_archiving_survives_kills_at_random_times(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    settings = {**SETTINGS, "log.archive.url": str(tmp_path / "archive")}
    loads: list[Load] = []
    try:
        for number in range(ROUNDS):
            with serving(tmp_path, settings=settings) as server:
                check_there(server.topics(), loads)
                started = loads_on(server, f"round-{number}", 2)
                loads += started
                target = figure(server, "log_archived_offset") + moments.choice((512, 1024))
                wait_until(lambda: figure(server, "log_archived_offset") >= target)  # noqa: B023
                server.process.popen.kill()
                for load in started:
                    load.done()
        with serving(tmp_path, settings=settings) as server:
            wait_until(lambda: figure(server, "log_start_offset") > 512)
            wait_until(lambda: not list((server.data / FOLDER).glob("*.tmp")))
            assert check_there(server.topics(), loads) > 0
            status, page = server.get("/v1/requests?limit=1000")
            assert status == 200
            while page["next_cursor"]:
                status, page = server.get(f"/v1/requests?limit=1000&cursor={page['next_cursor']}")
                assert status == 200
            assert page["requests"][-1]["request_id"] == _first_request(server), "pages go back to the first request"
            status, page = server.get("/v1/events?limit=1000")
            assert status == 200
            assert [one["offset"] for one in page["events"]] == list(range(1000)), "events begin in the archive"
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    with closing(check_archive(server.data)) as log:
        assert log.start_offset > 512
        starts = [one.start for one in read_manifest(Folder(tmp_path / "archive")).segments]
        known = [one.start for one in segments_of(log)]
        assert starts[: len(known)] == known
        assert len(starts) <= len(known) + 1, "the next start imports a segment written during the kill"
    check_log(server.data)
    assert main(["verify", str(server.data)]) == 0


def test_archiving_pauses_while_the_s3_store_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, value in ENV.items():
        monkeypatch.setenv(key, value)
    store = S3Server(tmp_path / "s3")
    settings = {**SETTINGS, "log.archive.url": store.url("cluster/one")}
    with serving(tmp_path, settings=settings) as server:
        loads_on(server, "load", 1, 300)[0].done()
        wait_until(lambda: figure(server, "log_archive_paused") == 1)
        status, health = server.get("/health/ready")
        assert (status, health["status"]) == (200, "ready")
        assert health["reason"].startswith("archiving is paused: the archive s3://history/cluster/one")
        (load,) = loads_on(server, "more", 1, 60)
        load.done()
        assert load.answers[0] > 0, "the service still decides"
        assert figure(server, "log_start_offset") == 0, "only archived events are dropped"
        with store.running():
            wait_until(lambda: figure(server, "log_start_offset") >= 1024)
            assert figure(server, "log_archive_paused") == 0
            status, page = server.get("/v1/events?limit=300")
            assert main(["events", "--http", server.http, "--since", "520", "--until", "600"]) == 0
            assert "1 files were read from the archive of the log" in capsys.readouterr().err
            assert [one["offset"] for one in page["events"]] == list(range(300))
            assert main(["backup", store.url("backup"), "--data", str(server.data)]) == 0
            again = tmp_path / "again"
            assert main(["recover", store.url("backup"), "--data", str(again)]) == 0
            assert main(["verify", store.url("backup")]) == 0
        assert server.get("/v1/topics?limit=10")[0] == 200, "current topics need no archive"
        status, refused = server.get("/v1/events?from=800&limit=5")
        assert (status, refused["error"]) == (503, "KAFKA_STORAGE_ERROR")
        assert "s3://history/cluster/one" in refused["message"]
    with closing(check_archive(server.data)) as log, closing(open_any(again)) as other:
        start, end = log.start_offset, other.next_offset
        assert 256 < start < end <= log.next_offset
        assert list(log.read(start, end)) == list(other.read(start))
        assert list(other.read(0, start)) == list(_archived_events(store.bucket / "cluster" / "one", start))
    capsys.readouterr()
