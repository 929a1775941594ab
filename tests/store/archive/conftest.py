"""A log with all events, and a copy whose older events are only in the archive."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.serving import archiving
from events.logs.archive.manifest import archive_status, status_changes
from events.logs.log import Commit
from events.logs.rocksdb_log import RocksDbLog
from tests.replay.history import open_log
from tests.store.archive.archives import archive_all, forget_all, take_snapshot, write_a_day

DAY_MS = 86_400_000


@pytest.fixture(scope="package")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive") / "log"
    write_a_day(folder, 600)
    return folder


@pytest.fixture
def whole(day: Path) -> Iterator[RocksDbLog]:
    with closing(open_log(day)) as log:
        yield log


@pytest.fixture
def folder(day: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(day, tmp_path / "log"))


@pytest.fixture
def log(folder: Path) -> Iterator[RocksDbLog]:
    """The log in `folder`."""
    with closing(open_log(folder)) as log:
        yield log


@pytest.fixture(scope="package")
def cut_day(day: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a log and its `archive`. Only the last segment is still in the log."""
    folder = tmp_path_factory.mktemp("cut")
    shutil.copytree(day, folder / "log")
    with closing(open_log(folder / "log")) as log:
        manifests = archive_all(log, folder / "archive")
        take_snapshot(log, 300)
        take_snapshot(log, manifests[-1].end)
        assert archiving.drop(log, manifests, manifests[-1].last_ms + DAY_MS, 0, -1)
        assert log.start_offset >= manifests[-2].end
        forget_all(log)
    return folder


@pytest.fixture
def cut(cut_day: Path, tmp_path: Path) -> Iterator[RocksDbLog]:
    """A copy of the log of `cut_day` and of its archive."""
    shutil.copytree(cut_day, tmp_path, dirs_exist_ok=True)
    with closing(open_log(tmp_path / "log")) as log:
        log.write(Commit(own=status_changes(replace(archive_status(log), url=str(tmp_path / "archive")))))
        yield log
