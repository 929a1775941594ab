"""A voter beside real Kafka controllers: logs that are cut short by snapshots, and config values with blanks, which
stop no Kafka voter that takes over from ours and are found where Kafka stores them."""

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

from controller.brokers.kraft.kafka_folder import read_folder
from controller.quorum.folder import PARTITION
from controller.quorum.log.metadata_records import ClientQuotaRecord
from controller.quorum.raft.log import SnapshotId
from controller.quorum.snapshot_files import CHECKPOINT
from tests.quorum.test_real_join import leader_of, shown
from tests.support.churn import QUIET
from tests.support.kafka_quorum import KafkaQuorum, kafka_quorum
from tests.support.quorum_cluster import QuorumCluster, quorum_cluster
from tests.support.quorum_logs import image_at, said
from tests.support.real_brokers import until
from tests.support.voter import VOTER, voter
from tests.support.wire import Wire

FEW_BYTES = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
KEPT = {**FEW_BYTES, "metadata.max.retention.bytes": "3000"}
OURS = tuple(f"{key}={value}" for key, value in KEPT.items())


def snapshots(partition: Path) -> list[SnapshotId]:
    found = (CHECKPOINT.fullmatch(each.name) for each in partition.iterdir())
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)


def set_quota(quorum: KafkaQuorum, user: str, rate: float) -> None:
    """At whoever leads; a controller that does not yet, or no more, is tried again."""
    limit = {
        "entity": [{"entity_type": "user", "entity_name": user}],
        "ops": [{"key": "producer_byte_rate", "value": rate, "remove": False}],
    }

    def done() -> bool:
        leader = leader_of(quorum.bootstrap)
        place = next(each.address for each in quorum.controllers if each.node_id == leader)
        with Wire(place) as wire:
            answer = wire.call("AlterClientQuotas", 1, entries=[limit], validate_only=False)
        return [each["error_code"] for each in answer["entries"]] == [0]

    until(done, 120, "a quota is set")


def test_snapshots_of_topicwright_and_kafka_are_equal_and_an_empty_voter_begins_with_one(tmp_path: Path) -> None:
    with kafka_quorum(tmp_path, settings=KEPT) as quorum, voter(quorum, tmp_path / "voter", *OURS) as ours:
        ours.start()
        ours.votes()
        partitions = [each.metadata for each in quorum.controllers]
        mine = ours.folder / PARTITION
        users = 0
        while users < 12 or len(snapshots(mine)) < 2 or min(len(snapshots(each)) for each in partitions) < 3:
            assert users < 1000, "snapshots are made"
            users += 1
            set_quota(quorum, f"user-{users}", 1000.0 + users)
        until(lambda: not (mine / f"{0:020d}.log").exists(), 120, "the log is cleaned")
        until(lambda: all(snapshots(each)[0].end_offset > 0 for each in partitions), 120, "and so is Kafka's")

        assert ours.process is not None
        ours.process.kill()
        set_quota(quorum, "while it was away", 1.0)
        ours.start()  # from its own snapshot, whatever of the log is gone
        ours.votes()
        newest = snapshots(mine)[-1]
        while snapshots(mine)[-1] == newest:
            users += 1
            set_quota(quorum, f"user-{users}", 1000.0 + users)

        with voter(quorum, tmp_path / "late", *OURS) as late:
            late.start(VOTER + 1)
            assert late.process is not None
            late.process.wait_for_line(rf"^ready voter={VOTER + 1} ", within_s=120)
            text = shown(quorum.bootstrap)
            assert re.search(rf"^{VOTER + 1} .* voter ", text, re.MULTILINE), text
            fetched = snapshots(late.folder / PARTITION)
            assert fetched, "it began with the leader's snapshot"
            assert min(int(each.stem) for each in (late.folder / PARTITION).glob("*.log")) > 0
            assert late.process.stop() == 0
        assert ours.process.stop() == 0
        for each in quorum.controllers:
            assert each.process is not None
            assert each.process.popen.poll() is None, each.process.output
            each.kill()

    folders = [read_folder(each, cut_torn_tail=True) for each in (mine, late.folder / PARTITION, *partitions)]
    ends = [folder.checkpoint.end_offset for folder in folders if folder.checkpoint is not None]
    assert len(ends) == 4
    end = max(ends)
    first, *rest = [said(image_at(folder, end)) for folder in folders]
    assert len(image_at(folders[0], end).all(ClientQuotaRecord)) > 10
    for other in rest:
        assert other == first


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
