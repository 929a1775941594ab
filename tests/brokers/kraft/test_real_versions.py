"""Brokers of several versions, with both settings to find the controller, and one of the newest version that starts
from a snapshot."""

import struct
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.brokers.kraft.guarded import GUARDED, access_of, grant
from tests.support.churn import QUIET
from tests.support.real_brokers import RealCluster, real_cluster, until
from tests.support.tools import KAFKA_SERVER

FEW_BYTES = {"metadata.log.max.record.bytes.between.snapshots": "3000", "metadata.max.retention.bytes": "1"}
TWO_REPLICAS = {"offsets.topic.replication.factor": "2", "transaction.state.log.replication.factor": "2"}


@pytest.mark.parametrize(
    ("versions", "kraft_version", "level"),
    [(("3.7.2", "3.9.1"), 0, 19), (("4.1.1", "4.3.1"), 1, 27)],
    ids=["controller.quorum.voters", "controller.quorum.bootstrap.servers"],
)
def test_kafka_brokers_of_several_versions_work_together(
    tmp_path: Path, versions: tuple[str, ...], kraft_version: int, level: int
) -> None:
    own = {"controller.quorum.bootstrap.servers": "CONTROLLER"} if kraft_version else {}
    brokers = {**own, **GUARDED, **TWO_REPLICAS}
    settings = {"kraft.version": str(kraft_version), **FEW_BYTES, **GUARDED}
    with real_cluster(tmp_path, versions=versions, settings=settings, broker_settings=brokers) as cluster:
        _use(cluster)
        grant(f"127.0.0.1:{cluster.brokers[1].port}", "ann", "mixed")
        for broker in cluster.brokers.values():
            until(lambda: _knows_ann(broker.port), 30, f"broker {broker.broker_id} knows her")  # noqa: B023
        _settle(cluster, level)
        joined = cluster.add(KAFKA_SERVER, {**dict.fromkeys(own, cluster.address), **GUARDED})
        cluster.wait_live()
        until(lambda: _knows_ann(joined.port), 120, "entries, logins and quotas, of a snapshot")
        checkpoints = until(lambda: sorted(joined.metadata.glob("*.checkpoint")), 120, "a snapshot on the new broker")
        assert checkpoints[-1].stat().st_size > 1000, "the broker has not fetched a snapshot"
        assert not (joined.metadata / f"{0:020d}.log").exists(), "the broker fetched the log from its beginning"


def _use(cluster: RealCluster) -> None:
    """Use a topic, a transaction and a consumer group; then create topics until one or two snapshots are due."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.create_topics([NewTopic("mixed", 3, 2)], request_timeout=30)["mixed"].result(40)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "mixed", "acks": "all", **QUIET})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(30):
        producer.produce("mixed", struct.pack(">i", number), partition=number % 3)
    producer.commit_transaction(60)
    reading = {"group.id": "readers", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **reading, **QUIET})
    consumer.subscribe(["mixed"])
    read: set[bytes | str | None] = set()

    def all_read() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            read.add(message.value())
        return len(read) == 30

    until(all_read, 60, "all records read by the group")
    consumer.commit(asynchronous=False)
    consumer.close()
    for batch in range(4):
        names = [f"more-{batch}-{number}" for number in range(5)]
        for future in admin.create_topics([NewTopic(name, 3, 2) for name in names], request_timeout=30).values():
            future.result(40)


def _knows_ann(port: int) -> bool:
    """True if a broker knows the ACL, the credential and the quotas."""
    try:
        return access_of(f"127.0.0.1:{port}") == {
            "acls": [("mixed", "User:ann", 3)],
            "scram": [("ann", 2, 4096)],
            "quotas": [("client-id", "None", "consumer_byte_rate", 7e8), ("user", "ann", "producer_byte_rate", 5e6)],
        }
    except ConnectionError:
        return False  # a live broker may not have opened its listeners yet


def _settle(cluster: RealCluster, level: int) -> None:
    """Wait for the shared features and for snapshots."""
    assert cluster.controller is not None
    controller = cluster.controller
    if level > 19:
        until(lambda: f'"metadata.version":{level}' in controller.output, 120, f"metadata.version {level}")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})

    def snapshots() -> bool:
        """True after two snapshots, so that the log no longer begins at 0."""
        number = controller.output.count("metadata snapshot")
        name = f"for-snapshot-{number}-{len(controller.output)}"
        admin.create_topics([NewTopic(name, 3, 2)], request_timeout=30)[name].result(40)
        return number >= 3

    until(snapshots, 60, "three snapshots")
