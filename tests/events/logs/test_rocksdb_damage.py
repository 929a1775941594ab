"""Torn tails are truncated. Damage to synced bytes is an error at any position. No event is ever skipped."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from events.logs.log import LogCorrupted, read_one, request_offsets, shard_offsets
from events.logs.rocksdb_database import EventFile
from events.logs.rocksdb_log import RocksDbLog
from events.logs.rocksdb_recovery import _why_wrong
from tests.events.logs.rocksdb_folders import blank, copied, counted, cut, flip, largest, open_log, write_counted

SYNCED = 200
"""The number of synced commits of five events. As many unsynced ones follow."""

_slow = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A folder after kill -9 with half of its write-ahead log synced, and the size of that half."""
    folder = tmp_path_factory.mktemp("killed")
    log = open_log(folder / "live")
    write_counted(log, range(SYNCED))
    synced_bytes = largest(folder / "live", ".log").stat().st_size
    for number in range(SYNCED, 2 * SYNCED):
        log.write(counted(number))
    left = copied(folder / "live", folder / "left")
    log.close()
    return left, synced_bytes


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a closed log, with all events in table files."""
    folder = tmp_path_factory.mktemp("closed") / "log"
    log = open_log(folder)
    write_counted(log, range(2 * SYNCED))
    log.close()
    return folder


def assert_whole(log: RocksDbLog, at_least: int) -> None:
    """The log has at least `at_least` whole commits, and its state and indexes match them."""
    commits, torn = divmod(log.next_offset, 5)
    assert torn == 0, "no commit is partial"
    assert commits >= at_least, f"{at_least} commits were synced"
    expected = [entry.value for number in range(commits) for entry in counted(number).entries]
    assert list(log.read()) == list(enumerate(expected)), "the events equal those written"
    assert log.get(b"count") == (b"%d" % (commits - 1) if commits else None), "the state is that of the last event"
    assert sum(1 for _ in log.scan(b"commit:")) == commits, "one state key per commit"
    of_shard = [offset for offset in range(log.next_offset) if offset // 5 % 7 == 3]
    assert list(shard_offsets(log, "topic-3")) == of_shard, "the index of shards matches the events"
    if commits:
        assert list(request_offsets(log, f"request-{commits - 1}")) == list(range(5 * commits - 5, 5 * commits)), (
            "the index of requests matches too"
        )


TEARS: dict[str, Callable[[Path, int], None]] = {
    "the last record half written": lambda wal, synced: cut(wal, 10),
    "half of the unsynced part never written": lambda wal, synced: cut(wal, (wal.stat().st_size - synced) // 2),
    "all of it never written": lambda wal, synced: cut(wal, wal.stat().st_size - synced),
    "its last page zero": lambda wal, synced: blank(wal, wal.stat().st_size - 4096, 4096),
    "a page in its middle zero": lambda wal, synced: blank(wal, synced + 20_000, 4096),
    "a block in its middle zero": lambda wal, synced: blank(wal, (synced // 32_768 + 1) * 32_768, 32_768),
    "a byte in it garbled": lambda wal, synced: flip(wal, synced + 30_000),
}


@pytest.mark.parametrize("tear", TEARS)
def test_a_torn_unsynced_tail_is_truncated(killed: tuple[Path, int], tmp_path: Path, tear: str) -> None:
    folder = copied(killed[0], tmp_path / "log")
    TEARS[tear](largest(folder, ".log"), killed[1])
    log = open_log(folder)
    assert_whole(log, SYNCED)
    assert log.next_offset < 10 * SYNCED, "the tear removed events"
    assert log.truncated_at in (None, log.next_offset), "a tear at a record's end cannot be detected"
    end = log.next_offset
    assert log.write(counted(end // 5)) == end, "the log can be written"
    log.close()
    log = open_log(folder)
    assert (log.next_offset, log.truncated_at) == (end + 5, None)
    assert_whole(log, SYNCED)
    log.close()


DAMAGES: dict[str, Callable[[Path, int], None]] = {
    "a byte garbled": lambda wal, synced: flip(wal, synced // 2),
    "a length garbled": lambda wal, synced: flip(wal, 32_768 + 4),
    "its first byte garbled": lambda wal, synced: flip(wal, 0),
    "a page zero": lambda wal, synced: blank(wal, 32_768 + 4096, 4096),
    "a block zero": lambda wal, synced: blank(wal, 32_768, 32_768),
    "cut short": lambda wal, synced: cut(wal, wal.stat().st_size - synced + 1),
    "cut at a record's end": lambda wal, synced: cut(wal, wal.stat().st_size),
    "missing": lambda wal, synced: wal.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_synced_events_is_an_error(killed: tuple[Path, int], tmp_path: Path, damage: str) -> None:
    folder = copied(killed[0], tmp_path / "log")
    wal = largest(folder, ".log")
    DAMAGES[damage](wal, killed[1])
    with pytest.raises(LogCorrupted, match=r"everything up to 1000 was synced.*[Rr]estore") as refused:
        open_log(folder)
    assert str(folder) in str(refused.value)
    if damage not in ("missing", "cut at a record's end"):
        before = wal.read_bytes()
        with pytest.raises(LogCorrupted):
            open_log(folder)
        assert wal.read_bytes() == before, "a rejected open changes nothing"


def test_a_loss_of_synced_events_is_accepted_on_request(killed: tuple[Path, int], tmp_path: Path) -> None:
    folder = copied(killed[0], tmp_path / "log")
    flip(largest(folder, ".log"), killed[1] // 2)
    with pytest.raises(LogCorrupted, match=r"to accept the loss of offsets .* to 999, delete .*DURABLE"):
        open_log(folder)
    (folder / "DURABLE").unlink()
    log = open_log(folder)
    assert_whole(log, 0)
    assert log.truncated_at == log.next_offset > 0
    log.close()


@_slow
@given(data=st.data())
def test_any_flipped_byte_of_the_wal_is_detected_or_in_the_unsynced_tail(
    killed: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = copied(killed[0], tmp_path_factory.mktemp("wal") / "log")
    wal = largest(folder, ".log")
    at = data.draw(st.integers(0, wal.stat().st_size - 1), "at")
    flip(wal, at, data.draw(st.integers(1, 255), "bits"))
    try:
        log = open_log(folder)
    except LogCorrupted:
        assert at < killed[1], "only damage to synced bytes fails the open"
        return
    try:
        assert_whole(log, SYNCED)
    finally:
        log.close()


@_slow
@given(data=st.data())
def test_any_flipped_byte_of_an_sst_file_is_detected_or_harmless(
    closed: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = copied(closed, tmp_path_factory.mktemp("table") / "log")
    table = data.draw(st.sampled_from(sorted(folder.glob("*.sst"))), "table")
    flip(table, data.draw(st.integers(0, table.stat().st_size - 1), "at"), data.draw(st.integers(1, 255), "bits"))
    refused = ""
    try:
        log = open_log(folder)
    except LogCorrupted as error:
        refused = str(error)
    else:
        try:
            assert_whole(log, 2 * SYNCED)
        except LogCorrupted as error:
            refused = str(error)
        finally:
            log.close()
    assert not refused or table.name in refused, "the error names the file"


def test_reading_stops_with_an_error_at_a_damaged_block(closed: Path, tmp_path: Path) -> None:
    folder = copied(closed, tmp_path / "log")
    table = largest(folder, ".sst")
    flip(table, 10)
    log = open_log(folder)
    errors = []
    for read in (lambda: list(log.read()), lambda: read_one(log, 0)):
        with pytest.raises(LogCorrupted, match=rf"{table.name} offset 0 size \d+") as error:
            read()
        errors.append(error)
    assert read_one(log, log.next_offset - 1) == counted(2 * SYNCED - 1).entries[-1].value, "sound blocks are readable"
    log.close()
    with pytest.raises(LogCorrupted):
        list(open_and_read(folder))


def open_and_read(folder: Path) -> list[tuple[int, bytes]]:
    """Opens the log while earlier errors are still referenced: they must not hold its lock."""
    log = open_log(folder)
    try:
        return list(log.read())
    finally:
        log.close()


@pytest.mark.parametrize("suffix", [".sst", "CURRENT", "MANIFEST"])
def test_a_missing_file_is_an_error(closed: Path, tmp_path: Path, suffix: str) -> None:
    folder = copied(closed, tmp_path / "log")
    gone = next(each for each in sorted(folder.iterdir()) if suffix in each.name)
    gone.unlink()
    with pytest.raises(LogCorrupted, match=gone.name):
        open_log(folder)


def edit(folder: Path, change: Callable[[Rdict, Rdict], None]) -> None:
    """Change a closed log in ways that RocksDB does not detect."""
    database = Rdict(str(folder), Options(raw_mode=True))
    views = database.get_column_family("views")
    change(database, views)
    views.close()
    database.close()


EDITS: dict[str, tuple[Callable[[Rdict, Rdict], None], str]] = {
    "an event removed": (lambda events, views: events.delete((77).to_bytes(8, "big")), "deletes events among 77 to 77"),
    "an event replaced": (
        lambda events, views: events.put((77).to_bytes(8, "big"), b"?"),
        "holds events 77 to 77 again",
    ),
    "the last event removed": (lambda events, views: events.delete((1999).to_bytes(8, "big")), "everything up to 2000"),
    "an event added": (lambda events, views: events.put((2000).to_bytes(8, "big"), b"?"), "its state at 2000"),
    "an event far off": (lambda events, views: events.put((9000).to_bytes(8, "big"), b"?"), "its state at 2000"),
    "the state behind": (lambda events, views: views.put(b"mnext", (1).to_bytes(8, "big")), "its state at 1"),
    "no identity": (lambda events, views: views.delete(b"mcluster"), "no cluster id"),
}


@pytest.mark.parametrize("edited", EDITS)
def test_a_contradictory_log_is_an_error(closed: Path, tmp_path: Path, edited: str) -> None:
    folder = copied(closed, tmp_path / "log")
    change, message = EDITS[edited]
    edit(folder, change)
    with pytest.raises(LogCorrupted, match=message):
        open_log(folder)
    with pytest.raises(LogCorrupted, match=message):
        open_log(folder)


WRONG_FILES = """
# first last entries deletions reached | finding
  0     9    10      0         0       |
  0     9    0       0         0       |
  0     9    9       0         0       | 1 of the events 0 to 9 are missing in table file a.sst
  0     9    11      0         0       | has 11 entries for the 10 events 0 to 9: another program wrote into it
  5     9    5       0         3       | events 3 to 4 are missing: no table file holds them
  2     9    8       0         3       | holds events 2 to 9 again, of which other files have those below 3
  3     3    1       1         3       | deletes events among 3 to 3
"""


@pytest.mark.parametrize("line", WRONG_FILES.strip().splitlines()[1:])
def test_invalid_sst_files_are_diagnosed(line: str) -> None:
    given, finding = line.split("|")
    first, last, entries, deletions, reached = map(int, given.split())
    found = _why_wrong(EventFile(first, last, entries, deletions, "a.sst"), reached)
    assert finding.strip() in found
    assert bool(finding.strip()) == bool(found)


def test_a_damaged_durable_mark_is_ignored(killed: tuple[Path, int], tmp_path: Path) -> None:
    folder = copied(killed[0], tmp_path / "log")
    (folder / "DURABLE").write_bytes(b"\xff" * 8)
    log = open_log(folder)
    assert (log.next_offset, log.durable_offset, log.truncated_at) == (10 * SYNCED, 10 * SYNCED, None)
    assert_whole(log, SYNCED)
    log.close()
    (folder / "DURABLE").write_bytes(b"")
    open_log(folder).close()
