"""The servers that tests share: each is started when the first test asks for it and ended with the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.reference_kafka import ReferenceKafka, reference_kafka
from tests.support.topicwright import Topicwright, topicwright

TABLE_SETTINGS = {
    "num.partitions": "2",
    "default.replication.factor": "1",
    "create.topic.policy.class.name": "tests.reference.policies.TablePolicy",
}
"""What makes Topicwright's cluster the same as the reference Kafka's."""


def pytest_configure(config: pytest.Config) -> None:
    """Let kafka-python be imported: it reads its message schemas in a way that Python 3.11 warns of."""
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


@pytest.fixture(scope="session")
def kafka43(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceKafka]:
    """A real Kafka 4.3 of three nodes with the table's policy; node 3 does not create topics by itself."""
    with reference_kafka(tmp_path_factory.mktemp("kafka43") / "kafka") as kafka:
        yield kafka


@pytest.fixture(scope="session")
def topicwright_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    """Topicwright with three simulated brokers, the reference Kafka's settings and the table's policy."""
    settings = {**TABLE_SETTINGS, "auto.create.topics.enable": "true"}
    with topicwright(tmp_path_factory.mktemp("topicwright") / "auto", settings) as server:
        yield server


@pytest.fixture(scope="session")
def topicwright_without_auto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    """The same, but with auto.create.topics.enable=false."""
    settings = {**TABLE_SETTINGS, "auto.create.topics.enable": "false"}
    with topicwright(tmp_path_factory.mktemp("topicwright") / "no-auto", settings) as server:
        yield server


@pytest.fixture(params=["kafka", "topicwright"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """HOST:PORT of a real Kafka, then of Topicwright: what holds of one must hold of the other."""
    server = request.getfixturevalue("kafka43" if request.param == "kafka" else "topicwright_server")
    address: str = server.bootstrap
    return address
