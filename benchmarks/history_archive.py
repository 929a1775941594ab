"""A log and its archive: the speed of archiving, the space that remains on the local disk, and the time in which an
empty folder starts from a base.

    python -m benchmarks.history_archive [DIR] [--events 1000000] [--topics 100000]

If DIR has a log of `benchmarks.history`, it is used as it is; its archive is DIR-archive.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from benchmarks.figures import Figure, show
from benchmarks.history import TOPICS, Growing, Timing, past_of
from benchmarks.usage import MIB
from controller.serving import archiving
from controller.serving.archiver import Archiver
from controller.store.recorder import Recorder
from controller.store.recovering import check_tree
from controller.store.store import TopicStore
from events.logs.archive.base import download_base, write_base
from events.logs.archive.manifest import (
    Base,
    ManifestWriter,
    Writer,
    archive_status,
    segment_changes,
    segments_of,
    status_changes,
)
from events.logs.archive.store import Folder
from events.logs.log import Commit
from events.logs.rocksdb_log import RocksDbLog

EVENTS = 1_000_000
_FAR_MS = 10**15
WRITER = Writer(boot="benchmark", where="benchmark", since_ms=0)


def opened(folder: Path) -> RocksDbLog:
    return RocksDbLog(folder, cluster_id=None, new_cluster_id=str)


def archived(log: RocksDbLog, place: Folder) -> Iterator[Figure]:
    """Archive all closed segments, and drop their events from the log."""
    archiving, leaving = Timing(), Timing()
    log.write(Commit(own=status_changes(replace(archive_status(log), url=place.url))))
    at_work = Archiver(log, place, ManifestWriter(place, WRITER), known=lambda: list(segments_of(log)))

    first = max((one.end for one in segments_of(log)), default=0)

    def archive() -> None:
        while (segment := at_work.step()) is not None:
            log.write(Commit(own=segment_changes(segment)))

    archiving.run(archive)
    segments = list(segments_of(log))
    leaving.run(lambda: _leave(log))
    log.flush()
    end = segments[-1].end if segments else 0
    events = max(1, end - first)
    size = sum(one.events.size for one in segments)
    speed = f"{events / archiving.core[0]:,.0f} events a second of a core"
    yield Figure(
        f"archiving {events:,} events", "s", archiving.wall[0], None, "", f"{archiving.core[0]:.1f} of a core: {speed}"
    )
    yield Figure("an event in the archive", "bytes", size / max(1, end))
    yield Figure("letting them go from the folder", "s", leaving.wall[0], None, "", f"{leaving.core[0]:.1f} of a core")


def _leave(log: RocksDbLog) -> None:
    segments = list(segments_of(log))
    archiving.drop(log, segments, _FAR_MS, 0, -1)
    while (one := archiving.next_to_clean_up(log, segments)) is not None:
        for step in archiving.clean_up(log, one, log.archive.index(one)):
            step()


def snapshot_offset(log: RocksDbLog, place: Folder, fresh: Path) -> Iterator[Figure]:
    """Upload a base, and start from it as an empty folder does, until the state can decide commands."""
    putting, beginning, checking = Timing(), Timing(), Timing()
    base = Base(topic_id="topic", start=log.start_offset, offset=log.next_offset, kafka_offset=0)
    put: list[Base] = []
    putting.run(lambda: put.append(write_base(ManifestWriter(place, WRITER), base, log.frozen_pairs())))

    def check(folder: Path) -> None:
        with closing(opened(folder)) as one:
            checking.run(lambda: check_tree(one, put[0], place))

    def begin() -> None:
        rmtree(fresh, ignore_errors=True)
        download_base(place, put[0], fresh, check)
        with closing(opened(fresh)) as one:
            Recorder(one, TopicStore(one))

    beginning.run(begin)
    size = f"{put[0].size / MIB:.1f} MiB, with {base.offset - base.start:,} events"
    yield Figure("putting a base", "s", putting.wall[0], None, "", f"{putting.core[0]:.1f} of a core; {size}")
    behind = f"an empty folder, {base.offset:,} events behind it, begins"
    tree = f"{checking.core[0]:.1f} of them to check its tree"
    yield Figure(behind, "s", beginning.wall[0], None, "10", f"{beginning.core[0]:.1f} of a core, {tree}")


def measured(folder: Path) -> Iterator[Figure]:
    """Measure everything for the log in a folder."""
    place = Folder(folder.with_name(folder.name + "-archive"))
    with closing(opened(folder)) as log:
        yield from archived(log, place)
        yield from snapshot_offset(log, place, folder.with_name(folder.name + "-fresh"))
    with closing(opened(folder)):  # opening the log compacts the files, which frees the space of dropped events
        pass
    here = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    yield Figure("the folder, with its snapshots", "MiB", here / MIB, None, "1024")
    yield from past_of(folder, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", metavar="DIR")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="topicwright-bench-") as temporary:
        folder = options.folder or Path(temporary) / "log"
        if options.folder is None:
            one = Growing(folder, options.events)
            one.snapshots.begin()
            one.grow(options.events, options.topics)
            one.log.close()
        figures = []
        for figure in measured(folder):
            print(f"{figure.work}: {figure.topicwright:.4g} {figure.unit}; {figure.note}", file=sys.stderr, flush=True)
            figures.append(figure)
        show(figures, options.json)


if __name__ == "__main__":
    main()
