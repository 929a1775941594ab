"""The client of a running quorum: join and leave, reads of its metadata log, and lost responses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.apis.cluster import with_api_versions
from controller.brokers.kraft.membership import controller_record
from controller.cli.work import quorum as cli_quorum
from controller.kafka.connections import Security
from controller.kafka.handling import Answer, ApiHandler, Handler, RequestContext
from controller.kafka.messages import APIS, ZERO_UUID, ApiKey, quorum
from controller.kafka.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    Feature,
    FinalizedFeatureKey,
    Listener,
)
from controller.kafka.messages.records import RegisterControllerRecord
from controller.machine.errors import ErrorCode
from controller.quorum import client as client_module
from controller.quorum.client import QuorumClient, QuorumError
from controller.quorum.features import without_limits
from controller.quorum.log.batches import Pair, encode_batch
from controller.quorum.log.metadata_codec import encode_record
from controller.quorum.raft.role import topics_of
from controller.quorum.raft.voters import Voter
from controller.serving.quorum_member import cluster_to_join
from controller.settings.load import load_settings
from tests.kafka.server.listener import serving
from tests.quorum.logs import snapshot
from tests.support.ports import free_ports

LEADER, LEFT, FREED, NEWER, NEW = 1, 7, 8, 9, 10
NOW_MS = 1_000_000


def registered(*node_ids: int) -> list[Pair]:
    features = (Feature(name="metadata.version", min_supported_version=17, max_supported_version=30),)
    return [(None, encode_record(RegisterControllerRecord(controller_id=each, features=features))) for each in node_ids]


class Leader:
    """A leader whose log has a snapshot and two later batches; it sends one batch per fetch response."""

    def __init__(self) -> None:
        self.port = 0
        self.snapshot = snapshot(3, registered(LEFT, FREED))
        free = (None, encode_record(controller_record(without_limits(FREED, ()))))
        self.batches = {100: encode_batch(100, 3, 5, [free]), 101: encode_batch(101, 4, 5, registered(NEWER))}
        self.held = 0
        """The number of fetches that get no records from the last batch's offset, although it is committed."""
        self.code = 0
        self.voters, self.observers = {LEADER: NOW_MS}, dict[int, int]()
        self.directories: dict[int, bytes] = {}
        self.asked: list[tuple[int, int]] = []
        self.missed = 0
        """The number of removals that the leader commits but does not apply."""

    @property
    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_CLUSTER: self._cluster,
            ApiKey.DESCRIBE_QUORUM: self._quorum,
            ApiKey.FETCH: self._fetch,
            ApiKey.FETCH_SNAPSHOT: self._fetch_snapshot,
            ApiKey.ADD_RAFT_VOTER: self._add,
            ApiKey.REMOVE_RAFT_VOTER: self._remove,
        }

    async def _cluster(self, context: RequestContext, request: DescribeClusterRequest) -> Answer:
        broker = DescribeClusterBroker(broker_id=LEADER, host="127.0.0.1", port=self.port)
        return DescribeClusterResponse(cluster_id="c", controller_id=LEADER, brokers=(broker,))

    async def _quorum(self, context: RequestContext, request: quorum.DescribeQuorumRequest) -> Answer:
        def states(of: dict[int, int]) -> tuple[quorum.QuorumReplica, ...]:
            return tuple(
                quorum.QuorumReplica(
                    replica_id=one, replica_directory_id=self.directories.get(one, ZERO_UUID), last_fetch_timestamp=at
                )
                for one, at in of.items()
            )

        part = quorum.DescribeQuorumPartitionResult(
            leader_id=LEADER,
            leader_epoch=4,
            high_watermark=102,
            current_voters=states(self.voters),
            observers=states(self.observers),
        )
        return quorum.DescribeQuorumResponse(topics=topics_of(part))

    async def _fetch(self, context: RequestContext, request: quorum.FetchRequest) -> Answer:
        wanted = request.topics[0].partitions[0]
        self.asked.append((wanted.fetch_offset, wanted.last_fetched_epoch))
        part = quorum.FetchPartitionData(error_code=self.code, records=self.batches.get(wanted.fetch_offset))
        if wanted.fetch_offset == 101 and self.held:
            self.held -= 1
            part = quorum.FetchPartitionData(high_watermark=102, records=b"")
        if wanted.fetch_offset < 100:
            part = quorum.FetchPartitionData(snapshot_id=quorum.FetchSnapshotId(end_offset=100, epoch=3))
        return quorum.FetchResponse(responses=topics_of(part))

    async def _add(self, context: RequestContext, request: quorum.AddRaftVoterRequest) -> Answer:
        """Add a voter, and respond as if leadership was lost meanwhile."""
        if request.voter_id in self.voters:
            return quorum.AddRaftVoterResponse(error_code=int(ErrorCode.DUPLICATE_VOTER))
        self.voters[request.voter_id] = NOW_MS
        self.directories[request.voter_id] = request.voter_directory_id
        return quorum.AddRaftVoterResponse(error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    async def _remove(self, context: RequestContext, request: quorum.RemoveRaftVoterRequest) -> Answer:
        self.missed -= 1
        if self.missed < 0:
            del self.voters[request.voter_id]
        return quorum.RemoveRaftVoterResponse()

    async def _fetch_snapshot(self, context: RequestContext, request: quorum.FetchSnapshotRequest) -> Answer:
        at = request.topics[0].partitions[0].position
        piece = self.snapshot[at : at + 50]
        part = quorum.ResponsePartitionSnapshot(size=len(self.snapshot), position=at, unaligned_records=piece)
        return quorum.FetchSnapshotResponse(topics=topics_of(part))


@asynccontextmanager
async def asked() -> AsyncIterator[tuple[Leader, QuorumClient]]:
    leader = Leader()
    async with serving(leader.handlers) as server:
        leader.port = server.port
        client = QuorumClient((("127.0.0.1", server.port),), Security())
        try:
            yield leader, client
        finally:
            client.close()


async def test_registrations_are_read_from_a_snapshot_in_parts_and_later_batches() -> None:
    async with asked() as (leader, client):
        found = await client_module.all_limits(client)
        assert leader.asked == [(0, 0), (100, 3), (101, 3)]
    assert found == {LEFT: {"metadata.version": 30}, NEWER: {"metadata.version": 30}}


async def test_a_read_waits_for_committed_records_that_the_leader_holds_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "RETRY_S", 0.01)
    async with asked() as (leader, client):
        leader.held = 2
        assert NEWER in await client_module.all_limits(client)
        assert leader.asked == [(0, 0), (100, 3), (101, 3), (101, 3), (101, 3)]


@pytest.mark.parametrize(
    ("records", "code", "why"),
    [
        (b"", 0, "node 1 does not send its metadata log from offset 100 on"),
        (encode_batch(100, 3, 5, registered(NEWER))[:-1] + b"x", 0, "the leader's metadata log is malformed"),
        (b"", int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "CLUSTER_AUTHORIZATION_FAILED"),
    ],
    ids=["no batch", "damaged", "not permitted"],
)
async def test_an_unreadable_metadata_log_is_an_error(
    records: bytes, code: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "READ_S", 1.0)
    async with asked() as (leader, client):
        leader.batches[100], leader.code = records, code
        with pytest.raises(QuorumError, match=why):
            await client_module.all_limits(client)


async def test_the_features_of_a_leader_that_does_not_respond_are_an_error() -> None:
    """Otherwise a registration without limits would block upgrades of features that only the leader knows."""
    (nobody,) = free_ports(1)
    client = QuorumClient((), Security())
    with pytest.raises(QuorumError, match=f"127.0.0.1:{nobody} cannot be reached"):
        await client.features(("127.0.0.1", nobody))
    client.close()


async def test_leave_fails_if_the_node_votes_again_or_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_quorum, "POLL_S", 0.01)
    monkeypatch.setattr(cli_quorum, "WATCH_S", 0.1)
    for module in (client_module, cli_quorum):
        monkeypatch.setattr(module, "SILENT_MS", 100)
    async with asked() as (leader, client):
        await cli_quorum._wait_until_stopped(client, LEFT)
        leader.observers[LEFT] = NOW_MS - 100
        with pytest.raises(QuorumError, match="node 7 does not vote, but it runs"):
            await cli_quorum._wait_until_stopped(client, LEFT)
        leader.observers[LEFT] = NOW_MS - 101
        await cli_quorum._wait_until_stopped(client, LEFT)
        leader.voters[LEFT] = NOW_MS
        with pytest.raises(QuorumError, match="node 7 votes again"):
            await cli_quorum._wait_until_stopped(client, LEFT)


async def test_leave_repeats_a_removal_that_the_leader_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kafka controller loses it after a truncation (`KRaftControlRecordStateMachine.truncateNewEntries`)."""
    monkeypatch.setattr(client_module, "RETRY_S", 0.01)
    async with asked() as (leader, client):
        leader.voters |= {LEFT: NOW_MS, FREED: NOW_MS}
        found = await client.describe()
        left, freed = (each for each in found.current_voters if each.replica_id != LEADER)
        leader.missed = 2
        await client.remove("c", found, left)
        assert list(leader.voters) == [LEADER, FREED]
        leader.missed = 1_000
        with pytest.raises(QuorumError, match="node 1 leads, but does not apply changes of the voter set: restart it"):
            await client.remove("c", found, freed)


async def test_leave_of_the_only_voter_is_rejected() -> None:
    async with asked() as (_, client):
        found = await client.describe()
        with pytest.raises(QuorumError, match="node 1 is the only voter: without it there is no quorum"):
            await client.remove("c", found, found.current_voters[0])


@pytest.mark.parametrize("is_same", [True, False])
async def test_join_accepts_a_voter_added_without_a_response(is_same: bool) -> None:
    async with asked() as (leader, client):
        voter = Voter(NEW, b"d" * 16, (Listener(name="CONTROLLER", host="127.0.0.1", port=9093),))
        if is_same:
            await client.add("c", voter)
            assert leader.directories == {NEW: voter.directory}
        else:
            leader.voters[NEW], leader.directories[NEW] = NOW_MS, b"o" * 16
            with pytest.raises(QuorumError, match="DUPLICATE_VOTER"):
                await client.add("c", voter)


async def test_join_rejects_an_unsupported_feature_level(tmp_path: Path) -> None:
    leader = Leader()
    finalized = FinalizedFeatureKey(name="metadata.version", min_version_level=34, max_version_level=34)
    async with serving({}) as server:
        leader.port = server.port
        spoken: dict[int, ApiHandler] = {
            key: ApiHandler(0, APIS[key].max_version, handle) for key, handle in leader.handlers.items()
        }
        server.handlers = with_api_versions(spoken, finalized=lambda: (1, (finalized,)))
        joining = QuorumClient((("127.0.0.1", server.port),), Security())
        settings = load_settings(overrides=["node.id=9"])
        with pytest.raises(QuorumError, match="level 34, which is not supported; allowed: 17 to 33"):
            await cluster_to_join(joining, tmp_path / "voter", settings)
        joining.close()
    assert not (tmp_path / "voter").exists(), "a rejected join must not create the folder"
    assert list(leader.voters) == [LEADER]
