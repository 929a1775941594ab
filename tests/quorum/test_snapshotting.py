"""A voter's own snapshots: they equal the log, limit its size, and block nothing else."""

import asyncio
import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from controller.kafka.messages import records as kinds
from controller.kafka.messages.cluster import Listener
from controller.quorum import snapshotting
from controller.quorum.files import QuorumFiles
from controller.quorum.folder import PARTITION
from controller.quorum.log.batches import Pair, decode_batches, encode_batch
from controller.quorum.log.image import MetadataImage
from controller.quorum.log.metadata_codec import encode_record
from controller.quorum.log_files import FilePart
from controller.quorum.raft.consensus import Consensus
from controller.quorum.raft.effects import Options
from controller.quorum.raft.log import SnapshotId
from controller.quorum.raft.voters import Voter, VoterSet, kraft_version_record, voters_record
from controller.quorum.snapshotting import Snapshotting
from tests.brokers.kraft.logs import access_history, log_of, snapshot_bytes
from tests.kafka.server.listener import until
from tests.quorum.logs import opened, snapshot

BATCHES = log_of(access_history(), 1).written
NEWER = (None, b"\x01\xff\x01\x00")
"""A record of a type that no release has."""
NO_OP = (None, encode_record(kinds.NoOpRecord()))


class Rig:
    """A voter's log in a folder, its consensus, and its snapshots."""

    def __init__(self, folder: Path, every_bytes: int = 1, every_s: float = 0.0) -> None:
        self.folder = folder
        self.log = opened(folder)
        me = Voter(3009, b"d" * 16, (Listener(name="CONTROLLER", host="127.0.0.1", port=1),))
        self.quorum = Consensus(self.log, Options(cluster_id="c", me=me), random.Random(1).random)
        self.applied: int | None = None
        self.now = 100.0
        self.snapshots = Snapshotting(self.quorum, self.log, every_bytes, every_s, lambda: self.now, self._applied)

    async def _applied(self) -> int:
        return self.log.end if self.applied is None else self.applied

    def commit(self, *batches: bytes) -> int:
        for data in batches:
            self.quorum.append_batches(data)
        self.log.flush()
        self.quorum.commit(self.log.end)
        return self.log.end

    def commit_records(self, *records: Pair) -> int:
        return self.commit(encode_batch(self.log.end, max(1, self.log.last_epoch), 7, records))

    def names(self) -> list[str]:
        return sorted(each.name for each in (self.folder / PARTITION).glob("*.checkpoint*"))

    def newest(self) -> bytes:
        assert self.log.snapshot is not None
        read = self.log.read_snapshot(self.log.snapshot, 0, 1 << 30)
        assert read is not None
        return read[1]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.log.close()


def folded(data: bytes) -> MetadataImage:
    image = MetadataImage()
    image.fold(decode_batches(data))
    return image


async def test_a_snapshot_equals_the_log_and_has_the_voter_set(rig: Rig) -> None:
    control = [kraft_version_record(1), voters_record(VoterSet.of([rig.quorum.me]))]
    last = next(decode_batches(BATCHES[-1]))
    history = [*BATCHES, encode_batch(last.last_offset + 1, last.leader_epoch, 7, control, is_control=True)]
    for before, at in ((0, len(BATCHES) // 2), (len(BATCHES) // 2, len(history))):  # then also from a snapshot
        end = rig.commit(*history[before:at])
        assert await rig.snapshots.take()
        whole = folded(b"".join(history[:at]))
        epoch = rig.log.last_epoch
        assert rig.log.snapshot == SnapshotId(end, epoch)
        assert rig.newest() == snapshot_bytes(whole, epoch)
        assert list(folded(rig.newest()).records()) == list(whole.records())
    shown = dict(folded(rig.newest()).quorum.values())
    assert list(shown.items()) == control
    assert rig.quorum.voters == VoterSet.of([rig.quorum.me])
    assert rig.quorum.history.kraft_version == Rig(rig.folder).quorum.history.kraft_version == 1


async def test_a_snapshot_has_only_applied_records(rig: Rig) -> None:
    """A snapshot has no events, so it must not replace batches whose events are not durable in the event log."""
    middle = rig.commit(*BATCHES[:10])
    rig.commit(*BATCHES[10:])
    rig.applied = middle
    assert await rig.snapshots.take()
    assert rig.log.snapshot == SnapshotId(middle, 1)
    assert rig.newest() == snapshot_bytes(folded(b"".join(BATCHES[:10])), 1)
    rig.applied = None
    assert await rig.snapshots.take()
    assert rig.log.snapshot is not None
    assert rig.log.snapshot.end_offset == rig.log.end


async def test_a_snapshot_is_due_after_enough_bytes(tmp_path: Path) -> None:
    rig = Rig(tmp_path, every_bytes=600)
    while not rig.snapshots.is_due:
        rig.commit_records(NO_OP)
    assert 600 <= (tmp_path / PARTITION / f"{0:020d}.log").stat().st_size < 700
    assert await rig.snapshots.take()
    assert not rig.snapshots.is_due
    rig.log.close()
    again = Rig(tmp_path)
    again.commit_records(NO_OP)
    assert await again.snapshots.take(), "a restarted voter must continue from its own snapshot"
    again.log.close()


async def test_a_snapshot_is_due_after_a_time_if_records_were_committed(tmp_path: Path) -> None:
    rig = Rig(tmp_path, every_bytes=1 << 20, every_s=60)
    rig.now += 60
    assert not rig.snapshots.is_due, "a snapshot is due without a commit"
    rig.commit_records(NO_OP)
    assert rig.snapshots.is_due
    assert await rig.snapshots.take()
    rig.commit_records(NO_OP)
    rig.now += 59
    assert not rig.snapshots.is_due
    rig.now += 1
    assert rig.snapshots.is_due
    rig.snapshots._every_s = 0
    assert not rig.snapshots.is_due
    rig.log.close()


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (NEWER, "RecordMismatch: 1 records of a newer release, the first begins with 01 ff 01 00"),
        (
            (None, encode_record(kinds.RemoveTopicRecord(topic_id=b"t" * 16))),
            "RecordMismatch: .* refers to an unknown topic",
        ),
        ((None, b"\x01\x02\x00"), "MalformedRecord: .*"),
    ],
    ids=["newer", "unknown topic", "malformed"],
)
async def test_a_log_with_unsupported_records_is_retained(rig: Rig, record: Pair, why: str) -> None:
    rig.commit_records(NO_OP)
    end = rig.commit_records(record)
    before = (rig.folder / PARTITION / f"{0:020d}.log").read_bytes()
    with capture_logs() as lines:
        for _ in range(2):
            assert not await rig.snapshots.take()
    assert [(each["log_level"], each["end"]) for each in lines] == [("warning", end)], "expected exactly one warning"
    assert re.fullmatch(why, lines[0]["why"])
    assert rig.snapshots.has_unsupported_records
    assert (rig.names(), rig.log.start) == ([], 0)
    assert (rig.folder / PARTITION / f"{0:020d}.log").read_bytes() == before
    assert rig.commit_records(NO_OP) == end + 1


async def test_no_snapshot_is_taken_in_a_metadata_transaction(rig: Rig) -> None:
    rig.commit_records((None, encode_record(kinds.BeginTransactionRecord())))
    with capture_logs() as lines:
        assert not await rig.snapshots.take()
    assert (lines, rig.names(), rig.snapshots.has_unsupported_records) == ([], [], False)
    rig.commit_records((None, encode_record(kinds.EndTransactionRecord())))
    assert await rig.snapshots.take()


async def test_a_full_disk_prevents_only_the_snapshot(rig: Rig) -> None:
    end = rig.commit(*BATCHES)
    made = rig.folder / PARTITION / f"{end:020d}-{rig.log.last_epoch:010d}.checkpoint.made"
    made.symlink_to("/dev/full")
    with capture_logs() as lines:
        assert not await rig.snapshots.take()
    assert "No space left on device" in lines[0]["why"]
    assert (rig.names(), rig.snapshots.has_unsupported_records) == ([], False)
    assert rig.commit_records(NO_OP) == end + 1
    assert await rig.snapshots.take()


@pytest.mark.parametrize(("owner", "name"), [(QuorumFiles, "write_snapshot"), (FilePart, "batches")])
async def test_a_fetched_snapshot_replaces_one_in_progress(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """The snapshot is fetched before the own one is written, or before the log is read."""
    fetched, work = threading.Event(), getattr(owner, name)
    end = rig.commit(*BATCHES)

    def late(*arguments: object) -> object:
        assert fetched.wait(60)
        return work(*arguments)

    monkeypatch.setattr(owner, name, late)
    taking = asyncio.create_task(rig.snapshots.take())
    await asyncio.sleep(0)
    newer = SnapshotId(end + 10, 9)
    rig.log.begin_snapshot(newer)
    rig.log.append_snapshot(snapshot(9))
    rig.log.finish_snapshot()
    fetched.set()
    with capture_logs() as lines:
        assert await taking
    assert lines == []
    assert (rig.log.snapshot, rig.log.start, rig.log.end) == (newer, end + 10, end + 10)
    assert rig.names() == [f"{end + 10:020d}-0000000009.checkpoint"]


async def test_snapshots_are_taken_periodically_until_cancelled(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshotting, "POLL_S", 0.01)
    running = asyncio.create_task(rig.snapshots.run())
    end = rig.commit(*BATCHES)
    async with asyncio.timeout(60):
        await until(lambda: rig.log.snapshot is not None and rig.log.snapshot.end_offset == end)
    held, batches, folding = threading.Event(), FilePart.batches, threading.Event()

    def slow(part: FilePart) -> object:
        folding.set()
        assert held.wait(60)
        return batches(part)

    monkeypatch.setattr(FilePart, "batches", slow)
    rig.commit_records(NO_OP)
    async with asyncio.timeout(60):
        await until(folding.is_set)
    running.cancel()
    await asyncio.sleep(0)
    assert not running.done(), "the task ended before its thread, which still reads the log"
    held.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(rig.names()) == 1, "the cancelled snapshot was written"


async def test_a_failed_snapshot_is_repeated_with_a_growing_back_off(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()
    rig.commit_records(NEWER)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 20:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await rig.snapshots.run()
    assert [each for each in pauses if each > 1][:8] == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_batches_of_any_size_are_read_from_a_file_part(tmp_path: Path) -> None:
    log = opened(tmp_path, 1 << 30)
    sizes = (10, 3 << 20, 1 << 20, 20)
    for offset, size in enumerate(sizes):
        log.append(encode_batch(offset, 1, 7, [(None, b"r" * size)]))
    (part,) = log.since_snapshot(4)
    assert [len(each.records[0][1]) for each in part.batches()] == list(sizes)
    (part,) = log.since_snapshot(2)
    assert [each.base_offset for each in part.batches()] == [0, 1]
    log.close()
