"""Changed, malformed and foreign archives are rejected, each with a clear error."""

import json
import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from controller.serving import archiver as archiver_module
from controller.serving.archiving import Archiving
from controller.settings.load import load_settings
from events.logs.archive import manifest, store
from events.logs.archive.manifest import (
    MANIFEST,
    ArchiveDamaged,
    ArchiveOfAnotherLog,
    ManifestWriter,
    find_manifest,
    history_of,
    read_manifest,
    segment_changes,
    segments_of,
)
from events.logs.archive.store import ArchiveAway, ArchiveError, BadArchiveUrl, Folder, open_store
from events.logs.log import Commit, LogCorrupted, read_one, shard_offsets
from events.logs.rocksdb_log import RocksDbLog
from projections.queries.proving import Audit
from tests.replay.history import open_log
from tests.store.archive.archives import OTHER, SEGMENT, WRITER, archive_all, archiver, live_on, query_of_log
from tests.support.ports import free_ports

# --- damage


def test_a_changed_byte_in_a_segment_is_detected(cut: RocksDbLog, tmp_path: Path) -> None:
    one = sorted((tmp_path / "archive" / "events").iterdir())[1]
    content = bytearray(one.read_bytes())
    content[len(content) // 2] ^= 1
    one.write_bytes(content)
    assert read_one(cut, 5), "other segments are readable"
    with pytest.raises(ArchiveDamaged, match=f"{one.name} is not as it was archived: restore it"):
        read_one(cut, SEGMENT + 5)
    found = Audit(cut, query_of_log(cut), heads=(), public_key=None)
    assert "is not as it was archived" in found.findings[0]


def test_a_missing_segment_is_an_error(cut: RocksDbLog, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "archive" / "events")
    with pytest.raises(ArchiveDamaged, match=r"0\.parquet is missing|parquet is missing: restore it from a copy"):
        read_one(cut, SEGMENT + 5)


def test_a_replaced_segment_index_is_detected(cut: RocksDbLog, tmp_path: Path) -> None:
    one = sorted((tmp_path / "archive" / "events").iterdir())[0]
    content = one.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    one.write_bytes(content[:-footer] + bytes(footer - 8) + content[-8:])
    cut.close()
    with closing(open_log(tmp_path / "log")) as log:
        with pytest.raises(ArchiveDamaged, match=rf"{one.name} is not as it was archived"):
            list(shard_offsets(log, "more_200"))
        found = Audit(log, query_of_log(log), heads=(), public_key=None)
    assert f"{one.name} is not as it was archived" in found.findings[0]


def test_damaged_archive_records_of_a_log_are_detected(cut: RocksDbLog) -> None:
    cut.write(Commit(own=dict.fromkeys(segment_changes(next(segments_of(cut))), b"\xc1")))
    with pytest.raises(LogCorrupted, match="what the log keeps of its archive is damaged"):
        list(segments_of(cut))


def test_a_changed_manifest_stops_archiving(log: RocksDbLog, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    archive_all(log, place)
    last = place / MANIFEST
    said = json.loads(last.read_text())
    last.write_text(last.read_text().replace('"event_version": 1', '"event_version": 2'))
    with pytest.raises(ArchiveDamaged, match=r"the manifest of the segment from offset .* was changed"):
        archiver(log, Folder(place)).step()
    for content in (b"{", b'{"cluster_id": "\xff"}', b"[" * 100_000):
        last.write_bytes(content)
        with pytest.raises(ArchiveDamaged, match=r"cannot be read"):
            archiver(log, Folder(place)).step()
    for segments, wrong in ((said["segments"][:-1], " which was archived"), (said["segments"][1:], "")):
        last.write_text(json.dumps({**said, "segments": segments}))
        with pytest.raises(ArchiveDamaged, match=rf"lacks the segment from offset \d+ on[,:]{wrong}"):
            archiver(log, Folder(place)).step()


def test_an_archive_of_another_cluster_or_history_is_rejected(log: RocksDbLog, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    about = place / MANIFEST
    archive_all(log, place)
    said = json.loads(about.read_text())
    for change, pattern in (
        ({"cluster_id": "elsewhere"}, "is the archive of cluster elsewhere, not of replayed-cluster"),
        ({"history": "0" * 16}, "is the archive of another history of cluster replayed-cluster"),
        ({"format": 2}, "was written by a newer release"),
    ):
        about.write_text(json.dumps({**said, **change}))
        with pytest.raises(ArchiveOfAnotherLog, match=pattern):
            archiver(log, Folder(place)).step()


def test_an_archive_starts_with_the_first_event_of_the_log(tmp_path: Path) -> None:
    """A voter starts its archiver before it has an event."""
    log, place = open_log(tmp_path / "log"), open_store(str(tmp_path / "archive"))
    at_work = archiver(log, place)
    assert at_work.step() is None
    assert find_manifest(place) is None, "an empty log has no history"
    live_on(log, 2 * SEGMENT)
    log.flush()
    segment = at_work.step()
    assert segment is not None
    log.write(Commit(own=segment_changes(segment)))
    assert list(segments_of(log)) == [segment]
    assert read_manifest(place).history == history_of(log) != ""
    log.close()


def test_a_diverged_copy_of_the_log_is_not_archived(
    folder: Path, day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both copies of the folder were started, so their events differ after the first segment."""
    place = tmp_path / "archive"
    with closing(open_log(folder)) as log:
        manifests = archive_all(log, place)
    copy = Path(shutil.copytree(day, tmp_path / "copy"))
    with closing(open_log(copy)) as log:
        other = archiver(log, Folder(place))
        first = bytes.fromhex(manifests[0].tree)
        monkeypatch.setattr(archiver_module, "range_root", lambda _, start, end: bytes(32) if start else first)
        assert other.step() == manifests[0]
        with pytest.raises(ArchiveOfAnotherLog, match=f"holds other events from offset {SEGMENT} on"):
            other.step()


def test_events_that_contradict_the_merkle_tree_are_not_archived(
    log: RocksDbLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work = archiver(log, Folder(tmp_path / "archive"))
    monkeypatch.setattr(archiver_module, "range_root", lambda *_: bytes(32))
    with pytest.raises(LogCorrupted, match=r"are not those that its tree was made over, and are not archived"):
        at_work.step()
    assert not read_manifest(Folder(tmp_path / "archive")).segments


def test_two_services_with_one_archive_are_detected(log: RocksDbLog, tmp_path: Path) -> None:
    place = Folder(tmp_path / "archive")
    first, second = archiver(log, place), archiver(log, place, OTHER)
    assert first.step()
    assert second.step(), "it takes over the existing segment"
    with pytest.raises(ArchiveOfAnotherLog, match=r"another service archives to .*: process 7 of elsewhere"):
        first.step()
    assert second.step()
    assert second.next_offset == 2 * SEGMENT


def test_a_log_with_dropped_events_rejects_an_empty_archive(cut: RocksDbLog, tmp_path: Path) -> None:
    with pytest.raises(ArchiveOfAnotherLog, match=r"is empty, and the log's events below .* are in"):
        archiver(cut, Folder(tmp_path / "elsewhere")).step()
    shutil.copytree(tmp_path / "archive", tmp_path / "elsewhere")
    moved = archiver(cut, Folder(tmp_path / "elsewhere"))
    assert moved.step() is None, "the archive is complete"
    assert not moved.is_new_archive


def test_a_complete_log_is_archived_again_at_a_new_url(log: RocksDbLog, tmp_path: Path) -> None:
    """Also after a power failure before the log recorded the first segment at the new URL."""
    before = archive_all(log, tmp_path / "archive")
    moved = archiver(log, Folder(tmp_path / "elsewhere"))
    assert moved.step() == before[0]
    assert moved.is_new_archive
    again = archiver(log, Folder(tmp_path / "elsewhere"))
    assert [again.step(), again.step()] == before[:2]
    assert again.is_new_archive


async def test_an_emptied_archive_is_filled_again_across_restarts(folder: Path, tmp_path: Path) -> None:
    settings, place = load_settings(overrides=("log.archive.interval.events=256",)), tmp_path / "archive"

    writer = ManifestWriter(Folder(place), WRITER)

    async def archived(segments: int) -> Archiving:
        with closing(open_log(folder)) as log:
            one = Archiving(log, settings, lambda: 0, Folder(place), writer)
            for _ in range(segments):
                await one._once()
            assert list(segments_of(log)) == one._segments
            return one

    await archived(3)
    shutil.rmtree(place)
    assert len((await archived(1))._segments) == 1, "the log forgets the segments of the emptied archive"
    one = await archived(3)
    assert (one.error, [each.start for each in one._segments]) == (None, [0, 256])


class Full(Folder):
    def write(self, name: str, content: bytes | memoryview) -> None:
        if name.startswith("events/"):
            raise ArchiveAway(f"the archive {self.url} cannot be used now: No space left on device")
        super().write(name, content)


def test_a_full_archive_is_retried(log: RocksDbLog, tmp_path: Path) -> None:
    at_work = archiver(log, Full(tmp_path / "archive"))
    with pytest.raises(ArchiveAway, match=r"No space left"):
        at_work.step()
    at_work._store = Folder(tmp_path / "archive")
    assert at_work.step()


def test_an_oversized_manifest_is_not_written(log: RocksDbLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Folder(tmp_path / "archive")
    monkeypatch.setattr(manifest, "MANIFEST_BYTES_MAX", 1000)
    at_work = archiver(log, place)
    assert at_work.step()
    with pytest.raises(ArchiveError, match="its manifest has no room for more segments"):
        at_work.step()
    assert len(read_manifest(place).segments) == 1


def test_an_archive_path_that_is_a_file_is_an_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        closing(open_log(folder)) as log,
        pytest.raises(ArchiveAway, match=r"file cannot be used now: .*Not a directory"),
    ):
        archiver(log, Folder(tmp_path / "file")).step()


BAD_PLACES = """
                                     | is not a place for an archive: use a folder, s3://
http://host/path                     | is not a place for an archive
file://host/path                     | is not a place for an archive
s3://                                | is not a place for an archive
s3:///path                           | is not a place for an archive
s3://bucket/a/../b                   | is not a place for an archive
s3://[bucket/path                    | is not a place for an archive
ftp://bucket/a?x=secret              | 'ftp://bucket/a' is not a place for an archive
ftp://u:p/secret@bucket/a            | 'ftp://(hidden)@bucket/a' is not a place for an archive
s3://AKIA:secret@bucket/a            | before @ in the URL of an archive may hold a secret: give credentials in the env
s3://secret@bucket/a                 | before @
gs://user:secret@bucket              | before @
gs://secret@bucket/a                 | before @
abfs://con:secret@acc/a              | before @
abfs://SECRET+secret==@acc/a         | before @
s3://bucket/a#secret                 | after #
abfs://con@b/c?client_secret=secret  | a parameter in the URL of an archive may hold a secret
abfs://con@b/p?sv=2022&sig=secret    | a parameter
s3://bucket/a?secret                 | parameters of s3:// may be allow_bucket_creation
gcs://bucket/a?REGION=secret         | parameters of gcs:// may be endpoint_override, project_id, retry_limit_seconds, s
s3://b/p?endpoint_override=http://u:secret@h:1     | the value of endpoint_override in the URL of an archive may hold
s3://b/p?endpoint_override=http://u%3asecret%40h:1 | the value of endpoint_override
s3://b/p?endpoint_override=h:1/?sig%3dsecret       | the value of endpoint_override
"""


@pytest.mark.parametrize("line", BAD_PLACES.strip("\n").splitlines())
def test_invalid_archive_urls_are_rejected(line: str) -> None:
    url, pattern = (one.strip() for one in line.split("|"))
    with pytest.raises(BadArchiveUrl, match=re.escape(pattern)) as raised:
        open_store(url)
    assert "secret" not in str(raised.value).replace("may hold a secret", "")


WITHIN = """
/a/b/                    | /a/b/n
s3://b                   | s3://b/n
s3://b/p/?region=x&a=b/  | s3://b/p/n?region=x&a=b/
"""


@pytest.mark.parametrize("line", WITHIN.strip().splitlines())
def test_archive_url_of_a_subfolder_is_derived(line: str) -> None:
    url, expected = (one.strip() for one in line.split("|"))
    assert store.within(url, "n") == expected


STORES_AWAY = (
    "gs://anonymous@bucket/a?endpoint_override=127.0.0.1:PORT&scheme=http&retry_limit_seconds=1",
    "gs://anonymous@bucket/a?endpoint_override=127.0.0.1:PORT&scheme=http",
    "abfs://container@devstoreaccount1/a?blob_storage_authority=127.0.0.1:PORT&enable_tls=false",
)


@pytest.mark.parametrize("url", STORES_AWAY)
def test_an_unreachable_archive_is_reported(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "TRIED_S", 1)
    url = url.replace("PORT", str(free_ports(1)[0]))
    with pytest.raises(ArchiveAway, match=re.escape(f"the archive {url} cannot be used now: ")):
        open_store(url).names("state")


@pytest.mark.parametrize("name", ["../x.json", "a/../b.json", "/etc/passwd", "a/b/c.json", "a", "state/x\0.json"])
def test_object_names_outside_the_archive_are_rejected(name: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"is the name of no object"):
        Folder(tmp_path).read(name)
