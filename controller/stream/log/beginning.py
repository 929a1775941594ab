"""What the folder of a partition begins with that is empty: the newest base beside the archive, where there is one.

Without one, or where none can be used, the partition is read from its first record on, if Kafka still has that. What
kept a base from being used is a line in the log: it costs time, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import structlog

from controller.serving.archiving import archive_place
from controller.settings.load import ServeSettings
from events.catalog import EVENT_VERSION
from events.logs.archive.base import Base, bases, fetch_base
from events.logs.archive.place import ArchiveError, Place, open_place, within
from events.logs.log import LogCorrupted, LogError
from events.logs.rocksdb_log import RocksDbLog
from projections.store.archived.bases import check_tree

NO_ARCHIVE = "no log.archive.url is set"
ArchiveOf = Callable[[int], Place]
"""Where the log of a partition is archived."""


class BeginningGone(LogCorrupted):
    """Kafka has the beginning of a partition no more, and there is nothing else to begin with."""

    def __init__(self, partition: int, first: int, why_no_base: str) -> None:
        super().__init__(
            f"events partition {partition} begins at record {first} in Kafka, and there is no base to begin with: "
            f"{why_no_base or 'the newest is older'}. Set log.archive.url to where workers archive, or restore the "
            "topic"
        )


def archive_of(settings: ServeSettings) -> ArchiveOf | None:
    """The places of the partitions' archives, in the one that `log.archive.url` names; None where it names none.
    Raises SettingsError."""
    url = settings.log_archive_url
    if archive_place(settings) is None or url is None:
        return None
    return lambda partition: open_place(within(url, f"partition-{partition:05}"))


def begin_with_base(folder: Path, place: Place | None, cluster_id: str, topic_id: str) -> str:
    """Make the folder of a partition of the newest usable base; why it was not, "" where it was."""
    if place is None:
        return NO_ARCHIVE
    lines = structlog.get_logger("topicwright")
    why = f"{place.url} has none"
    try:
        for base in bases(place, cluster_id, topic_id):
            try:
                fetch_base(place, base, folder, partial(_check, base, place))
            except LogCorrupted as error:
                why = str(error)
                lines.warning("base passed over", why=why)
                continue
            lines.info("began with a base", folder=str(folder), events=base.offset, bytes=base.size)
            return ""
    except (ArchiveError, LogError, OSError) as error:
        why = str(error)
    lines.info("no base to begin with", folder=str(folder), why=why)
    return why


def _check(base: Base, place: Place, folder: Path) -> None:
    """Raise LogCorrupted unless a folder that was made of a base has the tree of its events and of the archive."""
    opened = RocksDbLog.open(folder, cluster_id=base.cluster_id, event_version=EVENT_VERSION, new_cluster_id=str)
    with closing(opened) as log:
        check_tree(log, base, place)
