"""Rebuild of state from the log in plain Python on one core: read, decode, apply."""

import gc
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.creates import in_requests
from benchmarks.figures import Figure, command_line
from benchmarks.servers import topicwright
from controller.machine.apply import apply
from controller.machine.state import DictTopics, State
from events.codec import decode_event
from events.logs.rocksdb_log import RocksDbLog

REQUESTS = 340
TOPICS = 300


def rebuild(data: Path) -> tuple[int, int, float, float]:
    """Fold a whole log; returns events, topics, wall seconds and processor seconds."""
    log = RocksDbLog(data, cluster_id=None, new_cluster_id=lambda: "")
    topics = DictTopics()
    state = State(topics)
    gc.disable()
    started, core = time.perf_counter(), time.process_time()
    events = 0
    for offset, value in log.read():
        apply(state, decode_event(offset, value))
        events += 1
    elapsed, core_s = time.perf_counter() - started, time.process_time() - core
    gc.enable()
    log.close()
    return events, len(topics), elapsed, core_s


def run() -> list[Figure]:
    """Fill a log over the Kafka protocol, and fold it."""
    with TemporaryDirectory(prefix="topicwright-bench-") as folder:
        data = Path(folder) / "data"
        with topicwright(data) as running:
            in_requests(running.kafka, REQUESTS, TOPICS, False)
        events, topics, elapsed, core_s = rebuild(data)
    note = f"{events:,} events, {topics:,} topics"
    work, core_us = "rebuild: read, decode, apply on one core", core_s / events * 1e6
    return [Figure(work, "events/s", events / elapsed, None, "300,000", note, core_us)]


if __name__ == "__main__":
    command_line(run, __doc__)
