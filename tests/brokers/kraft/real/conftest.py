"""Topicwright with three Kafka brokers, for all tests of this folder that leave them live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.machine.decide import decide
from controller.machine.recorded_command import recall
from controller.machine.state import DictTopics, State
from controller.store.store import TopicStore
from events.catalog import EVENT_VERSION
from events.codec import decode_event
from events.logs.rocksdb_log import RocksDbLog
from tests.brokers.kraft.logs import differences
from tests.machine.audit.auditor import audit
from tests.machine.rig import fold
from tests.machine.walks import decisions
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
    """Each request is decided again as it was; the whole log folds to the stored state, which is what brokers were
    sent."""
    log = RocksDbLog(data, cluster_id=None, event_version=EVENT_VERSION, new_cluster_id=lambda: "")
    try:
        records = [decode_event(offset, value) for offset, value in log.read()]
        assert audit(records) == []
        state = State(DictTopics())
        for group in decisions(records):
            request: Any = recall(group)
            if request is not None:
                assert list(decide(state, request).events) == [record.event for record in group], request
            fold(group, state)
        store = TopicStore(log)
        assert isinstance(state.topics, DictTopics)
        assert {key: store.durable(key) for key in state.topics.by_key} == state.topics.by_key
        assert store.durable_cluster == state.cluster
        assert differences(read_image(data), state) == []
    finally:
        log.close()
