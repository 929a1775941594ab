"""Workers and gateways without Kafka, and topics with an archive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from controller.serving import archiving
from controller.stream.worker import owner_tasks
from tests.stream.gateway.stage import Rig
from tests.stream.worker.memory_kafka import MemoryKafka
from tests.stream.worker.stage import Claimed, Stage, kafka_with_brokers
from tests.stream.worker.test_partition_history import KEPT_EVENTS, Partitions, two_bases


@pytest.fixture
def new_rig(tmp_path: Path) -> Iterator[Rig]:
    """A gateway over two partitions that has read nothing, with the workers of both."""
    one = Rig(tmp_path)
    yield one
    one.close()


@pytest.fixture
def rig(new_rig: Rig) -> Rig:
    """The same, with three live brokers."""
    new_rig.begin()
    return new_rig


@pytest.fixture
def partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Partitions:
    """Partitions with an archive that is polled often."""
    for name in ("POLL_S", "POLL_OTHERS_S", "RETRY_S"):
        monkeypatch.setattr(archiving, name, 0.01)
    monkeypatch.setattr(owner_tasks, "RECENT_EVENTS", KEPT_EVENTS)
    return Partitions(tmp_path)


@pytest.fixture
def based(partitions: Partitions, made_bases: Partitions) -> Partitions:
    """The same, with two bases of each partition and events since."""
    partitions.begin_as(made_bases)
    return partitions


@pytest.fixture(scope="session")
def made_bases(tmp_path_factory: pytest.TempPathFactory) -> Partitions:
    """Two bases of each partition and events since, to be copied."""
    made = Partitions(tmp_path_factory.mktemp("bases"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("POLL_S", "RETRY_S"):
            patch.setattr(archiving, name, 0.01)
        patch.setattr(owner_tasks, "RECENT_EVENTS", KEPT_EVENTS)
        asyncio.run(two_bases(made))
    return made


@pytest.fixture
def kafka() -> MemoryKafka:
    """Two brokers join, in every partition, before anything else."""
    return kafka_with_brokers()


@pytest.fixture
async def claimed(kafka: MemoryKafka, tmp_path: Path) -> AsyncIterator[Claimed]:
    """Makes workers that have taken over partitions, all of them unless named; they are closed at the end."""
    async with AsyncExitStack() as held:

        async def make(*partitions: int, name: str = "a", **options: Any) -> Stage:
            one = Stage(kafka, tmp_path, name, **options)
            held.push_async_callback(one.close)
            await one.claim(*partitions)
            return one

        yield make


@pytest.fixture
async def worker(claimed: Claimed) -> Stage:
    """A worker that has taken over all partitions."""
    return await claimed()
