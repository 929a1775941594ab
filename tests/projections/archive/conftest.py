"""A day's log, whole and with its older events in the archive alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from events.logs.rocksdb_log import RocksDbLog
from projections.store.archived import retention
from tests.projections.archive.archives import (
    archive_all,
    forget_all,
    take_snapshot,
    write_a_day,
)
from tests.replay.history import open_log

EVENTS = 600
DAY_MS = 86_400_000


@pytest.fixture(scope="package")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive") / "log"
    write_a_day(folder, EVENTS)
    return folder


@pytest.fixture
def whole(day: Path) -> Iterator[RocksDbLog]:
    with closing(open_log(day)) as log:
        yield log


@pytest.fixture
def folder(day: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(day, tmp_path / "log"))


@pytest.fixture
def cut(folder: Path, tmp_path: Path) -> Iterator[RocksDbLog]:
    """The same log, of which all but the last segment is in the archive alone."""
    with closing(open_log(folder)) as log:
        manifests = archive_all(log, tmp_path / "archive")
        take_snapshot(log, 300)
        take_snapshot(log, manifests[-1].end)
        assert retention.drop(log, manifests, manifests[-1].last_ms + DAY_MS, 0, -1)
        assert log.start_offset >= manifests[-2].end
        forget_all(log)
        yield log
