"""A voter checks data of a lying leader before it writes any: it continues, and its folder can be opened again."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.kafka.messages import ZERO_UUID, Message, quorum
from controller.kafka.messages import records as kinds
from controller.kafka.messages.cluster import Listener
from controller.quorum.files import QuorumFiles
from controller.quorum.log.batches import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    Pair,
    control_record,
    decode_batches,
    encode_batch,
)
from controller.quorum.raft.consensus import Consensus
from controller.quorum.raft.effects import CommittedLost, Options, Send, StartFlush, Warned
from controller.quorum.raft.replica import LeaderAndEpoch
from controller.quorum.raft.role import leader_response, topics_of
from controller.quorum.raft.voters import Voter, VoterSet, leader_change_record
from tests.quorum.logs import opened, snapshot, some
from tests.quorum.worlds import begin_request, end_request
from tests.support.metadata_files import fetch_of

ME, LIAR, THIRD = 1, 2, 3
VOTERS = tuple(
    Voter(each, ZERO_UUID, (Listener(name="CONTROLLER", host="node", port=each),)) for each in (ME, LIAR, THIRD)
)
INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1
STEPS, SEEDS = 150, 12


def control(kind: int, value: bytes) -> Pair:
    return struct.pack(">hh", 0, kind), value


def voters(*ids: int, places: int = 1) -> Pair:
    place = kinds.VoterEndpoint(name="CONTROLLER", host="node", port=1)
    each = tuple(kinds.Voter(voter_id=node_id, endpoints=(place,) * places) for node_id in ids)
    return control_record(KRAFT_VOTERS, kinds.VotersRecord(voters=each))


IMPOSSIBLE: dict[str, Pair] = {
    "no key": (None, b""),
    "a short key": (b"\0\0\2", b""),
    "voters of two bytes": control(KRAFT_VOTERS, b"\0\0"),
    "no voters": voters(),
    "a negative voter": voters(-1),
    "a voter twice": voters(2, 2),
    "a voter without a listener": voters(2, places=0),
    "a negative leader": control_record(LEADER_CHANGE, kinds.LeaderChangeMessage(leader_id=-7)),
    "an empty leader change": control(LEADER_CHANGE, b""),
    "half a version": control(KRAFT_VERSION, b"\0"),
    "a negative version": control_record(KRAFT_VERSION, kinds.KRaftVersionRecord(k_raft_version=-1)),
}


class Follower:
    """A voter with its log in files that follows the liar."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.folder, self.now = folder, 100.0
        self._chance = random.Random(seed).random
        self.log: QuorumFiles
        self.core: Consensus
        self.sent: list[Send] = []
        self.warned: list[str] = []
        self.open()

    def open(self) -> None:
        """Start the voter with the log in its folder."""
        self.log = opened(self.folder)
        options = Options(cluster_id="cluster", me=VOTERS[0], static=VOTERS)
        self.core = Consensus(self.log, options, self._chance)
        self.sent = []
        self.does(lambda: self.core.start(self.now, 0))

    def does(self, what: Callable[[], None]) -> None:
        what()
        for effect in self.core.take_effects():
            match effect:
                case Send():
                    self.sent.append(effect)
                case StartFlush():
                    self.log.flush()
                    self.does(lambda: self.core.flushed(self.now))
                case Warned(message=text):
                    self.warned.append(text)

    def request(self, request: Message) -> None:
        self.does(lambda: self.core.request(self.now, "x", request))

    def begin(self) -> None:
        """Make the liar the leader of the next epoch."""
        self.request(begin_request(LIAR, self.core.epoch + 1))
        assert self.core.leader_id == LIAR

    def reply(self, liar: Liar) -> None:
        """Respond to the last sent request with the liar's random response."""
        sent = self.sent[-1]
        response = liar.response(sent.request, self.core)
        self.does(lambda: self.core.reply(self.now, sent.token, response))

    def respond(self, part: Any) -> None:
        """Respond to the last sent request with `part`."""
        self.does(lambda: self.core.reply(self.now, self.sent[-1].token, response_of(part, self.core.epoch)))


def response_of(part: Any, epoch: int, leader_id: int = LIAR) -> Message:
    is_snapshot = isinstance(part, quorum.ResponsePartitionSnapshot)
    kind: type[Message] = quorum.FetchSnapshotResponse if is_snapshot else quorum.FetchResponse
    return leader_response(kind, LeaderAndEpoch(leader_id, epoch), part)


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    one = Follower(tmp_path)
    one.begin()
    yield one
    one.log.close()


@pytest.mark.parametrize("pair", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_leader_that_sends_an_invalid_control_record_is_abandoned(follower: Follower, pair: Pair) -> None:
    epoch = follower.core.epoch
    data = encode_batch(0, epoch, 0, [(b"\0\0\0\2", b"\0\0\0\0\0\2\1\1\0")], is_control=True)
    follower.respond(quorum.FetchPartitionData(records=data + encode_batch(1, epoch, 0, [pair], is_control=True)))
    assert follower.log.end == 0
    assert f"leader {LIAR} sent invalid data: " in follower.warned[0]
    follower.now += 5
    follower.does(lambda: follower.core.tick(follower.now))
    assert follower.core.leader_id != LIAR


@pytest.mark.parametrize(
    "part",
    [
        quorum.FetchPartitionData(records=some(0, epoch=9)),
        quorum.FetchPartitionData(records=some(0, epoch=INT32)),
        quorum.FetchPartitionData(snapshot_id=quorum.FetchSnapshotId(end_offset=100, epoch=-7)),
        quorum.FetchPartitionData(snapshot_id=quorum.FetchSnapshotId(end_offset=100, epoch=9)),
        quorum.FetchPartitionData(snapshot_id=quorum.FetchSnapshotId(end_offset=INT64, epoch=1)),
        quorum.FetchPartitionData(diverging_epoch=quorum.EpochEndOffset(epoch=0, end_offset=-5)),
    ],
    ids=["a later epoch", "the last epoch", "epoch -7", "a later snapshot", "the last offset", "a negative end"],
)
def test_invalid_fetch_responses_are_rejected(follower: Follower, part: quorum.FetchPartitionData) -> None:
    follower.respond(part)
    assert f"leader {LIAR} sent invalid data: " in follower.warned[0]
    assert (follower.log.end, list(follower.folder.rglob("*.checkpoint*"))) == (0, [])


def test_a_snapshot_with_an_invalid_control_record_is_rejected(follower: Follower) -> None:
    follower.respond(quorum.FetchPartitionData(snapshot_id=quorum.FetchSnapshotId(end_offset=100, epoch=1)))
    whole = snapshot(1)
    batches = [each.data for each in decode_batches(whole)]
    broken = encode_batch(3, 1, 0, [voters()], is_control=True)
    foot = encode_batch(4, 1, 0, [next(decode_batches(batches[-1])).records[0]], is_control=True)
    data = batches[0] + broken + foot
    follower.respond(quorum.ResponsePartitionSnapshot(size=len(data), position=0, unaligned_records=data))
    assert "invalid control record at offset 3: every voter" in follower.warned[0]
    assert (follower.log.end, follower.log.snapshot) == (0, None)


class Liar:
    """Creates requests and responses of which some fields are wrong."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, true: int) -> int:
        odd = (true, true, true, -1, 0, -7, true + 1, true - 1, INT32, INT32 - 1, 1 << 30)
        return self._random.choice(odd)

    def mutated(self, true: bytes) -> bytes:
        match self._random.randrange(6):
            case 0:
                return true[: self._random.randrange(len(true) + 1)]
            case 1:
                at = self._random.randrange(len(true) + 1)
                return true[:at] + self._random.randbytes(3) + true[at + 3 :]
            case 2:
                return self._random.randbytes(self._random.randrange(200))
            case _:
                return true

    def records(self, base: int, epoch: int) -> bytes:
        pairs = [*IMPOSSIBLE.values(), voters(2), voters(1, 2, 3), (None, self._random.randbytes(9)), (None, b"")]
        some_pairs = self._random.choices(pairs, k=self._random.randrange(1, 4))
        is_control = self._random.random() < 0.6
        if is_control and self._random.random() < 0.6:
            some_pairs = [leader_change_record(LIAR, VoterSet.of(VOTERS), ()), voters(1, 2, 3)]
        batch = encode_batch(
            max(self.number(base), 0), max(self.number(epoch), 0), 0, some_pairs, is_control=is_control
        )
        return self.mutated(batch)

    def response(self, sent: Message, core: Consensus) -> Message | None:
        epoch, chance = self.number(core.epoch), self._random.random()
        if chance < 0.05:
            return None
        if isinstance(sent, quorum.VoteRequest):
            part = quorum.QuorumPartitionResult(
                leader_id=self.number(LIAR), leader_epoch=epoch, vote_granted=chance < 0.3
            )
            return quorum.VoteResponse(topics=topics_of(part))
        if isinstance(sent, quorum.FetchSnapshotRequest):
            position = sent.topics[0].partitions[0].position
            data = self.mutated(snapshot(1)) if chance < 0.5 else snapshot(1)
            piece = quorum.ResponsePartitionSnapshot(
                error_code=self._random.choice((0, 0, 0, 98)),
                size=self._random.choice((len(data), len(data), -1, INT64)),
                position=self._random.choice((position, position, -1, INT64)),
                unaligned_records=data[position:],
            )
            return response_of(piece, epoch, self.number(LIAR))
        if isinstance(sent, quorum.FetchRequest):
            match self._random.randrange(8):
                case 0:
                    wanted = quorum.FetchSnapshotId(
                        end_offset=self.number(core.log.end + 50), epoch=self.number(core.epoch)
                    )
                    answer = quorum.FetchPartitionData(snapshot_id=wanted)
                case 1:
                    ends = quorum.EpochEndOffset(
                        epoch=self.number(core.log.last_epoch), end_offset=self.number(core.log.end)
                    )
                    answer = quorum.FetchPartitionData(diverging_epoch=ends)
                case 2:
                    answer = quorum.FetchPartitionData(error_code=self._random.choice((74, 75, 6, 42, -1)))
                case _:
                    watermark = self._random.choice((-1, -9, 0, core.log.end, INT64))
                    answer = quorum.FetchPartitionData(
                        high_watermark=watermark, records=self.records(core.log.end, core.epoch)
                    )
            return response_of(answer, epoch, self.number(LIAR))
        return None

    def request(self, core: Consensus) -> Message:
        epoch, node_id = self.number(core.epoch + 1), self.number(LIAR)
        match self._random.randrange(4):
            case 0:
                request = begin_request(node_id, epoch)
                endpoints = request.leader_endpoints * self._random.randrange(2)
                return msgspec.structs.replace(request, leader_endpoints=endpoints)
            case 1:
                return end_request(node_id, epoch, *(self.number(ME),) * 2)
            case 2:
                fetched = fetch_of(self.number(core.log.end), epoch, self.number(1), replica=node_id)
                return msgspec.structs.replace(fetched, max_bytes=self.number(100))
            case _:
                vote = quorum.VotePartition(
                    replica_epoch=epoch,
                    replica_id=node_id,
                    last_offset_epoch=self.number(core.log.last_epoch),
                    last_offset=self.number(core.log.end),
                    pre_vote=self._random.random() < 0.5,
                )
                return quorum.VoteRequest(topics=topics_of(vote))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_voter_survives_an_invalid_leader_and_restarts(tmp_path: Path, seed: int) -> None:
    liar, follower = Liar(seed), Follower(tmp_path, seed)
    chance = random.Random(seed)
    for _ in range(STEPS):
        follower.now += chance.choice((0.01, 0.1, 1.0, 3.0))
        try:
            match chance.randrange(6):
                case 0:
                    follower.request(liar.request(follower.core))
                case 1:
                    follower.does(lambda: follower.core.tick(follower.now))
                case 2 if follower.core.role.value != "follower":
                    follower.begin()
                case _ if follower.sent:
                    follower.reply(liar)
        except CommittedLost:  # documented: the voter ends
            follower.log.close()
            follower.open()
        if chance.random() < 0.05:
            follower.log.close()
            follower.open()
    follower.log.close()
    follower.open()
    follower.log.close()
