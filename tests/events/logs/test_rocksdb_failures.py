"""Failed writes and syncs leave no partial commit and lose no flushed event. Writes work after recovery."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from events.logs.log import LogClosed, LogDiskFull, LogError, LogWriteError
from events.logs.rocksdb_log import RocksDbLog
from tests.events.logs.rocksdb_folders import counted, open_log, write_counted


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RocksDbLog]:
    log = open_log(tmp_path / "log")
    write_counted(log, range(3))
    yield log
    log.close()


FULL = "IO error: No space left on device: While appending to file: 000004.log: No space left on device"
BROKEN = "IO error: While fdatasync: 000004.log: Input/output error"


def fails(log: RocksDbLog, method: str, words: str) -> None:
    """A method of the database raises with RocksDB's message until the log has recovered."""
    setattr(log._readable(), method, Mock(side_effect=Exception(words)))


def test_a_failed_write_blocks_writes_until_recovery(log: RocksDbLog) -> None:
    fails(log, "write", FULL)
    with pytest.raises(LogDiskFull, match="make room, nothing that was answered is lost"):
        log.write(counted(3))
    assert (log.next_offset, log.durable_offset) == (15, 15)
    until = r"rejects writes until it has recovered from: IO error: No space"
    with pytest.raises(LogWriteError, match=until):
        log.write(counted(3))
    with pytest.raises(LogWriteError, match=until):
        log.flush()
    assert log.get(b"count") == b"2", "reads still work"
    assert log.recover() == 15
    assert log.write(counted(3)) == 15
    assert log.flush() == 20


def test_after_a_failed_sync_recovery_reads_the_disk(log: RocksDbLog) -> None:
    log.write(counted(3))
    fails(log, "sync", BROKEN)
    with pytest.raises(LogWriteError, match="Input/output error") as failed:
        log.flush()
    assert not isinstance(failed.value, LogDiskFull)
    assert log.durable_offset == 15, "unsynced events are not durable"
    with pytest.raises(LogWriteError):
        log.write(counted(4))
    end = log.recover()
    assert end in (15, 20), "the commit is complete or missing"
    assert log.durable_offset == end, "recovered events are durable"
    assert log.get(b"count") == b"%d" % (end // 5 - 1)
    assert log.write(counted(end // 5)) == end


def test_a_failed_recovery_is_repeatable(log: RocksDbLog) -> None:
    fails(log, "write", BROKEN)
    with pytest.raises(LogWriteError):
        log.write(counted(3))
    current = log.path / "CURRENT"
    current.rename(log.path / "HIDDEN")
    (log.path / "CURRENT").mkdir()
    with pytest.raises(LogError):
        log.recover()
    with pytest.raises(LogClosed, match="is closed until it has recovered from: IO error: While fdatasync"):
        log.get(b"count")
    (log.path / "CURRENT").rmdir()
    (log.path / "HIDDEN").rename(current)
    assert log.recover() == 15
    assert log.get(b"count") == b"2"


def test_closing_a_failed_log_releases_the_folder_lock(log: RocksDbLog) -> None:
    log.write(counted(3))
    fails(log, "sync", BROKEN)
    with pytest.raises(LogWriteError):
        log.close()
    again = open_log(log.path)
    assert again.next_offset in (15, 20)
    again.close()


def test_close_and_recover_wait_for_concurrent_readers(log: RocksDbLog) -> None:
    ended: list[LogError] = []
    started = threading.Barrier(5)

    def read(first: bool = True) -> None:
        try:
            while True:
                assert dict(log.scan())[b"count"] == b"2"
                assert len(list(log.read())) == 15
                assert log.get(b"count") == b"2"
                if first:
                    started.wait()
                first = False
        except LogClosed as error:
            ended.append(error)

    for stop in (log.recover, log.close):
        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
        stop()
        if stop == log.close:
            for thread in threads:
                thread.join()
    assert len(ended) == 8, "each reader gets LogClosed"
    open_log(log.path).close()


WRITE_UNTIL_FULL = """
import resource, sys
from pathlib import Path
from events.logs.log import Commit, Entry, LogDiskFull
from tests.events.logs.rocksdb_folders import open_log

log = open_log(Path(sys.argv[1]))
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, hard))
flushed = 0
try:
    while True:
        log.write(Commit([Entry(b"%d" % log.next_offset * 1000, "t")], {b"last": b"%d" % log.next_offset}))
        flushed = log.flush()
except LogDiskFull as error:
    print(error)
assert flushed > 100, flushed
try:
    log.recover()
except LogDiskFull:
    assert log.get(b"last") is not None, "reading goes on while the disk is full"
else:
    raise AssertionError("there is no room to recover in")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
end = log.recover()
assert end >= flushed, (end, flushed)
assert log.get(b"last") == b"%d" % (end - 1)
assert [value for _, value in log.read()] == [b"%d" % number * 1000 for number in range(end)]
assert log.write(Commit([Entry(b"again", "t")])) == end
log.close()
"""


def test_a_write_beyond_the_file_size_limit_is_recovered(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WRITE_UNTIL_FULL, str(tmp_path / "log")], check=True, timeout=60)
