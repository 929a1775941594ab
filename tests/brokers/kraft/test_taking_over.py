"""A running cluster moves from Kafka's controller to Topicwright and back with kill -9, and brokers never restart."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from tests.brokers.kraft.guarded import GUARDED, access_of, grant
from tests.support.churn import QUIET, Churn
from tests.support.kafka_quorum import Controller, KafkaQuorum
from tests.support.ports import free_ports
from tests.support.quorum_cluster import describe
from tests.support.real_brokers import CONTROLLER, RealCluster, new_directory_id, until
from tests.support.tools import KAFKA_SERVER
from tests.support.topicwright import command


@pytest.mark.parametrize(("version", "kraft_version", "brokers"), [("3.9.1", 0, 1), (KAFKA_SERVER, 1, 2)])
def test_migration_from_kafkas_controller_and_back(
    tmp_path: Path, version: str, kraft_version: int, brokers: int
) -> None:
    with _kafka_cluster(tmp_path, version, kraft_version, brokers) as (cluster, theirs):
        (controller,) = theirs.controllers
        metadata = controller.metadata.parent
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        _create(admin, "churned", partitions=3, factor=brokers)
        grant(_address(admin), "alice", "churned")
        with Churn(cluster.bootstrap, "churned", 3) as churn:
            churn.goes_on()
            _read_some(cluster.bootstrap)
            known = _dump(admin)
            assert len(known["acls"]) == 1
            assert len(known["scram"]) == 1
            assert len(known["quotas"]) == 2

            controller.kill()
            assert command("adopt", "--from", metadata, "--data", cluster.data).returncode == 0
            cluster.start_controller()
            cluster.wait_live()
            _until_same(admin, known)
            _create(admin, "under-ours", partitions=2, factor=brokers)
            grant(_address(admin), "carol", "churned")
            churn.goes_on()
            cluster.kill_controller()

            if kraft_version == 1:
                cluster.data.rename(tmp_path / "lost")
                restored = command("restore", "--from", cluster.brokers[1].data, "--data", cluster.data)
                assert restored.returncode == 0, restored.stderr
                cluster.start_controller()
                cluster.wait_live()
                _create(admin, "after-loss", partitions=1, factor=brokers)
                cluster.kill_controller()

            known = _dump(admin)
            back = command("handback", "--data", cluster.data, "--to", metadata, "--replace")
            assert back.returncode == 0, back.stderr
            _start(theirs)
            _until_same(admin, known)
            _create(admin, "under-theirs", partitions=2, factor=brokers)
            grant(_address(admin), "bob", "churned")
            churn.goes_on()
            after = _dump(admin)
            assert {"under-ours", "under-theirs", "churned"} <= after["topics"].keys()
            assert [len(after[kind]) for kind in ("acls", "scram", "quotas")] == [3, 3, 4]
        assert churn.failed == []
        assert churn.lost() == {}


@contextmanager
def _kafka_cluster(
    folder: Path, version: str, kraft_version: int, brokers: int
) -> Iterator[tuple[RealCluster, KafkaQuorum]]:
    """Kafka's own controller with brokers of one version."""
    (port,) = free_ports(1)
    controller = Controller(CONTROLLER, port, folder / "kafka", new_directory_id())
    theirs = KafkaQuorum(folder, version, kraft_version, (controller,), settings=GUARDED)
    cluster = RealCluster(folder, port, {"kraft.version": str(kraft_version), **GUARDED}, {})
    found = {"controller.quorum.bootstrap.servers": theirs.bootstrap} if kraft_version else {}
    replicas = {"offsets.topic.replication.factor": str(brokers)}
    try:
        theirs.format(controller)
        for _ in range(brokers):
            cluster.add(version, {**found, **replicas, **GUARDED})
        _start(theirs)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        until(lambda: len(_or_none(lambda: admin.list_topics(timeout=5).brokers) or ()) == brokers, 300, "all brokers")
        yield cluster, theirs
    finally:
        for process in (controller.process, cluster.controller, *(each.process for each in cluster.brokers.values())):
            if process is not None:
                process.kill()


def _start(theirs: KafkaQuorum) -> None:
    """Start Kafka's controller; returns when it leads."""
    (controller,) = theirs.controllers
    theirs.start(controller)
    until(lambda: describe(controller.own_address), 300, "Kafka's controller leads")


def _or_none(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception:
        return None


def _create(admin: AdminClient, name: str, *, partitions: int, factor: int) -> None:
    def created() -> bool:
        future = admin.create_topics(
            [NewTopic(name, partitions, factor, config={"min.insync.replicas": str(min(factor, 2))})],
            request_timeout=20,
        )[name]
        return _or_none(lambda: future.result(30) or True) is True or name in admin.list_topics(timeout=10).topics

    until(created, 120, f"topic {name}")


def _address(admin: AdminClient) -> str:
    broker = next(iter(admin.list_topics(timeout=20).brokers.values()))
    return f"{broker.host}:{broker.port}"


def _read_some(bootstrap: str) -> None:
    """A consumer group that reads for a while and commits its offsets."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest", **QUIET}
    )
    consumer.subscribe(["churned"])
    until(lambda: consumer.poll(0.5) is not None, 90, "a record")
    consumer.commit(asynchronous=False)
    consumer.close()


def _dump(admin: AdminClient) -> dict[str, Any]:
    """Everything that a client can see of a cluster, except records."""
    topics = admin.list_topics(timeout=20).topics
    configs = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in topics])
    for broker_id in admin.list_topics(timeout=20).brokers:
        configs |= admin.describe_configs([ConfigResource(ResourceType.BROKER, str(broker_id))])
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("readers")])["readers"].result(20)
    return {
        "topics": {
            name: [(n, one.leader, one.replicas, sorted(one.isrs)) for n, one in sorted(topic.partitions.items())]
            for name, topic in topics.items()
        },
        "configs": {
            str(resource): sorted((each.name, each.value, each.is_default) for each in found.result(20).values())
            for resource, found in configs.items()
        },
        "offsets": sorted((each.topic, each.partition, each.offset) for each in offsets.topic_partitions),
        **access_of(_address(admin)),
    }


def _until_same(admin: AdminClient, known: dict[str, Any]) -> None:
    found: dict[str, Any] = {}

    def same() -> bool:
        found.update(_or_none(lambda: _dump(admin)) or {})
        return found == known

    try:
        until(same, 60, "the same dump")
    except AssertionError:
        assert found == known
