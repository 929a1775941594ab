"""Adopting a metadata log: its events and state, and the errors for logs that cannot be adopted."""

import asyncio
import json
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import AsyncMock

import msgspec
import pytest

from controller.brokers.kraft.adopting import Adopted, adopted, read_folder
from controller.brokers.kraft.membership import controller_record, controller_registration
from controller.brokers.kraft.projector import MetadataProjector, stored_acls
from controller.cli.main import main
from controller.kafka.messages.access import EntityData
from controller.kafka.messages.cluster import Listener
from controller.kafka.messages.records import (
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    UserScramCredentialRecord,
)
from controller.machine.apply import apply
from controller.machine.state import DictTopics, State
from controller.quorum.features import fold, limits
from controller.quorum.folder import PARTITION
from controller.quorum.log.batches import decode_batches, encode_batch
from controller.quorum.log.image import MetadataImage
from controller.quorum.log.metadata_codec import encode_record
from controller.quorum.log_files import batches_of
from controller.quorum.raft.voters import Voter, VoterSet, leader_change_record
from controller.serving.quorum_member import Member
from controller.settings.load import SettingsError, load_settings
from controller.store.store import TopicStore
from events.access import Acl, AclsCreated, QuotasChanged, ScramCredentialSet
from events.catalog import Endpoint
from events.codec import decode_event
from events.logs.log import Commit, Entry
from events.logs.rocksdb_log import RocksDbLog
from events.names import RequestId
from tests.brokers.kraft.logs import LogRig, adopted_records, differences, folder_of, kafkas_log, snapshot_bytes
from tests.quorum.logs import opened
from tests.support.memory_log import InMemoryLog

ACL = AccessControlEntryRecord(
    id=b"\1" * 16, resource_type=2, resource_name="t", pattern_type=3, principal="User:a", host="*", operation=3
)
UNKNOWN = bytes((1, 120, 0, 9))


def batch_after(log: LogRig, *values: bytes) -> bytes:
    """Another batch of Kafka's controller."""
    return encode_batch(log.end, log.epoch, 5, [(None, value) for value in values])


def write(folder: Path, data: bytes, *, start: int = 0, node_id: int = 3000, epoch: int = 1) -> Path:
    """A metadata folder as a Kafka node stores it."""
    partition = folder / PARTITION
    partition.mkdir(parents=True)
    (partition / f"{start:020d}.log").write_bytes(data)
    (partition / "quorum-state").write_text(json.dumps({"leaderId": 3000, "leaderEpoch": epoch, "data_version": 1}))
    (folder / "meta.properties").write_text(f"#\nversion=1\ncluster.id=cluster\nnode.id={node_id}\n")
    return folder


def test_adopted_events_equal_the_log() -> None:
    log = kafkas_log()
    state = State(DictTopics())
    for record in adopted_records():
        apply(state, record)
    image = MetadataImage()
    image.fold(folder_of(log).batches)
    assert differences(image, state) == []
    assert state.waiting == {}
    assert state.cluster.quorum is not None


def adopted_with(log: LogRig, *values: bytes) -> tuple[Adopted, InMemoryLog]:
    """Adopt the log with another batch; returns the result and an event log with the adopted state."""
    known = folder_of(log)
    more = decode_batches(batch_after(log, *values))
    taken = adopted(msgspec.structs.replace(known, batches=(*known.batches, *more)), RequestId("a"))
    store = InMemoryLog("cluster")
    store.write(Commit([Entry(b"event")], dict(taken.state)))
    return taken, store


def test_unsupported_records_are_stored_unchanged() -> None:
    log = kafkas_log()
    taken, store = adopted_with(log, encode_record(ACL), UNKNOWN)
    mark = MetadataProjector(store).mark
    assert (mark.applied, mark.adopted) == (log.end + 2, True)
    assert mark.broker_epochs == log.projector.mark.broker_epochs
    assert [encode_record(one) for one in taken.image.unknown] == [UNKNOWN]


def test_adopted_acls_credentials_and_quotas_can_be_changed() -> None:
    """An ACL of Kafka's controller is removed by the id that brokers know."""
    login = UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    quota = ClientQuotaRecord(
        entity=(EntityData(entity_type="user", entity_name=None),), key="producer_byte_rate", value=5.0
    )
    taken, store = adopted_with(kafkas_log(), *map(encode_record, (ACL, login, quota)))
    events: dict[type, Any] = {type(event): event for event in taken.events}
    (acl,) = events[AclsCreated].acls
    assert acl == Acl(2, ACL.pattern_type, "t", "User:a", "*", ACL.operation, ACL.permission_type)
    assert events[ScramCredentialSet].stored_key == b"k"
    assert events[QuotasChanged].entity == (("user", None),)
    assert stored_acls(store)[ACL.id] == acl


class Run(Protocol):
    """Runs a command on a data folder; returns its output, or its errors if the exit code is not 0."""

    def __call__(self, *words: object, data: str = "data", code: int = 0) -> str: ...


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object, data: str = "data", code: int = 0) -> str:
        found = main([*map(str, words), "--data", str(tmp_path / data)])
        printed = capsys.readouterr()
        assert found == code, printed.err
        return printed.err if code else printed.out

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The folder of Kafka's controller."""
    return write(tmp_path / "kafka", kafkas_log().data())


def with_checkpoint(folder: Path, log: LogRig, *values: bytes) -> Path:
    """A metadata folder with a checkpoint of this log, and a batch of the next epochs."""
    source = write(folder, batch_after(log, *values), start=log.end, epoch=9)
    checkpoint = source / PARTITION / f"{log.end:020d}-{log.epoch:010d}.checkpoint"
    checkpoint.write_bytes(snapshot_bytes(log.image(), log.epoch))
    return source


def test_adopt_and_handback_with_a_checkpoint_preserve_the_files(tmp_path: Path, run: Run) -> None:
    """A log that does not begin at 0 is handed back with its checkpoint."""
    source, back = with_checkpoint(tmp_path / "kafka", kafkas_log(), encode_record(ACL)), tmp_path / "back"
    files = [*(source / PARTITION).glob("*.checkpoint"), *(source / PARTITION).glob("*.log")]
    before = [path.read_bytes() for path in files]
    run("adopt", "--from", source)
    run("handback", "--to", back)
    assert stat.S_IMODE(back.stat().st_mode) == 0o700, "the folder has SCRAM credentials, so only its owner may read it"
    assert [(back / PARTITION / path.name).read_bytes() for path in files] == before
    taken = adopted(read_folder(source), RequestId("a"))
    assert taken.quorum.leader_epoch == 9, "the newest epoch in the folder"
    assert len(taken.image.all(AccessControlEntryRecord)) == 1
    run("handback", "--to", source, "--replace")
    assert (tmp_path / "kafka.before-handback" / PARTITION / files[0].name).is_file()


def test_adopt_prints_configs_that_kafka_cannot_read(tmp_path: Path, run: Run) -> None:
    poison = ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value=" 2")
    source = with_checkpoint(tmp_path / "kafka", kafkas_log(), encode_record(poison))
    for words in (["adopt", "--from", source], ["handback", "--to", tmp_path / "back"]):
        printed = run(*words)
        assert "Kafka cannot read min.insync.replicas=' 2'; repair it: kafka-configs " in printed
        assert "--entity-default --add-config min.insync.replicas=2\n" in printed


def test_handback_clears_the_feature_limits_of_departed_controllers(tmp_path: Path, run: Run) -> None:
    log, back = kafkas_log(), tmp_path / "back"
    voter = Voter(3000, b"d" * 16, (Listener(name="CONTROLLER", host="127.0.0.1", port=1),))
    own = controller_record(controller_registration(voter, b"i" * 16, 0))
    gone = msgspec.structs.replace(own, controller_id=3009)
    run("adopt", "--from", write(tmp_path / "kafka", log.data() + batch_after(log, *map(encode_record, (own, gone)))))
    freed = "no longer block upgrades: 3009\n"
    assert freed in run("handback", "--to", back)
    assert freed not in run("handback", "--to", tmp_path / "again"), "the second handback must find no limits to clear"
    found = fold({}, batches_of(opened(back).since_snapshot(log.end + 3)))
    assert {node_id: limits(each, ()) == {} for node_id, each in found.items()} == {3000: False, 3009: True}


Plant = Callable[[Path], object]


def _properties(text: str) -> Plant:
    return lambda folder: (folder / "meta.properties").write_text(text)


def _log(change: Callable[[bytes], bytes]) -> Plant:
    """Change the first file of the log."""

    def plant(folder: Path) -> None:
        path = folder / PARTITION / f"{0:020d}.log"
        path.write_bytes(change(path.read_bytes()))

    return plant


def _with(*values: bytes) -> Plant:
    return _log(lambda data: data + batch_after(kafkas_log(), *values))


def _flipped(data: bytes) -> bytes:
    half = len(data) // 2
    return data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :]


def _without_its_beginning(folder: Path) -> None:
    _log(lambda _: b"")(folder)
    last = encode_batch(500, 1, 5, [(None, encode_record(ACL))])
    (folder / PARTITION / f"{500:020d}.log").write_bytes(last)


def _with_two_voters(data: bytes) -> bytes:
    voters = VoterSet.of(Voter(node_id, bytes(16), ()) for node_id in (3000, 3001))
    change = leader_change_record(3000, voters, [3000])
    return data + encode_batch(kafkas_log().end, 1, 5, [change], is_control=True)


REFUSED: dict[str, tuple[Plant, str]] = {
    "no metadata folder": (
        lambda folder: (folder / PARTITION).rename(folder / "orders-0"),
        "is not a metadata folder: pass the metadata.log.dir",
    ),
    "not formatted": (
        _properties("version=1\nnode.id=3000\n"),
        "has no cluster.id: it is not the meta.properties of a formatted Kafka node",
    ),
    "a broker's": (
        _properties("version=1\ncluster.id=cluster\nnode.id=7\n"),
        "belongs to node 7, a broker; the controller is node 3000",
    ),
    "corrupt": (_log(_flipped), "wrong checksum in the batch at offset"),
    "cut": (_log(lambda data: data[:-3]), "not a complete batch of format 2"),
    "gap": (_without_its_beginning, "begins at offset 500 and has no checkpoint of the records before it"),
    "in a transaction": (_with(encode_record(BeginTransactionRecord(name="x"))), "ends within a transaction"),
    "unknown feature": (
        _with(encode_record(FeatureLevelRecord(name="new.version", feature_level=1))),
        "feature new.version has level 1, which is unknown",
    ),
    "several voters": (_log(_with_two_voters), "the quorum has the voters [3000, 3001]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_metadata_logs_are_not_adopted(name: str, tmp_path: Path, source: Path, run: Run) -> None:
    plant, error = REFUSED[name]
    plant(source)
    assert error in run("adopt", "--from", source, code=2)
    assert not (tmp_path / "data").exists()


def test_adopted_events_are_found_by_request_id(tmp_path: Path, source: Path, run: Run) -> None:
    run("adopt", "--from", source)
    head, *everything = run("events").splitlines()
    request = json.loads(run("events", "--json").splitlines()[0])["cause"]["request_id"]
    assert request.startswith("adopt-")
    run("handback", "--to", tmp_path / "back")
    of_request = ("events", "--request", request)
    assert run(*of_request).splitlines() == [head, *everything]
    shown = [line.split() for line in run(*of_request, "--since", 3).splitlines()]
    assert shown == [line.split() for line in (head, *everything[3:])]
    assert [line.split()[2] for line in run(*of_request, "--topic", "t").splitlines()] == ["TYPE", "TopicDiscovered"]


def test_an_incomplete_last_batch_is_truncated_only_on_request(tmp_path: Path, run: Run) -> None:
    log = kafkas_log()
    source = write(tmp_path / "kafka", log.data() + batch_after(log, encode_record(ACL)))
    _log(lambda data: data[:-3])(source)
    run("adopt", "--from", source, code=2)
    assert "bytes at the end of the log were dropped" in run("adopt", "--from", source, "--cut-torn-tail")


def test_adopting_a_folder_in_use_is_rejected(source: Path, run: Run) -> None:
    """Locks belong to processes: another process must hold it."""
    code = (
        "import fcntl,sys; f=open(sys.argv[1],'w'); fcntl.lockf(f,fcntl.LOCK_EX); print(1,flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", code, str(source / ".lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None, "stdout must be a pipe"
        process.stdout.readline()
        try:
            assert "is in use: stop its Kafka node first" in run("adopt", "--from", source, code=2)
        finally:
            process.kill()
    run("adopt", "--from", source)


def test_adopt_and_handback_reject_folders_that_are_not_empty(tmp_path: Path, source: Path, run: Run) -> None:
    other = write(tmp_path / "other", kafkas_log().data())
    (other / "meta.properties").write_text("version=1\ncluster.id=elsewhere\nnode.id=3000\n")
    refused = run("adopt", "--from", source, "--cluster-id", "other", code=2)
    assert "belongs to cluster cluster, not to other" in refused
    assert "contains no log" in run("handback", "--to", tmp_path / "back", code=2)
    run("adopt", "--from", source)
    assert "name an empty folder" in run("adopt", "--from", source, code=2)
    assert "holds the log of cluster cluster, not of elsewhere" in run("adopt", "--from", other, code=2)
    assert "is not empty" in run("handback", "--to", other, code=2)
    refused = run("handback", "--to", other, "--replace", code=2)
    assert "belongs to cluster elsewhere, not to cluster" in refused
    _with(encode_record(ACL))(source)
    assert "is ahead, with epoch 1" in run("handback", "--to", source, "--replace", code=2)


def test_a_handed_back_folder_cannot_be_served(tmp_path: Path, source: Path, run: Run) -> None:
    data, back = tmp_path / "data", tmp_path / "back"
    run("adopt", "--from", source)
    (tmp_path / "full").write_text("a file")
    run("handback", "--to", tmp_path / "full", code=2)
    assert _handed_back_to(data) == "", "a failed handback must not change the folder"
    run("handback", "--to", back)
    assert _handed_back_to(data) == str(back)
    assert f"handed back to Kafka's controller up to offset 28, in {back}" in run("events")
    run("handback", "--to", tmp_path / "again")
    run("adopt", "--from", back, data="new")
    assert _handed_back_to(tmp_path / "new") == "", "the new folder may be served"


def test_handback_does_not_decrease_event_times(
    tmp_path: Path, source: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("adopt", "--from", source)
    hour_ago_ns = time.time_ns() - 3_600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: hour_ago_ns)
    run("handback", "--to", tmp_path / "back")
    with closing(RocksDbLog(tmp_path / "data", cluster_id=None)) as log:
        times = [decode_event(offset, value).at_ms for offset, value in log.read()]
    assert times[-1] == times[0], "event times must not decrease if the clock was set back"


async def _served_of(data: Path, log: RocksDbLog) -> None:
    """Check and open a folder as `serve` does before its start."""
    settings = load_settings(overrides=["node.id=3000"])
    at = Endpoint("PLAINTEXT", "127.0.0.1", 9093)
    member = Member(data, settings, None, "PLAINTEXT", log, at, AsyncMock())
    try:
        member.brokers(log, None)
    finally:
        await member.stop()


def _handed_back_to(data: Path) -> str:
    """The folder that a data folder was handed back to; empty if it may be served."""
    with closing(RocksDbLog(data, cluster_id=None)) as log:
        quorum = TopicStore(log).durable_cluster.quorum
        assert quorum is not None, "the folder has no adopted quorum"
        refused = (
            pytest.raises(SettingsError, match="it would be a second controller") if quorum.handed_back_to else None
        )
        with refused or nullcontext():
            asyncio.run(_served_of(data, log))
    return quorum.handed_back_to


def test_the_longest_of_several_copies_is_adopted(tmp_path: Path, run: Run) -> None:
    log = kafkas_log()
    behind = write(tmp_path / "one", log.data(), node_id=1)
    ahead = write(tmp_path / "two", log.data() + batch_after(log, encode_record(ACL)), node_id=2)
    out = run("restore", "--from", behind, "--from", ahead)
    assert f"the metadata log ends at offset {log.end + 1}, epoch 1" in out
    assert "--set node.id=3000" in out
