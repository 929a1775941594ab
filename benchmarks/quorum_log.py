"""A voter that joins a Kafka controller with a long metadata log: the time until it has joined, and until it votes
again after a kill -9.

Kafka's controller starts the log. Then records are appended to it as by a leader: ten partitions a topic, and ISR
changes. The columns are the seconds from the start of the process until its log reaches the leader's end, until its
event log does, and until it votes; and its memory then.

`python -m benchmarks.quorum_log [--records N] [--changes-per-partition N] [--set KEY=VALUE]`
"""

import argparse
import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.usage import resident_mib
from controller.kafka.messages import records as kinds
from controller.kafka.messages.records import MetadataRecord
from controller.quorum.files import QuorumFiles
from controller.quorum.log.batches import encode_batch
from controller.quorum.log.metadata_codec import encode_record
from tests.support import tools
from tests.support.kafka_quorum import FIRST_ID, Controller, KafkaQuorum
from tests.support.ports import free_ports
from tests.support.processes import Process
from tests.support.quorum_cluster import describe
from tests.support.real_brokers import new_directory_id, until
from tests.support.topicwright import COMMAND, fetch

PARTITIONS: Final = 10
RECORDS_PER_BATCH: Final = 1000
HEAP: Final = "2g"
NOW_MS: Final = 1_700_000_000_000
PARTITION_VERSION: Final = 2
REGISTRATION_VERSION: Final = 4
NO_LEADER: Final = -1
BEGUN: Final = 20
"""Records at the start of a new cluster, such as its features."""
VOTER: Final = 3009


def records(count: int, changes: int) -> Iterator[MetadataRecord]:
    """Yields about `count` records: brokers, topics with their partitions, and `changes` changes of each partition."""
    for broker_id in (1, 2, 3):
        yield kinds.RegisterBrokerRecord(
            version=REGISTRATION_VERSION, broker_id=broker_id, incarnation_id=_id(f"broker {broker_id}"), rack=None
        )
    made, directories = 3, tuple(_id(f"directory {number}") for number in range(3))
    number = 0
    while made < count:
        topic_id = _id(f"topic {number}")
        yield kinds.TopicRecord(name=f"topic-{number}", topic_id=topic_id)
        for partition in range(PARTITIONS):
            yield kinds.PartitionRecord(
                version=PARTITION_VERSION,
                partition_id=partition,
                topic_id=topic_id,
                replicas=(1, 2, 3),
                isr=(1, 2, 3),
                leader=NO_LEADER,
                leader_epoch=0,
                partition_epoch=0,
                directories=directories,
            )
        for change in range(changes):
            isr = (1, 2, 3) if change % 2 else (1, 2)
            for partition in range(PARTITIONS):
                yield kinds.PartitionChangeRecord(
                    version=PARTITION_VERSION, partition_id=partition, topic_id=topic_id, isr=isr
                )
        number += 1
        made += 1 + PARTITIONS * (1 + changes)


def _id(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


def append(partition: Path, count: int, changes: int) -> tuple[int, int]:
    """Append records to a log as its leader; returns the end offset and the size in bytes."""
    log = QuorumFiles(partition)
    some: list[tuple[bytes | None, bytes]] = []
    for record in records(count, changes):
        some.append((None, encode_record(record)))
        if len(some) == RECORDS_PER_BATCH:
            log.append(encode_batch(log.end, log.last_epoch, NOW_MS, some))
            some = []
    if some:
        log.append(encode_batch(log.end, log.last_epoch, NOW_MS, some))
    log.flush()
    end = log.end
    log.close()
    return end, sum(each.stat().st_size for each in partition.glob("*.log"))


class Kafka(KafkaQuorum):
    """Kafka's controller with a larger heap and without logging: it would log a line for each partition."""

    def start(self, controller: Controller) -> None:
        """Start it; it becomes leader later."""
        properties = controller.folder / "controller.properties"
        argv = tools.java_command(tools.server_classpath(self.version), "kafka.Kafka", properties, heap=HEAP)
        controller.process = Process(argv, cwd=controller.folder)


def phases(process: Process, http: str, end: int) -> tuple[float, float, float]:
    """Seconds until the log is complete, until the event log is, and until the process votes."""
    began, at = time.monotonic(), dict[str, float]()
    while "votes" not in at:
        assert process.popen.poll() is None, process.output[-4000:]
        found = _gauges(http)
        for name in ("log_end", "applied"):
            if found.get(name, -1) >= end:
                at.setdefault(name, time.monotonic() - began)
        if f"ready voter={VOTER} " in process.output or "\nready kafka=" in f"\n{process.output}":
            at["votes"] = time.monotonic() - began
        time.sleep(0.02)
    return at.get("log_end", at["votes"]), at.get("applied", at["votes"]), at["votes"]


def _records_of(kafka: Controller) -> int:
    """The high watermark, or 0 if no leader answers."""
    assert kafka.process is not None
    assert kafka.process.popen.poll() is None, kafka.process.output[-4000:]
    shown = describe(kafka.own_address)
    return 0 if shown is None else shown.high_watermark


def _gauges(http: str) -> dict[str, float]:
    with suppress(OSError):
        text = fetch(http, "/metrics")[1]
        return {name: float(value) for name, value in re.findall(r"^\w*quorum_(log_end|applied) (\S+)$", text, re.M)}
    return {}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quorum_log", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--changes-per-partition", type=int, default=8, metavar="N", help="default %(default)s")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the voter")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="topicwright-bench-") as name:
        folder = Path(name)
        port, own, http = free_ports(3)
        kafka = Controller(FIRST_ID, port, folder / "kafka", new_directory_id())
        quorum = Kafka(folder, tools.KAFKA_SERVER, 1, (kafka,))
        quorum.format(kafka)
        quorum.start(kafka)
        until(lambda: _records_of(kafka) > BEGUN, 300, "Kafka's controller has begun its log")
        kafka.kill()
        began = time.monotonic()
        end, size = append(kafka.metadata, options.records, options.changes_per_partition)
        print(f"{end:,} records, {size >> 20} MB, written in {time.monotonic() - began:.1f} s", flush=True)
        argv: list[str | Path] = [COMMAND, "join", "--bootstrap-controller", f"127.0.0.1:{port}"]
        argv += ["--data", folder / "voter", "--listen", f"127.0.0.1:{own}", "--http", f"127.0.0.1:{http}"]
        for each in (f"node.id={VOTER}", *options.set):
            argv += ["--set", each]
        try:
            began = time.monotonic()
            quorum.start(kafka)
            until(lambda: _records_of(kafka) > end, 300, "Kafka's controller has read its log, and leads")
            shown: list[str | Path] = [COMMAND, "quorum", "--bootstrap-controller", f"127.0.0.1:{port}"]
            until(lambda: tools.run_quietly(shown).returncode == 0, 300, "it responds to whoever looks for it")
            print(f"Kafka's controller leads after {time.monotonic() - began:.1f} s", flush=True)
            for what in ("join", "restart after kill -9"):
                process = Process(argv, cwd=folder)
                log_s, applied_s, votes_s = phases(process, f"127.0.0.1:{http}", end)
                memory = f"{resident_mib(process.pid):.0f} MiB"
                words = f"{what}: log {log_s:.1f} s, events {applied_s:.1f} s, votes {votes_s:.1f} s, {memory}"
                print(words, flush=True)
                process.kill()
        finally:
            kafka.kill()


if __name__ == "__main__":
    main()
