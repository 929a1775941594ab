"""Compares a log in Kafka with the folders of gateways and workers."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from controller.machine.apply import apply
from controller.store.store import CLUSTER, TopicStore
from controller.store.stored_topics import TOPIC
from events.catalog import Recorded
from events.codec import encode_event
from events.logs.log import Commit, Entry
from projections.replay.log.kafka_scan import KafkaRef
from projections.replay.log.log_ref import LogRef
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import Options, ReplayError
from projections.replay.rebuild.compare import run_compare
from projections.replay.runner import InProcess
from tests.replay.damage import put_view
from tests.replay.history import open_log
from tests.replay.kafka_history import in_partitions
from tests.replay.written import records_of


def cached(folder: Path, records: Sequence[Recorded]) -> None:
    """A partition as a gateway stores it: events and the resulting state."""
    log = open_log(folder)
    try:
        store = TopicStore(log)
        state, entries = store.state(), []
        for record in records:
            value = encode_event(record.at_ms, record.cause, record.event)
            entries.append(Entry(value, apply(state, record), getattr(record.event, "request_id", "")))
        log.write(Commit(entries, store.changes(state)))
        log.flush()
    finally:
        log.close()


@pytest.fixture
def data(history: LogRef, tmp_path: Path) -> Path:
    """The data folder of a gateway."""
    for number, part in enumerate(in_partitions(records_of(history), 2)):
        cached(tmp_path / "data" / f"partition-{number:05}", part)
    return tmp_path / "data"


def against(folder: Path) -> Options:
    """Compare with a folder."""
    return Options(data=str(folder))


def test_gateway_folders_match_the_events_topic(in_kafka: KafkaRef, data: Path) -> None:
    outcome = run_compare(InProcess(), in_kafka, against(data))
    assert not outcome.found, "\n".join(outcome.lines)
    assert outcome.lines[0].startswith("The live state of 7 topics matches the events, as of offsets ")
    shutil.rmtree(data / "partition-00000")
    of_one = run_compare(InProcess(), in_kafka, against(data))
    assert not of_one.found
    assert of_one.lines[0].endswith(" of partition 1.")


def test_a_lagging_gateway_is_compared_as_of_its_own_offset(
    in_kafka: KafkaRef, history: LogRef, tmp_path: Path
) -> None:
    for number, part in enumerate(in_partitions(records_of(history), 2)):
        cached(tmp_path / f"partition-{number:05}", part[: len(part) - 9 * number])
    outcome = run_compare(InProcess(), in_kafka, against(tmp_path))
    assert not outcome.found, "\n".join(outcome.lines)


def test_compare_reports_a_difference_with_its_log_partition(in_kafka: KafkaRef, data: Path) -> None:
    number = next(n for n in (0, 1) if "late_one" in shards(data, n))
    folder = data / f"partition-{number:05}"
    put_view(folder, b"s" + TOPIC + b"late_one", None)
    log = open_log(folder)
    stored = msgspec.msgpack.decode(log.get(CLUSTER) or b"")
    log.close()
    stored[1] = "another release"
    put_view(folder, b"s" + CLUSTER, msgspec.msgpack.encode(stored))
    outcome = run_compare(InProcess(), in_kafka, against(data))
    assert [(row["log_partition"], row["shard"]) for row in outcome.rows] == [(number, ""), (number, "late_one")]
    assert outcome.rows[1]["event"].startswith("late.one is created")
    assert any(line.startswith(f"topic late.one, partition {number}: rebuilt ") for line in outcome.lines)


def shards(data: Path, number: int) -> list[str]:
    """The shards in a partition's folder."""
    with frozen_log(data / f"partition-{number:05}") as log:
        return [key[len(TOPIC) :].decode() for key, _ in log.scan(TOPIC)]


def test_compare_rejects_unrelated_folders(in_kafka: KafkaRef, history: LogRef, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="nothing holds no partition of kafka://"):
        run_compare(InProcess(), in_kafka, against(tmp_path / "nothing"))
    records = records_of(history)
    cached(tmp_path / "longer" / "partition-00001", records)
    with pytest.raises(ReplayError, match=f"has {len(records)} events of partition 1, which kafka://"):
        run_compare(InProcess(), in_kafka, against(tmp_path / "longer"))
