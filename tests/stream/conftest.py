"""Fixtures: workers and gateways without Kafka, and partitions with an archive."""

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
    """A gateway over two partitions that has read no events, with the workers of both partitions."""
    one = Rig(tmp_path)
    yield one
    one.close()


@pytest.fixture
def rig(new_rig: Rig) -> Rig:
    """The gateway of `new_rig` with three live brokers."""
    new_rig.begin()
    return new_rig


@pytest.fixture
def partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Partitions:
    """Partitions with an archive that is polled every 10 ms."""
    for name in ("POLL_S", "POLL_OTHERS_S", "RETRY_S"):
        monkeypatch.setattr(archiving, name, 0.01)
    monkeypatch.setattr(owner_tasks, "RECENT_EVENTS", KEPT_EVENTS)
    return Partitions(tmp_path)


@pytest.fixture
def based(partitions: Partitions, made_bases: Partitions) -> Partitions:
    """Partitions with two bases each, and events after them."""
    partitions.begin_as(made_bases)
    return partitions


@pytest.fixture(scope="session")
def made_bases(tmp_path_factory: pytest.TempPathFactory) -> Partitions:
    """The partitions that `based` copies, made once."""
    made = Partitions(tmp_path_factory.mktemp("bases"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("POLL_S", "RETRY_S"):
            patch.setattr(archiving, name, 0.01)
        patch.setattr(owner_tasks, "RECENT_EVENTS", KEPT_EVENTS)
        asyncio.run(two_bases(made))
    return made


@pytest.fixture
def kafka() -> MemoryKafka:
    """Topics in memory; their first commands register two brokers in every partition."""
    return kafka_with_brokers()


@pytest.fixture
async def claimed(kafka: MemoryKafka, tmp_path: Path) -> AsyncIterator[Claimed]:
    """Makes workers that own the named partitions, or all. The fixture closes them."""
    async with AsyncExitStack() as held:

        async def make(*partitions: int, name: str = "a", **options: Any) -> Stage:
            one = Stage(kafka, tmp_path, name, **options)
            held.push_async_callback(one.close)
            await one.claim(*partitions)
            return one

        yield make


@pytest.fixture
async def worker(claimed: Claimed) -> Stage:
    """A worker that owns all partitions."""
    return await claimed()
