"""One log, in a folder and in Kafka, which all tests of the replay share."""

import shutil
from pathlib import Path

import pytest

from events.catalog import Recorded
from projections.replay.log.kafka_ref import kafka_topic
from projections.replay.log.kafka_scan import KafkaRef, scan
from projections.replay.log.log_ref import LogRef
from tests.replay.history import write_history
from tests.replay.kafka_history import as_records, in_partitions, make_topic
from tests.replay.written import records_of
from tests.support.reference_kafka import ReferenceKafka


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> LogRef:
    """The log of a day with every type of event; its service has stopped. Tests must not change it."""
    folder = write_history(tmp_path_factory.mktemp("history") / "data")
    return LogRef(str(folder), folder)


@pytest.fixture(scope="session")
def records(history: LogRef) -> list[Recorded]:
    """The events of that log."""
    return records_of(history)


@pytest.fixture
def own_history(history: LogRef, tmp_path: Path) -> LogRef:
    """A copy of that log, which a test may damage."""
    folder = shutil.copytree(history.path, tmp_path / "data")
    return LogRef(str(folder), folder)


@pytest.fixture(scope="session")
def in_kafka(kafka44: ReferenceKafka, history: LogRef) -> KafkaRef:
    """The same day in the two partitions of a topic. Tests must not change it."""
    parts = in_partitions(records_of(history), 2)
    topic = make_topic(kafka44.bootstrap, [as_records(part) for part in parts])
    return scan(kafka_topic(f"kafka://{kafka44.bootstrap}/{topic}"))
