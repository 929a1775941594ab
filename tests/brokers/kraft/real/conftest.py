"""Topicwright with three Kafka brokers, shared by the tests of this folder, which leave the brokers live."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.machine.state import DictTopics
from controller.store.store import TopicStore
from events.codec import decode_event
from events.logs.rocksdb_log import RocksDbLog
from tests.brokers.cluster.served import check_log
from tests.brokers.kraft.logs import differences
from tests.machine.rig import fold
from tests.support.metadata_files import read_image
from tests.support.real_brokers import RealCluster, real_cluster

SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "3000",
    "enable.under.replicated.topic.creation": "true",
    "min.insync.replicas": "2",
}


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with real_cluster(tmp_path_factory.mktemp("real"), settings=SETTINGS) as cluster:
        yield cluster
        for broker in cluster.brokers.values():
            broker.kill()
        assert cluster.controller is not None
        assert cluster.controller.stop(within_s=120) == 0
        _check_history(cluster.data)


def _check_history(data: Path) -> None:
    """Check that the machine repeats each decision, and that the log folds to the stored state and to the metadata that
    brokers got."""
    check_log(data)
    with closing(RocksDbLog(data, cluster_id=None)) as log:
        state, store = fold([decode_event(offset, value) for offset, value in log.read()]), TopicStore(log)
        assert isinstance(state.topics, DictTopics)
        assert {key: store.durable(key) for key in state.topics} == state.topics
        assert store.durable_cluster == state.cluster
        assert differences(read_image(data), state) == []
