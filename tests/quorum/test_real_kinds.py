"""Real clients cause every record type that Topicwright writes, and Kafka's controllers replay them. A Kafka controller
ends if it cannot replay a record. These must keep running, and their snapshots must equal Topicwright's log."""

import ast
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from controller import quorum
from controller.brokers import kraft
from controller.brokers.kraft.adopting import read_folder
from controller.kafka.messages import CLASSES
from controller.kafka.messages import records as kinds
from controller.kafka.messages.records import MetadataRecord
from controller.kafka.schema import RECORDS
from controller.quorum.files import QuorumFiles
from controller.quorum.log.batches import encode_batch
from controller.quorum.log.metadata_codec import encode_record
from controller.quorum.log_files import CHECKPOINT
from tests.brokers.kraft.guarded import GUARDED, grant, revoke, set_quota
from tests.support.churn import QUIET
from tests.support.kafka_tools import kafka_tools
from tests.support.quorum_cluster import QuorumCluster, quorum_cluster
from tests.support.quorum_faults import check_logs
from tests.support.quorum_logs import image_at, records_at
from tests.support.real_brokers import until
from tests.support.wire import Wire

SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "10000", "broker.session.timeout.ms": "3000", **GUARDED}
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
"""Kafka's resource types of configs."""
SET, DELETE = 0, 1
UPGRADE, SAFE_DOWNGRADE = 1, 2
READS = ("importing.py", "importing_cluster.py")
"""Source files that only read records."""
SLOW = "controller.quorum.election.timeout.ms=60000\ncontroller.quorum.fetch.timeout.ms=60000\n"


def test_kafka_controllers_replay_every_record_type_of_topicwright(tmp_path: Path) -> None:
    ours = [f"{key}={value}" for key, value in SETTINGS.items()]
    with quorum_cluster(tmp_path, ours=1, leads=True, settings=SETTINGS, our_settings=ours, release="4.3") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        address = f"127.0.0.1:{cluster.brokers[1].port}"
        with Wire(address) as wire:
            _levels(wire)
            _topics(admin, wire)
            _configs(wire)
            _quotas(address)
            for user in ("ann", "bob"):
                grant(address, user, "t")
            revoke(address, "bob", "t")
            _change_share_version(wire)
            _producer(cluster)
            _brokers(cluster)
            _controllers(cluster)
            end = cluster.wait_ready().high_watermark
            _until_snapshots_of(cluster, end, address)
        cluster.wait_ready()
        _kafkas_live(cluster)
        assert check_logs(cluster)[1] > 2
        _a_transaction_that_its_leader_left_open_is_ended(cluster)
        _kafkas_live(cluster)
        check_logs(cluster)
        for controller in cluster.quorum.controllers:
            seen = set(map(type, records_at(controller.metadata)))
            assert kinds.UnregisterControllerRecord in seen
            assert {each.__name__ for each in written_kinds() - seen} == set(), "record types that no client caused"


def _kafkas_live(cluster: QuorumCluster) -> None:
    for controller in cluster.quorum.controllers:
        assert controller.process is not None
        assert controller.process.popen.poll() is None, controller.process.output[-4000:]


def written_kinds() -> set[type[MetadataRecord]]:
    """The record types that the source of `controller.brokers.kraft` and `controller.quorum` creates, except in READS;
    and NoOpRecord, which embeds the events of each batch."""
    known = {name: each for name, each in CLASSES.items() if name in RECORDS and issubclass(each, MetadataRecord)}
    found: set[type[MetadataRecord]] = {kinds.NoOpRecord}
    paths = [path for package in (kraft, quorum) for path in Path(package.__path__[0]).rglob("*.py")]
    for path in paths:
        if path.name in READS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                found |= {known[name]} if name in known else set()
    assert len(found) > 15, "too few record types found in the source"
    return found


def _topics(admin: AdminClient, wire: Wire) -> None:
    new = NewTopic("t", 3, 3, config={"retention.ms": "1000000", "min.insync.replicas": "2"})
    admin.create_topics([new, NewTopic("gone", 2, 3), NewTopic("moved", 1, replica_assignment=[[1, 2]])])["t"].result(
        60
    )
    admin.create_partitions([NewPartitions("t", 4)])["t"].result(60)
    until(lambda: set(admin.list_topics(timeout=10).topics) >= {"gone", "moved"}, 60, "the topics are there")
    admin.delete_topics(["gone"])["gone"].result(60)
    partitions = [{"partition_index": 0, "replicas": [2, 3]}]
    answer = wire.call(
        "AlterPartitionReassignments", 0, timeout_ms=60_000, topics=[{"name": "moved", "partitions": partitions}]
    )
    assert answer["error_code"] == 0, answer
    until(lambda: set(admin.list_topics("moved").topics["moved"].partitions[0].replicas) == {2, 3}, 120, "it has moved")


def _configs(wire: Wire) -> None:
    def alter(kind: int, name: str, key: str, value: str | None) -> None:
        change = {"name": key, "config_operation": DELETE if value is None else SET, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
        answer = wire.call("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)
        assert [each["error_code"] for each in answer["responses"]] == [0], answer

    for kind, name, key, value in (
        (TOPIC, "t", "segment.bytes", "10000000"),
        (BROKER, "1", "log.cleaner.threads", "2"),
        (BROKER, "", "log.cleaner.threads", "3"),
        (CLIENT_METRICS, "all", "interval.ms", "60000"),
        (GROUP, "g", "consumer.session.timeout.ms", "50000"),
    ):
        alter(kind, name, key, value)
        alter(kind, name, key, None)
        alter(kind, name, key, value)


def _quotas(address: str, rate: float = 1000.0) -> None:
    for entity in ({"user": "ann"}, {"user": None}, {"user": "ann", "client-id": "c"}, {"ip": "10.0.0.1"}):
        key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
        for value in (rate, None, rate):
            set_quota(address, entity, key, value)


def _levels(wire: Wire) -> None:
    """Raise the feature levels from 4.3 to 4.4."""
    for name, level in (("metadata.version", 33), ("share.version", 2)):
        _finalize(wire, name, level, UPGRADE)


def _change_share_version(wire: Wire) -> None:
    _finalize(wire, "share.version", 0, SAFE_DOWNGRADE)
    _finalize(wire, "share.version", 1, UPGRADE)


def _finalize(wire: Wire, name: str, level: int, kind: int) -> None:
    update = {"feature": name, "max_version_level": level, "upgrade_type": kind}
    answer = wire.call("UpdateFeatures", 1, timeout_ms=60_000, feature_updates=[update], validate_only=False)
    assert answer["error_code"] == 0, answer
    assert {each["error_code"] for each in answer.get("results") or []} <= {0}, answer


def _producer(cluster: QuorumCluster) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, **QUIET})
    producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]


def _cluster_tool(cluster: QuorumCluster, command: str, node_id: int) -> str:
    """Run `kafka-cluster.sh`; returns the printed error, empty if it succeeds."""
    to = f"127.0.0.1:{cluster.brokers[1].port}"
    code, output = kafka_tools().run("kafka-cluster", command, "--id", str(node_id), "--bootstrap-server", to)
    return "" if code == 0 else output


def _controllers(cluster: QuorumCluster) -> None:
    """Remove the registration of a controller, which then registers again; removing an unknown one is an error."""
    assert _cluster_tool(cluster, "unregister-controller", cluster.quorum.controllers[0].node_id) == ""
    assert "Controller ID 3999 is not currently registered." in _cluster_tool(cluster, "unregister-controller", 3999)


def _brokers(cluster: QuorumCluster) -> None:
    """Shut a broker down, unregister and restart it; then kill it, restart it and kill it again."""
    broker = cluster.brokers[3]
    broker.stop()
    until(lambda: _cluster_tool(cluster, "unregister", 3) == "", 120, "it is forgotten")
    for _ in range(2):
        broker.start()
        until(lambda: _in_sync(cluster, "t"), 240, "all replicas are in sync again")
        broker.kill()
        until(lambda: not _in_sync(cluster, "t"), 120, "its death is noticed")


def _in_sync(cluster: QuorumCluster, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{cluster.brokers[1].port}", **QUIET})
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
    return all(len(each.isrs) == 3 for each in partitions)


def _until_snapshots_of(cluster: QuorumCluster, end: int, address: str) -> None:
    """Write records until every voter has a snapshot up to an offset."""
    rate = 1000.0

    def newest(partition: Path) -> int:
        return max((int(m[1]) for each in partition.iterdir() if (m := CHECKPOINT.fullmatch(each.name))), default=0)

    def are_made() -> bool:
        nonlocal rate
        rate += 1
        _quotas(address, rate)
        return all(newest(each.metadata) >= end for each in cluster.members.values())

    until(are_made, 240, f"every voter has a snapshot of all below {end}")


def _a_transaction_that_its_leader_left_open_is_ended(cluster: QuorumCluster) -> None:
    """Kill all brokers and voters, and leave an open transaction in the log of the Topicwright voter, the leader."""
    (ours,) = cluster.ours
    processes = [each.process for each in cluster.brokers.values()]
    for process in (*processes, *(each.process for each in cluster.members.values())):
        assert process is not None
        process.kill()
    log = QuorumFiles(ours.metadata)  # the last records of the killed leader, which no other voter has
    topic = kinds.TopicRecord(name="never", topic_id=b"n" * 16)
    # Kafka's controller takes the end of a snapshot for its last offset, so it cannot begin a transaction right there.
    for batch in ((kinds.NoOpRecord(), kinds.BeginTransactionRecord(name="left open")), (topic,)):
        records = [(None, encode_record(each)) for each in batch]
        log.append(encode_batch(log.end, log.last_epoch, 1_700_000_000_000, records))
    log.flush()
    log.close()
    for controller in cluster.quorum.controllers:
        with (controller.folder / "controller.properties").open("a") as file:
            file.write(SLOW)  # the Topicwright voter starts the first election
    for node_id in cluster.members:
        cluster.start(node_id)
    cluster.wait_ready()
    kafkas = cluster.quorum.controllers
    until(lambda: all(_aborts(each.metadata) == 1 for each in kafkas), 60, "the transaction is ended")
    folder = read_folder(kafkas[0].metadata, ignore_torn_tail=True)
    topics = {each.name for each in image_at(folder, folder.end_offset).all(kinds.TopicRecord)}
    assert "t" in topics
    assert "never" not in topics


def _aborts(partition: Path) -> int:
    return sum(isinstance(each, kinds.AbortTransactionRecord) for each in records_at(partition))


def test_written_record_types_are_found_in_the_source() -> None:
    assert kinds.PartitionChangeRecord in written_kinds()
    assert kinds.ZkMigrationStateRecord not in written_kinds()
