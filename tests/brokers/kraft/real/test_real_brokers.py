"""Three Kafka brokers under a producer with acks=all survive kills, shutdowns and pauses of brokers and controllers.
The tests share the cluster of conftest.py; each continues where the one before ended."""

import shutil
import signal
from contextlib import ExitStack

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from controller.kafka.messages import ApiKey
from controller.kafka.messages.clients import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from controller.kafka.messages.topics import CreatableTopic, CreateTopicsRequest, MetadataRequest, MetadataRequestTopic
from tests.brokers.kraft.guarded import call_over
from tests.support.churn import QUIET, Churn, Reading
from tests.support.real_brokers import RealCluster, format_directory, until
from tests.support.wire import Wire

PARTITIONS = 6


def _admin(cluster: RealCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})


def _create(cluster: RealCluster, name: str, partitions: int = PARTITIONS) -> None:
    topic = NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})
    admin = _admin(cluster)
    admin.create_topics([topic], request_timeout=30)[name].result(40)


def _in_sync(cluster: RealCluster, name: str) -> None:
    """Wait until all replicas are in sync and every partition has a leader."""

    def all_in_sync() -> bool:
        partitions = _admin(cluster).list_topics(name, timeout=10).topics[name].partitions.values()
        return all(len(each.isrs) == 3 and each.leader > 0 for each in partitions)

    until(all_in_sync, 90, f"all replicas of {name} in sync")


def test_acknowledged_records_survive_kills_of_brokers_and_controllers(cluster: RealCluster) -> None:
    _create(cluster, "kept")
    with Reading(cluster.bootstrap, "kept") as reading:
        with Churn(cluster.bootstrap, "kept", PARTITIONS) as churn:
            churn.goes_on()
            reading.has_begun()
            _kill_a_broker(cluster, churn)
            _shut_a_broker_down(cluster, churn)
            _kill_the_controller(cluster, churn)
            _stop_a_broker_for_a_while(cluster, churn)
            _empty_a_brokers_disk(cluster, churn)
        reading.catches_up(churn)
    assert churn.failed == []
    assert churn.lost() == {}
    assert churn.count > 300


def _kill_a_broker(cluster: RealCluster, churn: Churn) -> None:
    cluster.brokers[1].kill()
    cluster.wait_live(2, 3)
    churn.goes_on()
    _create(cluster, "under", 3)
    with Churn(cluster.bootstrap, "under", 3) as under:
        under.goes_on()
        cluster.brokers[1].start()
        cluster.wait_live()
        _in_sync(cluster, "kept")
        _in_sync(cluster, "under")
    assert (under.failed, under.lost()) == ([], {}), "a topic created with a placeholder (KIP-409)"


def _shut_a_broker_down(cluster: RealCluster, churn: Churn) -> None:
    assert cluster.brokers[2].stop() in (0, 143), "the broker did not shut down by itself"
    cluster.wait_live(1, 3, within_s=5)
    churn.goes_on()
    cluster.brokers[2].start()
    cluster.wait_live()
    _in_sync(cluster, "kept")


def _kill_the_controller(cluster: RealCluster, churn: Churn) -> None:
    cluster.kill_controller()
    churn.goes_on()
    cluster.start_controller()
    _create(cluster, "after", 3)
    cluster.wait_live()
    churn.goes_on()


def _stop_a_broker_for_a_while(cluster: RealCluster, churn: Churn) -> None:
    cluster.brokers[3].signal(signal.SIGSTOP)
    cluster.wait_live(1, 2)
    churn.goes_on()
    cluster.brokers[3].signal(signal.SIGCONT)
    cluster.wait_live()
    _in_sync(cluster, "kept")


def _empty_a_brokers_disk(cluster: RealCluster, churn: Churn) -> None:
    broker = cluster.brokers[1]
    broker.kill()
    shutil.rmtree(broker.data)
    format_directory(broker.data, broker.broker_id)
    cluster.wait_live(2, 3)
    broker.start()
    cluster.wait_live()
    churn.goes_on()
    _in_sync(cluster, "kept")


def test_a_create_is_answered_when_every_broker_serves_the_topic(cluster: RealCluster) -> None:
    with ExitStack() as ending:
        wires = {
            broker.broker_id: ending.enter_context(Wire(f"127.0.0.1:{broker.port}"))
            for broker in cluster.brokers.values()
        }
        for number in range(40):
            name = f"ready-{number}"
            topic = CreatableTopic(name=name, num_partitions=3, replication_factor=3)
            create = CreateTopicsRequest(topics=(topic,), timeout_ms=20_000)
            created = call_over(wires[number % 3 + 1], ApiKey.CREATE_TOPICS, 7, create)
            assert created.topics[0].error_code == 0, created
            for wire in wires.values():
                metadata = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False)
                known = call_over(wire, ApiKey.METADATA, 12, metadata)
                assert [each.error_code for each in known.topics[0].partitions] == [0, 0, 0], (number, known)
            for each in known.topics[0].partitions:
                partition = ListOffsetsPartition(partition_index=each.partition_index, timestamp=-1)
                offsets = ListOffsetsRequest(
                    replica_id=-1, topics=(ListOffsetsTopic(name=name, partitions=(partition,)),)
                )
                answer = call_over(wires[each.leader_id], ApiKey.LIST_OFFSETS, 7, offsets)
                assert answer.topics[0].partitions[0].error_code == 0, (number, answer)
