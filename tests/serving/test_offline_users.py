"""User changes in the folder of a stopped KRaft service, allowed only if it is the only voter."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from controller.brokers.kraft.projector import MetadataProjector
from controller.cli.folder import open_log
from controller.cli.main import main
from controller.cli.work.users import alter_offline, credential
from controller.kafka.messages.access import ScramCredentialDeletion
from controller.kafka.messages.cluster import Listener
from controller.kafka.messages.records import NoOpRecord, UserScramCredentialRecord
from controller.quorum.files import QuorumFiles
from controller.quorum.folder import PARTITION, FolderError
from controller.quorum.log.batches import Pair, RecordBatch, embed_events, embedded_events, encode_batch
from controller.quorum.log.metadata_codec import decode_record, encode_record
from controller.quorum.raft.voters import Voter, VoterSet, kraft_version_record, voters_record
from controller.settings.load import load_settings
from controller.store.store import TopicStore
from events.logs.rocksdb_log import RocksDbLog
from tests.brokers.kraft.logs import kafkas_log
from tests.brokers.kraft.test_adopting import write

ALONE = load_settings(overrides=["node.id=3000"])
ZOE = credential("zoe", "SCRAM-SHA-256", "secret", 4096)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a quorum's only voter, node 3000."""
    source = write(tmp_path / "kafka", kafkas_log().data())
    assert main(["adopt", "--from", str(source), "--data", str(tmp_path / "data")]) == 0
    return tmp_path / "data"


def append(data: Path, pairs: Sequence[Pair], *, is_control: bool = False) -> None:
    files = QuorumFiles(data / PARTITION)
    files.append(encode_batch(files.end, max(1, files.last_epoch), 7, pairs, is_control=is_control))
    files.close()


def kept(data: Path) -> tuple[list[RecordBatch], list[bytes], int]:
    """Returns the batches, the events, and the end of the metadata log that they cover."""
    files = QuorumFiles(data / PARTITION)
    batches = list(files.batches())
    files.close()
    log = RocksDbLog(data, cluster_id=None, new_cluster_id=str)
    found = [value for _, value in log.read()], MetadataProjector(log).mark.applied
    log.close()
    return batches, *found


def test_offline_user_changes_are_committed_by_the_only_voter(data: Path) -> None:
    before, events, _ = kept(data)
    assert alter_offline(data, ALONE, ZOE).error_code == 0
    assert alter_offline(data, ALONE, ScramCredentialDeletion(name="nobody", mechanism=1)).error_code != 0
    log = open_log(data)
    assert TopicStore(log).durable_cluster.scram["zoe", "SCRAM-SHA-256"].iterations == 4096
    log.close()
    batches, after, applied = kept(data)
    (batch,) = batches[len(before) :]
    ours = embedded_events(batch.records[0][1])
    assert ours is not None
    assert (ours.first, list(ours.values)) == (len(events), after[len(events) :])
    (record,) = (decode_record(value) for _, value in batch.records[1:])
    assert isinstance(record, UserScramCredentialRecord)
    assert (record.name, applied) == ("zoe", batch.last_offset + 1)
    assert alter_offline(data, ALONE, ScramCredentialDeletion(name="zoe", mechanism=1)).error_code == 0
    assert len(kept(data)[0]) == len(batches) + 1


def test_offline_user_changes_accept_a_longer_metadata_log(data: Path) -> None:
    append(data, [(None, encode_record(NoOpRecord()))])
    assert alter_offline(data, ALONE, ZOE).error_code == 0


def _three(data: Path) -> None:
    three = VoterSet.of(Voter(each, b"d" * 16, (Listener(name="C", host="h", port=1),)) for each in (3000, 3001, 3002))
    append(data, [kraft_version_record(1), voters_record(three)], is_control=True)


def _killed(data: Path) -> None:
    append(data, [(None, embed_events(99, [b"an event"]))])


@pytest.mark.parametrize(
    ("plant", "overrides", "why"),
    [
        (_three, ["node.id=3000"], "belongs to one of several voters: change users with --bootstrap"),
        (
            lambda data: None,
            ["node.id=3000", "controller.quorum.voters=3000@a:1,3001@b:1,3002@c:1"],
            "belongs to one of several voters",
        ),
        (_killed, ["node.id=3000"], "killed in the middle of a commit: start it once"),
        (lambda data: None, ["node.id=7"], "belongs to node 3000, not to 7"),
    ],
    ids=["three in the log", "three in the settings", "killed", "another node"],
)
def test_offline_users_reject_other_quorums(plant: object, overrides: list[str], why: str, data: Path) -> None:
    plant(data)  # type: ignore[operator]
    before = kept(data)
    with pytest.raises(FolderError, match=why):
        alter_offline(data, load_settings(overrides=overrides), ZOE)
    assert kept(data) == before
