"""A gateway without Kafka, and topics with an archive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.serving import archiving
from tests.stream.gateway.stage import Rig
from tests.stream.worker.test_partition_history import Partitions, two_bases


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A gateway over two partitions, with the workers of both."""
    one = Rig(tmp_path)
    yield one
    one.close()


@pytest.fixture(scope="session")
def made_bases(tmp_path_factory: pytest.TempPathFactory) -> Partitions:
    """Two bases of each partition and events since, to be copied."""
    made = Partitions(tmp_path_factory.mktemp("bases"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("POLL_S", "RETRY_S"):
            patch.setattr(archiving, name, 0.01)
        asyncio.run(two_bases(made))
    return made
