"""Queries about past states of a long log: pages and full lists of topics, snapshots, memory and disk space.

    python -m benchmarks.history [DIR] [--events 1000000 10000000] [--topics 100000]

A log is generated with the given number of topics (`benchmarks.generate`). Then it grows like one of Kafka brokers:
nearly all events are ISR changes; sometimes topics are deleted, recreated and altered. If DIR has a log, it grows
further. Snapshots are taken as in `serve`.

Each figure has the wall time and the processor time, which other users of the machine change less.
"""

import argparse
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec.structs import replace

from benchmarks.figures import Figure, percentile, show
from benchmarks.generate import Generator
from benchmarks.usage import MIB, resident_mib
from controller.machine.state import Topic
from controller.settings.load import load_settings
from controller.store.snapshotting import Pairs, Snapshotting
from controller.store.store import TopicStore
from events.catalog import Cause, PartitionChanged, Recorded
from events.codec import encode_event
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import FOLDER, snapshot_offsets
from events.names import Offset, RequestId
from projections.queries import overviews
from projections.queries.query import Queries, Query
from projections.queries.topics import topics_at

SIZES = (1_000_000, 10_000_000)
TOPICS = 100_000
MOMENTS = 20
PAGE, PAGE_MAX = 100, 1000
OTHER_THAN_ISR = 0.02
"""The fraction of changes that are no ISR changes."""
_CAUSE = "AlterPartition"

_encode = msgspec.json.Encoder().encode


class Timing:
    """Wall time and processor time of each repetition."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.core: list[float] = []

    def run(self, work: Callable[[], object]) -> None:
        """Run and time the work once."""
        started, used = time.perf_counter(), time.process_time()
        work()
        self.wall.append(time.perf_counter() - started)
        self.core.append(time.process_time() - used)

    def figures(self, work: str, unit: str = "ms", reach: str = "") -> Iterator[Figure]:
        """The longest wall time; the note has the other values."""
        times = 1000 if unit == "ms" else 1
        note = (
            f"half within {percentile(self.wall, 0.5) * times:.3g}; of a core at most {max(self.core) * times:.3g}, "
            f"half within {percentile(self.core, 0.5) * times:.3g}"
        )
        yield Figure(f"{work}, longest of {len(self.wall)}", unit, max(self.wall) * times, None, reach, note)


class Measured(Snapshotting):
    """Snapshots that are written in the calling thread, with their times and sizes in bytes."""

    def __init__(self, log: RocksDbLog, interval: int, with_views: Callable[[int, Pairs], Pairs]) -> None:
        super().__init__(log, interval, with_views)
        self.times, self.sizes = Timing(), list[int]()

    def _start(self, work: Callable[[], None]) -> None:
        self.times.run(work)

    def taken(self, offset: int, size: int) -> None:
        self.sizes.append(size)


class Growing(Generator):
    """A generated log that keeps growing, with snapshots."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed, skewed=False)
        self.query = Query(self.log, lambda: self._store)
        interval = load_settings().log_snapshot_interval_events
        self.snapshots = Measured(self.log, interval, self.query.snapshot_pairs)
        self._names = [topic.name for topic in self._store.durable_from(None)]
        self._known = set(self._names)

    def grow(self, events: int, topics: int) -> None:
        """Grow the log to `events` events; a new log first gets `topics` topics."""
        if not self._offset:
            self._begin()
            for number in range(topics):
                self._create_some(number)
        while self._offset < events:
            name = self._rng.choice(self._names)
            topic = self._topic(name)
            if topic is None or self._rng.random() < OTHER_THAN_ISR:
                self._something()
            else:
                self._shrink_or_grow(topic)
        self._commit()
        self.log.flush()

    def _shrink_or_grow(self, topic: Topic) -> None:
        index = self._rng.randrange(len(topic.partitions))
        one = topic.partitions[index]
        whole = len(one.isr) == len(one.replicas)
        isr = tuple(each for each in one.replicas if each == one.leader) if whole else one.replicas
        after = replace(one, isr=isr, partition_epoch=one.partition_epoch + 1)
        self._requests += 1
        self._now_ms += self._rng.randrange(1, 20)
        event = PartitionChanged(topic.name, index, one, after, "reported by its leader")
        cause = Cause(_CAUSE, RequestId(f"broker-{self._requests}"))
        value = encode_event(self._now_ms, cause, event)
        record = Recorded(Offset(self._offset), self._now_ms, cause, event)
        self._recorder.record_encoded((record,), (value,))
        self._recorded(1)

    def _commit(self) -> None:
        super()._commit()
        if self.log.next_offset >= self.snapshots.next_at:
            self.log.flush()
            self.snapshots.take_if_due()


def past_of(folder: Path, seed: int) -> Iterator[Figure]:
    """Measures queries about past states of a log."""
    log = RocksDbLog(folder, cluster_id=None, new_cluster_id=str)
    store = TopicStore(log)
    query, end, chance = Queries([Query(log, lambda: store)]), log.durable_offset, random.Random(seed)
    names = sorted(topic.name for topic in store.durable_from(None))
    page, place, brokers, whole = Timing(), Timing(), Timing(), Timing()
    for _ in range(MOMENTS):
        at, after = str(chance.randrange(end // 20, end)), chance.choice(names)
        page.run(lambda: _encode(topics_at(query, at, None, PAGE)))  # noqa: B023
        place.run(lambda: _encode(topics_at(query, at, after, PAGE)))  # noqa: B023
        brokers.run(lambda: _encode(overviews.brokers(query, at)))  # noqa: B023
    offsets = snapshot_offsets(log)
    furthest = max(zip([0, *offsets], [*offsets, end], strict=True), key=lambda gap: gap[1] - gap[0])
    topics = 0
    for at in (str(furthest[1] - 1), str(chance.randrange(end // 2, end)), str(chance.randrange(end // 2, end))):
        topics = _whole(whole, query, at)
    log.close()
    yield from page.figures(f"the first {PAGE} topics of any moment", reach="300")
    yield from place.figures(f"{PAGE} topics of any moment, from anywhere", reach="300")
    yield from brokers.figures("the brokers of any moment", reach="300")
    yield from whole.figures(f"all {topics:,} topics of a moment, in pages of {PAGE_MAX}", "s", reach="6")


def _whole(timing: Timing, query: Queries, at: str) -> int:
    found = 0

    def listed() -> None:
        nonlocal found
        after: str | None = None
        while True:
            page = topics_at(query, at, after, PAGE_MAX)
            _encode(page)
            found += len(page.topics)
            after = page.next_cursor
            if after is None:
                return

    timing.run(listed)
    return found


def measured(folder: Path, events: int, topics: int) -> list[Figure]:
    """Grow the log in a folder to `events` events, and measure."""
    one = Growing(folder, events)
    one.snapshots.begin()
    one.grow(events, topics)
    one.log.close()
    log_bytes, snapshot_bytes = _size(folder.glob("*")), _size((folder / FOLDER).glob("*"))
    count = len(list((folder / FOLDER).iterdir()))
    before = resident_mib(os.getpid())
    figures = list(past_of(folder, events))
    of_size = f"at {events:,} events: "
    figures += [
        *(one.snapshots.times.figures("taking a snapshot", "s") if one.snapshots.times.wall else ()),
        Figure("the log on disk", "MiB", log_bytes / MIB),
        Figure(f"its {count} snapshots", "MiB", snapshot_bytes / MIB),
        Figure("memory that the questions took", "MiB", resident_mib(os.getpid()) - before),
    ]
    return [replace(figure, work=of_size + figure.work) for figure in figures]


def _size(files: Iterator[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())


def run(folder: Path, sizes: tuple[int, ...] = SIZES, topics: int = TOPICS) -> list[Figure]:
    return [figure for events in sorted(sizes) for figure in measured(folder, events, topics)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", metavar="DIR")
    parser.add_argument("--events", type=int, nargs="+", default=SIZES)
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="topicwright-bench-") as temporary:
        folder = options.folder or Path(temporary) / "log"
        show(run(folder, tuple(options.events), options.topics), options.json)


if __name__ == "__main__":
    main()
