"""Locks the data folder of a worker or gateway, and fills an empty partition in it from a base in the archive.

An empty partition starts from the newest base in the archive. Without a usable base the partition is read from its
first record, if Kafka still has that. If a base is skipped, a log line says why; this only costs time.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import IO

import structlog

from controller.store.recovering import check_tree
from events.logs.archive.manifest import Base
from events.logs.archive.store import ArchiveError, ArchiveStore
from events.logs.log import LogCorrupted, LogError
from events.logs.rocksdb_log import RocksDbLog

LOCK = "process.lock"


class FolderLocked(OSError):
    """Another process uses the folder."""


def lock_folder(folder: Path) -> IO[str]:
    """Create the folder if missing, and lock it until the returned file is closed. Raises FolderLocked, and OSError for
    an unusable folder."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    file = (folder / LOCK).open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "another process"
        file.close()
        raise FolderLocked(f"{folder} is used by process {holder}: stop it, or choose another with --data") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


NO_ARCHIVE = "no log.archive.url is set"


class FirstRecordsDeleted(LogCorrupted):
    """Kafka no longer has the first records of a partition, and there is no base."""

    def __init__(self, partition: int, first: int, why_no_base: str) -> None:
        super().__init__(
            f"events partition {partition} begins at record {first} in Kafka, and there is no base to start from: "
            f"{why_no_base}. Set log.archive.url to where workers archive, or restore the topic"
        )


def start_from_base(
    folder: Path,
    place: ArchiveStore | None,
    cluster_id: str,
    topic_id: str,
    first_record: int,
    why_unusable: Callable[[RocksDbLog], str | None],
) -> str:
    """Replace a partition's folder by the newest usable base. Returns "", or the reason if no base is usable."""
    if place is None:
        return NO_ARCHIVE
    from events.logs.archive.base import bases, download_base  # imports pyarrow

    def check(base: Base, downloaded: Path) -> None:
        """Raise LogCorrupted unless the base can be used, and its tree matches its events and the archive."""
        with closing(RocksDbLog(downloaded, cluster_id=cluster_id)) as log:
            check_tree(log, base, place)
            if (why := why_unusable(log)) is not None:
                raise LogCorrupted(why)

    lines = structlog.get_logger("topicwright")
    why = f"{place.url} has none"
    try:
        for base in bases(place, cluster_id, topic_id):
            if base.kafka_offset < first_record:
                why = "the newest is older"
                break
            try:
                download_base(place, base, folder, partial(check, base))
            except LogCorrupted as error:
                why = str(error)
                lines.warning("base skipped", why=why)
                continue
            lines.info("started from a base", folder=str(folder), events=base.offset, bytes=base.size)
            return ""
    except (ArchiveError, LogError, OSError) as error:
        why = str(error)
    lines.info("no base to start from", folder=str(folder), why=why)
    return why
