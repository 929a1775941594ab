"""Compiled Java programs, one folder of classes for each client version."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.support import tools
from tests.support.kafka_tools import KafkaTools, kafka_tools

pytest.register_assert_rewrite("tests.clients.seen")  # so that what a client has seen is shown
JAVA = tools.ROOT / "tests/clients/java"


@pytest.fixture(scope="session")
def java_client() -> Callable[[str], str]:
    """The classpath of the client programs, compiled against a version of Kafka's client."""
    return lambda version: tools.compile_java(JAVA / "client", tools.client_classpath(version))


@pytest.fixture(scope="session")
def java_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    """Kafka's command line tools."""
    with kafka_tools(tmp_path_factory.mktemp("tools")) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A topic name that no other test has."""
    return f"client-{uuid.uuid4().hex[:12]}"
