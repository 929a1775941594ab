"""A worker over topics in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.stream.worker.memory_kafka import MemoryKafka
from tests.stream.worker.stage import Stage, kafka_with_brokers


@pytest.fixture
def kafka() -> MemoryKafka:
    """Two brokers join, in every partition, before anything else."""
    return kafka_with_brokers()


@pytest.fixture
async def worker(kafka: MemoryKafka, tmp_path: Path) -> AsyncIterator[Stage]:
    """A worker that has taken over all partitions."""
    one = Stage(kafka, tmp_path)
    await one.claim()
    yield one
    await one.close()
