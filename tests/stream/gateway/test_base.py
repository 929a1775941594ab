"""A gateway, and a worker that takes over, start from a base if their folders are empty and Kafka has deleted the first
records. A gateway that has read all events drops those in the archive."""

import re
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from events.logs.archive.manifest import read_manifest
from events.logs.archive.store import Folder
from tests.stream.requests import create, get
from tests.support.processes import Process
from tests.support.reference_kafka import ReferenceKafka
from tests.support.stream import Stream, stream
from tests.support.topicwright import Topicwright, command

SETTINGS = {"stream.partitions": "1", "log.archive.interval.events": "1024", "log.snapshot.interval.events": "2000"}


def create_many(gateway: Topicwright, first: int, count: int) -> None:
    names = [f"t{number}" for number in range(first, first + count)]
    assert create(gateway.kafka, *names, timeout_ms=120_000) == dict.fromkeys(names, 0)


def shown(gateway: Topicwright) -> list[Any]:
    """Returns the responses about the whole log that must be equal at all gateways."""
    size = get(gateway, "/v1/log/head?partition=0")["head"]["size"]
    proof = get(gateway, f"/v1/log/proof?partition=0&offset=5&size={size}")
    paths = ("/v1/topics?limit=1000", "/v1/events?topic=t7", "/v1/explain/t7", "/v1/events?limit=20")
    return [size, proof["head"]["root"], proof["events"], *(get(gateway, path) for path in paths)]


def started_with_a_base(process: Process) -> bool:
    return "started from a base" in process.output


def test_empty_folders_start_from_a_base_if_first_records_are_deleted(kafka44: ReferenceKafka, tmp_path: Path) -> None:
    archive = {"log.archive.url": str(tmp_path / "archive")}
    settings = {**SETTINGS, **archive, "log.events.retention.ms": "0"}
    with stream(tmp_path / "s", kafka44.bootstrap, "bases", settings) as running:
        worker, gateway = running.workers[0], running.start_gateway(settings)
        for number in range(4):  # five events each: more than workers retain
            create_many(gateway, number * 1100, 1100)
        worker.wait_for_line(r"base stored", within_s=300)
        assert _delete_records_covered_by_bases(kafka44, tmp_path / "archive") > 0
        fresh = running.start_gateway(archive)
        assert started_with_a_base(fresh.process)
        assert shown(fresh) == shown(gateway)
        _refused_without_an_archive(running)
        worker.stop()
        successor = running.start_worker()
        assert started_with_a_base(successor)
        gateway.process.wait_for_line(r"archived events dropped", within_s=300)
        assert shown(fresh) == shown(gateway), "the gateway reads events that it dropped from the archive"
        create_many(fresh, 20_000, 10)


def _delete_records_covered_by_bases(kafka: ReferenceKafka, archive: Path) -> int:
    """Delete the records before the older base from Kafka; returns its first offset."""
    goes_on_at = read_manifest(Folder(archive / "partition-00000")).bases[0].kafka_offset
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for deleted in admin.delete_records([TopicPartition("bases.events", 0, goes_on_at)]).values():
        deleted.result(60)
    return goes_on_at


def _refused_without_an_archive(running: Stream) -> None:
    done = command(*running._argv("gateway", "refused", running.common)[1:], "--kafka", "127.0.0.1:0")
    assert done.returncode == 2, done
    words = r"begins at record \d+ in Kafka, and there is no base to start from: no log.archive.url"
    assert re.search(words, done.stderr), done
