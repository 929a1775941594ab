"""Kafka for workers, with short consumer group sessions, so that failovers do not take long; and a gateway
without Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stream.gateway.stage import Rig
from tests.support.reference_kafka import ReferenceKafka, reference_kafka


@pytest.fixture(scope="session")
def stream_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceKafka]:
    """Three brokers. Topics of a test have names of their own."""
    folder = tmp_path_factory.mktemp("stream-kafka") / "kafka"
    with reference_kafka(folder, group_min_session_timeout_ms="1000") as kafka:
        yield kafka


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A gateway over two partitions, with the workers of both."""
    one = Rig(tmp_path)
    yield one
    one.close()
