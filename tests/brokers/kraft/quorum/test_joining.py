"""What is requested of a running quorum, where a response gets lost while the lead changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.apis.cluster import with_api_versions
from controller.brokers.cluster.security import Security
from controller.brokers.kraft.quorum.client import QuorumClient, QuorumError
from controller.brokers.kraft.quorum.raft.role import topics_of
from controller.brokers.kraft.quorum.raft.voters import Voter
from controller.kafka.handling import Answer, ApiHandler, Handler, RequestContext
from controller.kafka.messages import APIS, ApiKey
from controller.kafka.messages import quorum as quorum_messages
from controller.kafka.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FinalizedFeatureKey,
)
from controller.kafka.messages.message import Listener
from controller.kafka.messages.quorum import AddRaftVoterRequest, AddRaftVoterResponse
from controller.machine.errors import ErrorCode
from controller.serving.quorum_member import Joining, Member
from controller.settings.load import load_settings
from tests.kafka.server.listener import serving

LEADER, OURS = 1, 9


class Leader:
    """Makes a voter of whoever wants to be one, and loses the first response to that."""

    def __init__(self) -> None:
        self.voters: dict[int, bytes] = {}
        self.port = 0

    @property
    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_CLUSTER: self._cluster,
            ApiKey.DESCRIBE_QUORUM: self._quorum,
            ApiKey.ADD_RAFT_VOTER: self._add,
        }

    async def _cluster(self, context: RequestContext, request: DescribeClusterRequest) -> Answer:
        broker = DescribeClusterBroker(broker_id=LEADER, host="127.0.0.1", port=self.port)
        return DescribeClusterResponse(cluster_id="c", controller_id=LEADER, brokers=(broker,))

    async def _quorum(self, context: RequestContext, request: quorum_messages.DescribeQuorumRequest) -> Answer:
        voters = tuple(
            quorum_messages.QuorumReplica(replica_id=one, replica_directory_id=at) for one, at in self.voters.items()
        )
        part = quorum_messages.DescribeQuorumPartitionResult(leader_id=LEADER, current_voters=voters)
        return quorum_messages.DescribeQuorumResponse(topics=topics_of(part))

    async def _add(self, context: RequestContext, request: AddRaftVoterRequest) -> Answer:
        if request.voter_id in self.voters:
            return AddRaftVoterResponse(error_code=int(ErrorCode.DUPLICATE_VOTER))
        self.voters[request.voter_id] = request.voter_directory_id
        return AddRaftVoterResponse(error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER))


async def test_the_only_voter_does_not_leave() -> None:
    only = quorum_messages.QuorumReplica(replica_id=LEADER, replica_directory_id=b"d" * 16)
    quorum = quorum_messages.DescribeQuorumPartitionResult(leader_id=LEADER, current_voters=(only,))
    client = QuorumClient((("127.0.0.1", 1),), Security())
    with pytest.raises(QuorumError, match="node 1 is the only voter: without it there is no quorum"):
        await client.remove("c", quorum, only)
    client.close()


@pytest.mark.parametrize("is_same", [True, False])
async def test_a_voter_that_was_added_without_a_response_is_a_voter(is_same: bool) -> None:
    leader = Leader()
    async with serving(leader.handlers) as server:
        leader.port = server.port
        client = QuorumClient((("127.0.0.1", server.port),), Security())
        if not is_same:
            leader.voters[OURS] = b"o" * 16
        voter = Voter(OURS, b"d" * 16, (Listener(name="CONTROLLER", host="127.0.0.1", port=9093),))
        if is_same:
            await client.add("c", voter)
        else:
            with pytest.raises(QuorumError, match="DUPLICATE_VOTER"):
                await client.add("c", voter)
        client.close()


@pytest.mark.parametrize(
    ("level", "why"), [(34, "level 34, which is not supported; allowed: 17 to 33"), (16, "metadata.version is 16")]
)
async def test_a_cluster_with_an_unsupported_feature_level_is_not_joined(tmp_path: Path, level: int, why: str) -> None:
    leader = Leader()
    async with serving({}) as server:
        leader.port = server.port
        finalized = FinalizedFeatureKey(name="metadata.version", min_version_level=level, max_version_level=level)
        spoken: dict[int, ApiHandler] = {
            key: ApiHandler(0, APIS[key].max_version, handle) for key, handle in leader.handlers.items()
        }
        server.handlers = with_api_versions(spoken, finalized=lambda: (1, (finalized,)))
        joining = Joining((("127.0.0.1", server.port),), Security())
        settings = load_settings(overrides=["node.id=9"])
        member = Member(tmp_path / "voter", settings, joining, "PLAINTEXT")
        with pytest.raises(QuorumError, match=why):
            await member.find()
        await member.stop()
    assert not (tmp_path / "voter").exists(), "nothing was made"
    assert leader.voters == {}
