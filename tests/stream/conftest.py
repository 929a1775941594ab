"""A gateway without Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stream.gateway.stage import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A gateway over two partitions, with the workers of both."""
    one = Rig(tmp_path)
    yield one
    one.close()
