"""A running controller for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.apis.rig import Rig, rig


@pytest.fixture
async def served() -> AsyncIterator[Rig]:
    """A controller with three simulated brokers, an empty log and no authorizer."""
    async with rig() as started:
        yield started
