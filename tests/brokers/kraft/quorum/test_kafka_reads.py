"""What a voter writes is read by Kafka's own tool, and a Kafka controller leads on from it; and the way back."""

from __future__ import annotations

from pathlib import Path

from controller.brokers.kraft.log.batches import encode_batch
from controller.brokers.kraft.log.metadata_codec import encode_record
from controller.brokers.kraft.log.metadata_records import FeatureLevelRecord, TopicRecord
from controller.brokers.kraft.quorum.files import QuorumFiles
from controller.brokers.kraft.quorum.folder import PARTITION, NodeFolder, uuid_text
from controller.brokers.kraft.quorum.raft.log import QuorumState
from controller.machine.state import QuorumLeader
from tests.brokers.kraft.quorum.logs import epoch_begun
from tests.support import tools
from tests.support.kafka_controller import KafkaController
from tests.support.kafka_tools import kafka_tools
from tests.support.ports import free_ports
from tests.support.real_brokers import CLUSTER_ID, CONTROLLER, until

DIRECTORY = b"d" * 16
METADATA_VERSION_3_9 = 21


def _written(folder: Path, quorum: QuorumLeader) -> None:
    """An epoch led by the node itself, with records in several segments."""
    node = NodeFolder.open(folder, CLUSTER_ID, CONTROLLER, lambda: DIRECTORY)
    log = QuorumFiles(node.partition, segment_bytes=300)
    log.append(encode_batch(0, 1, 1_700_000_000_000, epoch_begun(quorum), is_control=True))
    level = FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION_3_9)
    log.append(encode_batch(3, 1, 1_700_000_000_000, [(None, encode_record(level))]))
    for number in range(5):
        record = TopicRecord(name=f"topic-{number}", topic_id=bytes([number + 1]) * 16)
        log.append(encode_batch(4 + number, 1, 1_700_000_000_001, [(None, encode_record(record))]))
    log.flush()
    log.remember(QuorumState(1, CONTROLLER, CONTROLLER, DIRECTORY))
    log.close()
    node.close()


def test_kafkas_tool_prints_what_was_written(tmp_path: Path) -> None:
    _written(tmp_path, QuorumLeader(1, CONTROLLER, 1, "127.0.0.1", 9093, DIRECTORY))
    segments = sorted((tmp_path / PARTITION).glob("*.log"))
    assert len(segments) > 2
    words = ["--cluster-metadata-decoder", "--files", ",".join(map(str, segments))]
    printed = kafka_tools().output("org.apache.kafka.tools.DumpLogSegments", *words)
    for wanted in ("LeaderChange", "KRaftVoters", '"name":"topic-0"', '"name":"topic-4"', "baseOffset: 8"):
        assert wanted in printed, printed
    assert "isvalid: false" not in printed


def test_a_kafka_controller_continues_the_log_and_it_is_read_again(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    kafka = KafkaController(tmp_path, port, tools.KAFKA_SERVER, kraft_version=1)
    _written(kafka.metadata, QuorumLeader(1, CONTROLLER, 1, "127.0.0.1", port, DIRECTORY))

    def written() -> bytes:
        return b"".join(each.read_bytes() for each in sorted((kafka.metadata / PARTITION).glob("*.log")))

    before = written()
    try:
        kafka.start()
        until(lambda: len(written()) > len(before), 120, "the first batch of its epoch is in its log")
    finally:
        if kafka.process is not None:
            kafka.process.kill()
    node = NodeFolder.open(kafka.metadata, CLUSTER_ID, CONTROLLER, lambda: DIRECTORY)
    assert uuid_text(node.directory_id) == uuid_text(DIRECTORY)
    log = QuorumFiles(node.partition)
    assert log.end > 9
    assert log.last_epoch > 1
    assert log.state.leader_id == CONTROLLER
    assert log.state.epoch == log.last_epoch
    assert b"".join(each.data for each in log.batches()).startswith(before)
    log.close()
    node.close()
