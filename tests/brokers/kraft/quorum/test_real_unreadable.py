"""Config values with blanks: none of ours stops a Kafka voter that takes over; those that Kafka stores are found."""

from __future__ import annotations

import re
import urllib.request
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it does not say that it exports these
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.support.churn import QUIET
from tests.support.quorum_cluster import QuorumCluster, quorum_cluster
from tests.support.real_brokers import until

MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
WITHIN_S = 240.0


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
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=60) as answer:
        found = re.search(r"^topicwright_configs_unreadable (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def restart_the_broker(cluster: QuorumCluster) -> None:
    """Its partitions lose their leader and get it back, for which the controller reads their configs."""
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


def test_kafka_leads_with_records_of_topicwright_and_unsupported_records_are_named(tmp_path: Path) -> None:
    with quorum_cluster(tmp_path, ours=1, leads=True, brokers=1) as cluster:
        ours = cluster.ours[0]
        create(cluster, "ours", min_insync_replicas=" 2", unclean_leader_election_enable=" true", retention_ms="+5 ")
        assert unreadable(cluster) == 0
        assert ours.process is not None
        ours.process.kill()
        led = led_by_kafka(cluster)
        restart_the_broker(cluster)
        assert led_by_kafka(cluster) == led, "it never gave up the lead"

        create(cluster, "kafkas", min_insync_replicas=" 2", unclean_leader_election_enable=" true")
        ours.start()
        ours.votes()
        until(lambda: unreadable(cluster) == 2, WITHIN_S, "both are found")
        assert ours.process.output.count("Kafka cannot read a config value") >= 2
        assert f"--entity-name 'kafkas' --add-config {MIN_ISR}=2" in ours.process.output
        cluster.wait_ready()
        printed = ours.process
        until(lambda: "config values that Kafka cannot read" in printed.output, WITHIN_S, "named as it leads")

        repaired = ConfigEntry(MIN_ISR, "2", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "kafkas", incremental_configs=[repaired])
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        admin.incremental_alter_configs([resource])[resource].result(120)
        until(lambda: unreadable(cluster) == 0, WITHIN_S, "a change of one rewrites all")
        ours.process.kill()
        led = led_by_kafka(cluster)
        restart_the_broker(cluster)
        assert led_by_kafka(cluster) == led, "it never gave up the lead"
