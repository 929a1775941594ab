"""Servers that tests share: each starts when the first test requests it, and ends with the session."""

import gc
import os
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import HealthCheck
from hypothesis.configuration import set_hypothesis_home_dir
from pyspark.sql import SparkSession

from controller.serving import log_lines
from controller.stream.gateway.members import NODE_IDS_FROM
from projections.replay.spark.session import spark_session
from projections.replay.spark.source import TopicwrightSource
from tests.support.reference_kafka import TRANSACTIONS, ReferenceKafka, reference_kafka
from tests.support.stream import stream
from tests.support.tools import ROOT, spark_java_options
from tests.support.topicwright import Topicwright, topicwright

TABLE_SETTINGS = {
    "num.partitions": "2",
    "default.replication.factor": "1",
    "create.topic.policy.class.name": "tests.reference.policies.TablePolicy",
}
"""Settings with which Topicwright's cluster equals the reference Kafka's."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep Hypothesis' folder in one place: kio imports Hypothesis if it is installed, and the import creates the
    folder, also in processes and other working folders. And ignore a deprecation warning of Python 3.11 about
    kafka-python, which reads its message schemas with `open_text`."""
    slow = [HealthCheck.too_slow]  # the time of an example depends on the load of the machine
    hypothesis.settings.register_profile("timeless", deadline=None, max_examples=50, suppress_health_check=slow)
    hypothesis.settings.load_profile("timeless")
    home = str(ROOT / ".hypothesis")
    set_hypothesis_home_dir(home)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = home
    os.environ["SPARK_SUBMIT_OPTS"] = spark_java_options()  # for every Spark that a test starts
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection: they live until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a folder together, in their random order, so that servers that they share start once."""
    folders = {folder: number for number, folder in enumerate(dict.fromkeys(item.path.parent for item in items))}
    items.sort(key=lambda item: folders[item.path.parent])


@pytest.fixture(autouse=True)
def _logs_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """`configure_logs` changes the logging of the whole process, which other tests check."""
    monkeypatch.setattr(log_lines, "configure_logs", lambda _: None)


@pytest.fixture(scope="module", autouse=True)
def _no_client_is_left() -> Iterator[None]:
    """A client of librdkafka ends when Python collects it. Until then, a client whose server is gone logs an error
    every second into the output of other tests. Freezing the rest saves scanning the objects of hundreds of modules
    again."""
    yield
    gc.collect()
    gc.freeze()


SPARK_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
}
"""Jobs have a few hundred events, so compiling their code would take longer than running it."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark on two cores of this machine, as `topicwright replay` starts it."""
    session = spark_session("local[2]", settings=SPARK_SETTINGS)
    session.dataSource.register(TopicwrightSource)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka44(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceKafka]:
    """A real Kafka 4.4 with three nodes and the table's policy. Node 3 does not auto-create topics. Transactions are
    enabled, and group sessions are short, so that failovers are quick. Each test uses its own topic names."""
    folder = tmp_path_factory.mktemp("kafka44") / "kafka"
    with reference_kafka(folder, group_min_session_timeout_ms="1000", **TRANSACTIONS) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def topicwright_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    """Topicwright with three simulated brokers, the reference Kafka's settings and the table's policy."""
    settings = {**TABLE_SETTINGS, "auto.create.topics.enable": "true"}
    with topicwright(tmp_path_factory.mktemp("topicwright") / "auto", settings) as server:
        yield server


@pytest.fixture(scope="session")
def topicwright_without_auto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    """The same as `topicwright_server`, but with auto.create.topics.enable=false."""
    settings = {**TABLE_SETTINGS, "auto.create.topics.enable": "false"}
    with topicwright(tmp_path_factory.mktemp("topicwright") / "no-auto", settings) as server:
        yield server


@pytest.fixture(scope="session")
def cluster_server(kafka44: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    """Topicwright whose target cluster is the real Kafka."""
    settings = {**TABLE_SETTINGS, "auto.create.topics.enable": "true", "node.id": str(NODE_IDS_FROM)}
    brokers = f"cluster:{kafka44.bootstrap}"
    with topicwright(tmp_path_factory.mktemp("before") / "cluster", settings, brokers=brokers) as server:
        yield server


@pytest.fixture(scope="session")
def fleet_server(kafka44: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    """A gateway with a worker. The real Kafka holds their log and is the target cluster."""
    settings = {**TABLE_SETTINGS, "auto.create.topics.enable": "true"}
    folder = tmp_path_factory.mktemp("before") / "fleet"
    with stream(folder, kafka44.bootstrap, "fleet", settings, brokers="cluster") as running:
        yield running.gateways[0]


_SERVERS = {"kafka": "kafka44", "topicwright": "topicwright_server", "fleet": "fleet_server"}


@pytest.fixture(params=list(_SERVERS))
def bootstrap(request: pytest.FixtureRequest) -> str:
    """HOST:PORT of a real Kafka, of Topicwright, and of a gateway whose target cluster is a real Kafka. A test with
    this fixture runs on each."""
    server = request.getfixturevalue(_SERVERS[request.param])
    address: str = server.bootstrap
    return address
