"""Opening a log folder: ownership, locks, and errors. Reading: runs are found next to many deleted ones, and pages of
scans are small at first."""

import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from rocksdict import AccessType, DBRecoveryMode, Options, Rdict, WriteBatch

from events.logs import rocksdb_recovery
from events.logs.archive.whole_log import WholeLog
from events.logs.log import (
    REQUEST,
    Commit,
    LogClosed,
    LogCorrupted,
    LogDiskFull,
    LogError,
    LogFromNewerVersion,
    LogLocked,
    LogOfAnotherCluster,
    LogWriteError,
)
from events.logs.rocksdb_database import Database, Page, pack, run_prefix
from events.logs.rocksdb_log import RocksDbLog
from events.logs.rocksdb_recovery import classify
from tests.events.logs.rocksdb_folders import copied, counted, open_log, write_counted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(folder: Path) -> Iterator[RocksDbLog]:
    log = open_log(folder)
    yield log
    log.close()


def test_a_new_folder_is_made_with_its_parents_and_the_cluster_id_it_is_given(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "er" / "log"
    open_log(folder, cluster_id="mine").close()
    log = open_log(folder)
    assert log.cluster_id == "mine", "without an id, the folder's own"
    log.close()


def test_a_log_of_another_cluster_is_rejected(folder: Path) -> None:
    open_log(folder, cluster_id="theirs").close()
    with pytest.raises(
        LogOfAnotherCluster, match=r"log holds the log of cluster theirs, not of mine: set cluster\.id=t"
    ) as e:
        open_log(folder, cluster_id="mine")
    assert (e.value.expected, e.value.found) == ("mine", "theirs")
    log = open_log(folder, cluster_id="theirs")
    assert log.cluster_id == "theirs", "a rejected open leaves no lock"
    log.close()


def test_a_newer_event_version_is_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in (1, 3):
        monkeypatch.setattr(rocksdb_recovery, "EVENT_VERSION", version)
        open_log(folder).close()
    monkeypatch.setattr(rocksdb_recovery, "EVENT_VERSION", 2)
    with pytest.raises(LogFromNewerVersion, match=r"event version 3; this one reads up to format 1, event version 2"):
        open_log(folder)
    monkeypatch.setattr(rocksdb_recovery, "EVENT_VERSION", 3)
    open_log(folder).close()


def test_a_newer_log_format_is_rejected(folder: Path) -> None:
    open_log(folder).close()
    database = Rdict(str(folder), Options(raw_mode=True))
    views = database.get_column_family("views")
    views[b"mformat"] = b"2"
    views.close()
    database.close()
    with pytest.raises(LogFromNewerVersion, match="log format 2"):
        open_log(folder)


def test_a_log_open_in_this_process_is_locked(folder: Path, log: RocksDbLog) -> None:
    with pytest.raises(LogLocked, match="one process writes a log"):
        open_log(folder)
    assert log.write(counted(0)) == 0


def test_opening_a_file_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a log")
    for path in (file, file / "log"):
        with pytest.raises(LogError, match="is not a folder"):
            open_log(path)
    assert file.read_text() == "not a log"


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that every user can access, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        yield Path(name)


def test_a_folder_of_another_user_is_rejected(open_to_all: Path) -> None:
    closed = open_to_all / "closed"
    closed.mkdir(mode=0o500)
    as_nobody = (
        "import os, sys; from pathlib import Path; from tests.events.logs.rocksdb_folders import open_log\n"
        "from events.logs.log import LogError\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "for path in (sys.argv[1], sys.argv[1] + '/log'):\n"
        "    try: open_log(Path(path))\n"
        "    except LogError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", as_nobody, str(closed)], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stdout
    assert all("this user may not read or write there" in line and str(closed) in line for line in lines)


def test_other_files_in_the_folder_are_ignored(folder: Path) -> None:
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (folder / "lost+found").mkdir()
    open_log(folder).close()
    open_log(folder).close()
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_secondary_reads_during_writes(folder: Path, log: RocksDbLog, tmp_path: Path) -> None:
    write_counted(log, range(10))
    secondary = Rdict(
        str(folder), Options(raw_mode=True), access_type=AccessType.secondary(str(tmp_path / "secondary"))
    )
    write_counted(log, range(10, 20))
    secondary.try_catch_up_with_primary()
    read = list(secondary.items(from_key=(5).to_bytes(8, "big")))
    secondary.close()
    expected = [(offset.to_bytes(8, "big"), value) for offset, value in log.read(5)]
    assert read == expected, "the events are the default column family, keyed by offset alone"


def test_a_stored_log_closed_error_does_not_hold_the_lock(folder: Path) -> None:
    log = open_log(folder)
    log.close()
    with pytest.raises(LogClosed) as kept:
        log.get(b"k")
    open_log(folder).close()
    assert kept.value


def test_an_incompletely_created_folder_is_created_again(folder: Path, tmp_path: Path) -> None:
    Rdict(str(folder), Options(raw_mode=True)).close()
    log = open_log(folder)
    assert log.cluster_id == "made-here"
    left = copied(folder, tmp_path / "left")
    log.close()
    log = open_log(left)
    assert (log.cluster_id, log.next_offset) == ("made-here", 0), "a kill during creation"
    log.close()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "IO error: No space left on device: While appending to file: /d/000004.log: No space left on device",
            LogDiskFull,
        ),
        ("IO error: File too large: While appending to file: /d/000004.log: File too large", LogDiskFull),
        ("IO error: While lock file: /d/LOCK: Resource temporarily unavailable", LogLocked),
        ("IO error: lock hold by current process, acquire time 1 acquiring thread 2: /d/LOCK: No locks", LogLocked),
        ("IO error: While open a file for appending: /d/000004.log: Permission denied", LogError),
        ("IO error: While mkdir if missing: /d: Read-only file system", LogError),
        (
            "Corruption: block checksum mismatch: stored = 1, computed = 2 in /d/000009.sst offset 3 size 4",
            LogCorrupted,
        ),
        ("IO error: While fdatasync: /d/000004.log: Input/output error", LogWriteError),
    ],
)
def test_rocksdb_errors_are_classified_by_text(text: str, kind: type[LogError]) -> None:
    error = classify(Exception(text), Path("/d"), LogWriteError)
    assert type(error) is kind
    assert "/d" in str(error)


FORGOTTEN = 3000
"""Deleted offsets of the index, many more than a scan steps over one by one."""
END = 4000


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = opened(tmp_path)
    yield found
    found.close()


def opened(folder: Path) -> Database:
    return Database.open(folder / "db", 1 << 20, DBRecoveryMode.absolute_consistency())


def write(database: Database, runs: dict[str, list[range]]) -> None:
    batch = WriteBatch(raw_mode=True)
    for name, each in runs.items():
        for run in each:
            batch.put(run_prefix(REQUEST, name) + pack(run.stop - 1), pack(run.start), database.views_handle)
    database.write(batch)


def some_runs(rng: random.Random, names: list[str]) -> dict[str, list[range]]:
    """Consecutive runs of one to nine events under random names. None crosses the offset `FORGOTTEN`."""
    found: dict[str, list[range]] = {name: [] for name in names}
    at = 0
    while at < END:
        stop = min(at + rng.choice((1, 1, 2, 9)), END if at >= FORGOTTEN else FORGOTTEN)
        found[rng.choice(names)].append(range(at, stop))
        at = stop + rng.choice((0, 0, 0, 5)) if stop != FORGOTTEN else stop
    return found


@pytest.mark.parametrize("seed", range(4))
def test_runs_are_found_next_to_thousands_of_deleted_keys(database: Database, seed: int) -> None:
    rng = random.Random(seed)
    names = ["a", "a\0", "ab", "b", "z"]
    runs = some_runs(rng, names)
    write(database, runs)
    if seed % 2:
        database._views.flush()
    for name, each in runs.items():
        for offset in chain.from_iterable(run for run in each if run.start < FORGOTTEN):
            database._views.delete(run_prefix(REQUEST, name) + pack(offset))
    kept = {name: [run for run in each if run.start >= FORGOTTEN] for name, each in runs.items()} | {"never": []}
    log = WholeLog()
    log.next_offset, log._database = END + 10, database
    for _ in range(100):
        start = rng.randrange(FORGOTTEN, END)
        end = rng.randrange(start + 1, END + 10)
        found = [list(log.runs(REQUEST, name, start, end)) for name in kept]
        wanted = [
            [range(max(run.start, start), min(run.stop, end)) for run in each if run.stop > start and run.start < end]
            for each in kept.values()
        ]
        assert found == wanted


def test_first_block_of_a_scan_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[int] = []
    read = Database._page

    def counted(self: Database, *of: Any) -> Page:
        page = read(self, *of)
        pages.append(len(page[0]))
        return page

    keys = [b"k%05d" % number for number in range(5_000)]
    log = open_log(tmp_path / "log")
    log.write(Commit(own=dict.fromkeys(keys, bytes(200))))
    monkeypatch.setattr(Database, "_page", counted)
    assert next(log.scan(b"k"))[0] == keys[0]
    assert sum(pages) < 100
    pages.clear()
    assert [key for key, _ in log.scan(b"k")] == keys
    assert len(pages) < 10, "long scans read large pages"
    log.close()
