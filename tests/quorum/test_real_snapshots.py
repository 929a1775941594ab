"""A voter with Kafka controllers: logs that are truncated after snapshots."""

import re
from pathlib import Path

from controller.brokers.kraft.adopting import read_folder
from controller.kafka.messages.records import ClientQuotaRecord
from controller.quorum.folder import PARTITION
from controller.quorum.log_files import CHECKPOINT
from controller.quorum.raft.log import SnapshotId
from tests.quorum.test_real_join import leader_of, shown
from tests.support.kafka_quorum import KafkaQuorum, kafka_quorum
from tests.support.quorum_logs import image_at, said
from tests.support.real_brokers import until
from tests.support.voter import VOTER, voter
from tests.support.wire import Wire

FEW_BYTES = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
RETAINED = {**FEW_BYTES, "metadata.max.retention.bytes": "3000"}
OURS = tuple(f"{key}={value}" for key, value in RETAINED.items())


def snapshots(partition: Path) -> list[SnapshotId]:
    found = (CHECKPOINT.fullmatch(each.name) for each in partition.iterdir())
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)


def set_quota(quorum: KafkaQuorum, user: str, rate: float) -> None:
    """Set a quota at the leader; retried while the leader changes."""
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


def test_snapshots_equal_kafkas_and_an_empty_voter_fetches_one(tmp_path: Path) -> None:
    with kafka_quorum(tmp_path, settings=RETAINED) as quorum, voter(quorum, tmp_path / "voter", *OURS) as ours:
        ours.start()
        ours.votes()
        partitions = [each.metadata for each in quorum.controllers]
        mine = ours.folder / PARTITION
        users = 0
        while users < 12 or len(snapshots(mine)) < 2 or min(len(snapshots(each)) for each in partitions) < 3:
            assert users < 1000, "no snapshots after 1000 quotas"
            users += 1
            set_quota(quorum, f"user-{users}", 1000.0 + users)
        until(lambda: not (mine / f"{0:020d}.log").exists(), 120, "the log is cleaned")
        until(lambda: all(snapshots(each)[0].end_offset > 0 for each in partitions), 120, "and so is Kafka's")

        assert ours.process is not None
        ours.process.kill()
        set_quota(quorum, "while it was away", 1.0)
        ours.start()  # from its own snapshot, without the log before it
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
            assert fetched, "the late voter has not fetched a snapshot"
            assert min(int(each.stem) for each in (late.folder / PARTITION).glob("*.log")) > 0
            assert late.process.stop() == 0
        assert ours.process.stop() == 0
        for each in quorum.controllers:
            assert each.process is not None
            assert each.process.popen.poll() is None, each.process.output
            each.kill()

    folders = [read_folder(each, ignore_torn_tail=True) for each in (mine, late.folder / PARTITION, *partitions)]
    ends = [folder.checkpoint.end_offset for folder in folders]
    assert min(ends) > 0
    end = max(ends)
    first, *rest = [said(image_at(folder, end)) for folder in folders]
    assert len(image_at(folders[0], end).all(ClientQuotaRecord)) > 10
    for other in rest:
        assert other == first
