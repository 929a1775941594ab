"""The servers that tests share: each is started when the first test requests it and ended with the session."""

from __future__ import annotations

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
"""What makes Topicwright's cluster the same as the reference Kafka's."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep Hypothesis' folder in one place, wherever a test changes to or starts a process: kio imports Hypothesis if
    it is there, and that alone makes a folder. And let kafka-python be imported: it reads its message schemas in a
    way that Python 3.11 warns of."""
    slow = [HealthCheck.too_slow]  # how long an example takes depends on what else the machine does
    hypothesis.settings.register_profile("timeless", deadline=None, max_examples=50, suppress_health_check=slow)
    hypothesis.settings.load_profile("timeless")
    home = str(ROOT / ".hypothesis")
    set_hypothesis_home_dir(home)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = home
    os.environ["SPARK_SUBMIT_OPTS"] = spark_java_options()  # of every Spark that a test starts
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


def pytest_collection_finish() -> None:
    """What pytest has collected stays to the end: no collector need look at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a folder together, in their random order: servers that they share are started once."""
    folders = {folder: number for number, folder in enumerate(dict.fromkeys(item.path.parent for item in items))}
    items.sort(key=lambda item: folders[item.path.parent])


@pytest.fixture(autouse=True)
def _logs_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """How log lines are written is of the whole process: other tests look at them."""
    monkeypatch.setattr(log_lines, "configure_logs", lambda _: None)


@pytest.fixture(scope="module", autouse=True)
def _no_client_is_left() -> Iterator[None]:
    """A client of librdkafka ends when Python collects it; one whose server is gone complains once a second until then,
    in the output of other tests. What is left after that is not looked at again: some hundred times it adds up."""
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
"""Jobs over a few hundred events: compiling them takes longer than running them."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark on two cores of this machine, as `topicwright replay` makes it."""
    session = spark_session("local[2]", settings=SPARK_SETTINGS)
    session.dataSource.register(TopicwrightSource)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka44(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceKafka]:
    """A real Kafka 4.4 of three nodes with the table's policy; node 3 does not create topics by itself. It has
    transactions, and groups with short sessions, so that failovers do not take long. Topics of a test have names of
    their own."""
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
    """The same, but with auto.create.topics.enable=false."""
    settings = {**TABLE_SETTINGS, "auto.create.topics.enable": "false"}
    with topicwright(tmp_path_factory.mktemp("topicwright") / "no-auto", settings) as server:
        yield server


@pytest.fixture(scope="session")
def cluster_server(kafka44: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    """Topicwright before the real Kafka, which carries its decisions out."""
    settings = {**TABLE_SETTINGS, "auto.create.topics.enable": "true", "node.id": str(NODE_IDS_FROM)}
    brokers = f"cluster:{kafka44.bootstrap}"
    with topicwright(tmp_path_factory.mktemp("before") / "cluster", settings, brokers=brokers) as server:
        yield server


@pytest.fixture(scope="session")
def fleet_server(kafka44: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    """A gateway of a worker, before the real Kafka, which holds their log and carries their decisions out."""
    settings = {**TABLE_SETTINGS, "auto.create.topics.enable": "true"}
    folder = tmp_path_factory.mktemp("before") / "fleet"
    with stream(folder, kafka44.bootstrap, "fleet", settings, brokers="cluster") as running:
        yield running.gateways[0]


_SERVERS = {
    "kafka": "kafka44",
    "topicwright": "topicwright_server",
    "fleet": "fleet_server",
}


@pytest.fixture(params=list(_SERVERS))
def bootstrap(request: pytest.FixtureRequest) -> str:
    """HOST:PORT of a real Kafka, of Topicwright, and of a gateway of workers whose decisions a real Kafka carries out:
    what holds of one must hold of the others."""
    server = request.getfixturevalue(_SERVERS[request.param])
    address: str = server.bootstrap
    return address
