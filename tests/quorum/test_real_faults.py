"""Faults of a Topicwright leader during creates, with a producer and a consumer group. Also config values with blanks:
they do not stop a Kafka voter that takes over, and Topicwright reports them if Kafka stored them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from tests.support.churn import QUIET
from tests.support.network import Network
from tests.support.quorum_cluster import QuorumCluster, quorum_cluster
from tests.support.quorum_faults import check_logs, load_on, one_round
from tests.support.quorum_logs import assert_one_history, snapshots_in
from tests.support.real_brokers import until
from tests.support.topicwright import fetch

SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "20000"}
MIN_ISR = "min.insync.replicas"
WITHIN_S = 240.0


@contextmanager
def quorum_led_by_topicwright(folder: Path, ours: int, **settings: str) -> Iterator[QuorumCluster]:
    """Three voters, `ours` of them Topicwright's, and one broker: without a controller, three brokers would use both
    cores and starve the election."""
    our_settings = [f"{key.replace('_', '.')}={value}" for key, value in (SNAPSHOTS | settings).items()]
    kafkas = {**SNAPSHOTS, "offsets.topic.replication.factor": "1"}
    with Network() as network:
        given: Any = {"settings": kafkas, "our_settings": our_settings, "network": network}
        with quorum_cluster(folder, ours=ours, leads=True, brokers=1, **given) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumCluster]:
    """A quorum with one Topicwright voter, shared by tests; each begins when that voter leads."""
    with quorum_led_by_topicwright(tmp_path_factory.mktemp("quorum"), 1) as running:
        yield running


def survives(cluster: QuorumCluster, *faults: str) -> int:
    """Inject faults; check that no acknowledged record is lost and all logs are equal. Returns the bytes of log."""
    cluster.wait_ready()
    with load_on(cluster) as load:
        for fault in faults:
            one_round(cluster, fault, load)
        folders = [each.metadata for each in cluster.members.values()]
        until(lambda: sum(len(snapshots_in(each)) for each in folders) > 1, 240, "two snapshots were taken")
        until(lambda: load.churn.count > 100 * len(faults), 240, "records were acknowledged")
        until(lambda: len(load.creates.made) > 10 * len(faults), 240, "creates were answered")
    size, snapshots = check_logs(cluster)
    assert snapshots > 1
    for one in cluster.ours:
        assert one.process is not None
        assert one.process.stop(within_s=60) == 0, one.process.output[-4000:]
    assert assert_one_history([each.folder for each in cluster.ours]) > len(load.creates.made)
    return size


def test_a_quorum_survives_faults_of_its_only_topicwright_voter(cluster: QuorumCluster) -> None:
    """The soak also tests SIGSTOP."""
    assert survives(cluster, "kill", "cut-out", "disk") > 20_000
    cluster.start(cluster.ours[0].node_id)


def test_a_quorum_survives_the_death_of_its_topicwright_leader(tmp_path: Path) -> None:
    """After its restart the log at its offset is deleted; it copies the events from the other Topicwright voter."""
    with quorum_led_by_topicwright(tmp_path, 2, metadata_max_retention_bytes="1") as cluster:
        assert survives(cluster, "kill") > 1_000


def create(cluster: QuorumCluster, name: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    topic = NewTopic(name, 1, 1, config={key.replace("_", "."): value for key, value in configs.items()})
    admin.create_topics([topic], operation_timeout=60)[name].result(120)


def led_by_kafka(cluster: QuorumCluster) -> tuple[int, int]:
    """The leader among Kafka's voters, and its epoch."""
    ours = cluster.ours[0]

    def led() -> tuple[int, int] | None:
        shown = cluster.described_by_leader(but=ours.node_id)
        return None if shown is None or shown.high_watermark <= 0 else (shown.leader_id, shown.leader_epoch)

    found = until(led, WITHIN_S, "a Kafka voter leads")
    assert found is not None
    return found


def unreadable(cluster: QuorumCluster) -> int:
    process = cluster.ours[0].process
    assert process is not None
    http = re.findall(r"http=(\S+)", process.output)[-1]
    found = re.search(r"^topicwright_configs_unreadable (\S+)$", fetch(http, "/metrics")[1], re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def restart_the_broker(cluster: QuorumCluster) -> None:
    """Kill and restart the broker, so that the controller reads configs to elect leaders of its partitions."""
    broker = cluster.brokers[1]
    broker.kill()
    broker.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})

    def is_back() -> bool:
        with suppress(KafkaException):
            topics = admin.list_topics(timeout=10).topics.values()
            return all(each.partitions[0].leader == 1 for each in topics)
        return False

    until(is_back, WITHIN_S, "the broker leads its partitions again")


def test_kafka_leads_with_records_of_topicwright_and_unsupported_records_are_named(cluster: QuorumCluster) -> None:
    cluster.wait_ready()
    ours = cluster.ours[0]
    create(cluster, "ours", min_insync_replicas=" 2", unclean_leader_election_enable=" true", retention_ms="+5 ")
    assert unreadable(cluster) == 0
    assert ours.process is not None
    ours.process.kill()
    led = led_by_kafka(cluster)
    restart_the_broker(cluster)
    assert led_by_kafka(cluster) == led, "the Kafka leader has changed"

    create(cluster, "kafkas", min_insync_replicas=" 2", unclean_leader_election_enable=" true")
    ours.start()
    ours.votes()
    until(lambda: unreadable(cluster) == 2, WITHIN_S, "both are found")
    assert ours.process.output.count("Kafka cannot read a config value") >= 2
    assert f"--entity-name 'kafkas' --add-config {MIN_ISR}=2" in ours.process.output
    cluster.wait_ready()
    printed = ours.process
    until(lambda: printed.output.count("Kafka cannot read a config value") >= 4, WITHIN_S, "named again as it leads")

    repaired = ConfigEntry(MIN_ISR, "2", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "kafkas", incremental_configs=[repaired])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.incremental_alter_configs([resource])[resource].result(120)
    until(lambda: unreadable(cluster) == 0, WITHIN_S, "a change of one rewrites all")
    ours.process.kill()
    led = led_by_kafka(cluster)
    restart_the_broker(cluster)
    assert led_by_kafka(cluster) == led, "the Kafka leader has changed"
    cluster.start(ours.node_id)
