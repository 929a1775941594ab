"""What a voter says to the others: its answers, with who leads and in which epoch in each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from controller.brokers.kraft.log.batches import METADATA_TOPIC, METADATA_TOPIC_ID
from controller.brokers.kraft.quorum.raft.voters import Place
from controller.kafka.messages import quorum
from controller.kafka.messages.message import LeaderIdAndEpoch, NodeEndpoint
from controller.machine.errors import ErrorCode

if TYPE_CHECKING:
    from controller.brokers.kraft.quorum.raft.core import Quorum

OK: Final = int(ErrorCode.NONE)


class Said(msgspec.Struct, frozen=True):
    """Who leads, in which epoch, as every response says it."""

    leader_id: int
    epoch: int
    place: Place | None


P = TypeVar("P")


def the_partition(topics: tuple[Any, ...]) -> Any | None:
    """The one partition of the metadata log, in a request or a response; None if it holds anything else."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    return topics[0].partitions[0]


def vote_response(said: Said, code: int, granted: bool = False) -> quorum.VoteResponse:
    """To Vote."""
    part = quorum.QuorumPartitionResult(
        error_code=code, leader_id=said.leader_id, leader_epoch=said.epoch, vote_granted=granted
    )
    topic = quorum.QuorumTopicResult(topic_name=METADATA_TOPIC, partitions=(part,))
    return quorum.VoteResponse(topics=(topic,), node_endpoints=_nodes(NodeEndpoint, said))


def begin_response(said: Said, code: int) -> quorum.BeginQuorumEpochResponse:
    """To BeginQuorumEpoch."""
    part = quorum.QuorumPartitionResult(error_code=code, leader_id=said.leader_id, leader_epoch=said.epoch)
    topic = quorum.QuorumTopicResult(topic_name=METADATA_TOPIC, partitions=(part,))
    return quorum.BeginQuorumEpochResponse(topics=(topic,), node_endpoints=_nodes(NodeEndpoint, said))


def end_response(said: Said, code: int) -> quorum.EndQuorumEpochResponse:
    """To EndQuorumEpoch."""
    part = quorum.QuorumPartitionResult(error_code=code, leader_id=said.leader_id, leader_epoch=said.epoch)
    topic = quorum.QuorumTopicResult(topic_name=METADATA_TOPIC, partitions=(part,))
    return quorum.EndQuorumEpochResponse(topics=(topic,), node_endpoints=_nodes(NodeEndpoint, said))


def fetch_response(said: Said, part: quorum.FetchPartitionData) -> quorum.FetchResponse:
    """To Fetch."""
    leader = LeaderIdAndEpoch(leader_id=said.leader_id, leader_epoch=said.epoch)
    part = msgspec.structs.replace(part, records=part.records or b"", current_leader=leader)
    topic = quorum.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(part,))
    return quorum.FetchResponse(responses=(topic,), node_endpoints=_nodes(NodeEndpoint, said))


def snapshot_response(said: Said, part: quorum.ResponsePartitionSnapshot) -> quorum.FetchSnapshotResponse:
    """To FetchSnapshot."""
    leader = LeaderIdAndEpoch(leader_id=said.leader_id, leader_epoch=said.epoch)
    part = msgspec.structs.replace(part, current_leader=leader)
    topic = quorum.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=(part,))
    return quorum.FetchSnapshotResponse(topics=(topic,), node_endpoints=_nodes(NodeEndpoint, said))


def _nodes(kind: type[P], said: Said) -> tuple[P, ...]:
    if said.leader_id < 0 or said.place is None:
        return ()
    host, port = said.place
    return (kind(node_id=said.leader_id, host=host, port=port),)  # type: ignore[call-arg]


def learn_from(core: Quorum, now: float, response: Any, above: int = -1) -> Any | None:
    """Who leads, from any response between controllers, in an epoch above that; gives its partition, None where there
    is none."""
    part = the_partition(response.responses if isinstance(response, quorum.FetchResponse) else response.topics)
    if response.error_code or part is None:
        return None
    leader = part.current_leader if hasattr(part, "current_leader") else part
    if leader.leader_epoch > above:
        core.learn(now, said_of(core, leader.leader_id, leader.leader_epoch, response.node_endpoints))
    return part


def said_of(core: Quorum, leader_id: int, epoch: int, nodes: Iterable[Any]) -> Said:
    """Who leads, and where: from the endpoints in the response, else from the voters."""
    for each in nodes:
        if each.node_id == leader_id:
            return Said(leader_id, epoch, (each.host, each.port))
    voter = core.voters.by_id.get(leader_id)
    return Said(leader_id, epoch, core.place_of(voter) if voter is not None else None)
