"""Record throughput of clients that bootstrap at Topicwright, and of clients that bootstrap at its target cluster.

librdkafka produces records and a new consumer reads them, in alternating rounds. Start-up (metadata, coordinator,
group) is a row of its own, because only that differs. The bytes that Topicwright read and wrote meanwhile, on sockets
and files together (`/proc/PID/io`), show that no records pass through it.

`python -m benchmarks.cluster_records [--rounds N] [--mib N] [--json]`
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it does not say it exports these

from benchmarks.figures import Figure, command_line, percentile
from benchmarks.servers import kafka, topicwright

RECORD = b"x" * 1000
MIB = 1 << 20
PARTITIONS = 3
WITHIN_S = 300.0


class Round:
    """Seconds to produce the records, to consume the first one, and to consume the others."""

    def __init__(self, bootstrap: str, name: str, count: int) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": f"{name}-admin"})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(WITHIN_S)
        own = {"bootstrap.servers": bootstrap, "client.id": name}
        producer = Producer({**own, "queue.buffering.max.messages": count + 1})
        producer.produce(name, RECORD)
        assert not producer.flush(WITHIN_S)
        started = time.perf_counter()
        for _ in range(count - 1):
            producer.produce(name, RECORD)
        assert not producer.flush(WITHIN_S)
        self.produced_s = time.perf_counter() - started
        started = time.perf_counter()
        consumer = Consumer({**own, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe([name])
        assert len(consumer.consume(1, WITHIN_S)) == 1
        self.started_s = time.perf_counter() - started
        left, started = count - 1, time.perf_counter()
        while left:
            found = len(consumer.consume(min(left, 10_000), 1.0))
            assert found or time.perf_counter() - started < WITHIN_S, f"{left} records are missing"
            left -= found
        self.consumed_s = time.perf_counter() - started
        consumer.close()
        admin.delete_topics([name])[name].result(WITHIN_S)


def moved_bytes(process: int) -> int:
    """The bytes that a process has read and written so far, on sockets and files."""
    lines = Path(f"/proc/{process}/io").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar")))


def run(rounds: int = 5, mib: int = 50) -> list[Figure]:
    """Measure both kinds of clients."""
    count = mib * MIB // len(RECORD)
    with (
        TemporaryDirectory(prefix="topicwright-bench-") as folder,
        kafka() as bootstrap,
        topicwright(Path(folder) / "data", brokers=f"cluster:{bootstrap}") as running,
    ):
        Round(bootstrap, "warm-there", count)
        Round(running.kafka, "warm-here", count)
        here, there, moved = list[Round](), list[Round](), 0
        for number in range(rounds):
            there.append(Round(bootstrap, f"there-{number}", count))
            before = moved_bytes(running.process.pid)
            here.append(Round(running.kafka, f"here-{number}", count))
            moved += moved_bytes(running.process.pid) - before

    def row(what: str, field: str) -> Figure:
        ours, theirs = (mib / percentile([getattr(each, field) for each in of], 0.5) for of in (here, there))
        note = f"{ours / theirs:.2f} of what clients of the broker reach; median of {rounds} rounds of {mib} MiB"
        return Figure(f"records: {what}", "MiB/s", ours, theirs, "1.00", note)

    first, theirs = (percentile([each.started_s for each in of], 0.5) for of in (here, there))
    note = f"of {2 * mib * rounds} MiB of records"
    return [
        row("produced", "produced_s"),
        row("consumed", "consumed_s"),
        Figure("records: a new group's first record", "s", first, theirs),
        Figure("records: bytes through Topicwright", "MiB", moved / MIB, None, "", note),
    ]


if __name__ == "__main__":
    command_line(run, __doc__)
