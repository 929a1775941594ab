"""A Kafka cluster of three brokers for all tests of this folder, and Topicwright in front of it. Each test uses its own
topic names and restores the brokers."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from tests.brokers.cluster.served import in_front_of, seen, until
from tests.support.reference_kafka import TRANSACTIONS, ReferenceKafka, reference_kafka
from tests.support.topicwright import Topicwright


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceKafka]:
    """Three brokers, the first also the controller. Their policy refuses names that begin with `refused`."""
    folder = tmp_path_factory.mktemp("cluster") / "kafka"
    with reference_kafka(folder, broker_session_timeout_ms="6000", **TRANSACTIONS) as running:
        yield running


@pytest.fixture(scope="package")
def server(kafka: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    """Topicwright in front of the cluster, with the settings of `served`."""
    with in_front_of(kafka, tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def here(server: Topicwright) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.kafka})


@pytest.fixture
def there(kafka: ReferenceKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture(autouse=True)
def _whole(request: pytest.FixtureRequest) -> None:
    """Wait until all brokers are live for the server, because another test may just have restarted one."""
    if "server" in request.fixturenames:
        server = request.getfixturevalue("server")
        until(lambda: set(seen(server, "/v1/brokers")["live"]) == {1, 2, 3})


@pytest.fixture
def name() -> str:
    return f"cluster-{uuid.uuid4().hex[:12]}"
