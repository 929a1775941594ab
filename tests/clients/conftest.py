"""A topic name for each test."""

import uuid

import pytest

pytest.register_assert_rewrite("tests.clients.seen")  # so that failures show the values


@pytest.fixture
def topic() -> str:
    """A topic name that no other test has."""
    return f"client-{uuid.uuid4().hex[:12]}"
