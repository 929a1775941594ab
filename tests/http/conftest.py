"""A service for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.http.service import Service, service


@pytest.fixture
async def one() -> AsyncIterator[Service]:
    """A service with three live brokers, an empty log and no policies."""
    async with service() as started:
        yield started
