"""The base class of the roles, their transitions, and the responses to Raft requests that all roles give alike.

A role does not replace itself: its methods return a transition or None, and `consensus` applies the transition.
`discovered` returns the one for a newer epoch or leader, `start_election` the one that begins an election.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import msgspec

from controller.kafka.messages import APIS, ZERO_UUID, Message, quorum
from controller.kafka.messages.clients import LeaderIdAndEpoch, NodeEndpoint
from controller.machine.errors import ErrorCode
from controller.quorum.log.batches import METADATA_TOPIC, METADATA_TOPIC_ID
from controller.quorum.raft.effects import Role
from controller.quorum.raft.log import NOBODY, is_plausible
from controller.quorum.raft.replica import LeaderAndEpoch, Replica
from controller.quorum.raft.voters import Address, Voter

RETRY_S: Final = 0.05
"""Seconds until the next attempt after a failed one."""
OK: Final = int(ErrorCode.NONE)
Change = quorum.AddRaftVoterRequest | quorum.RemoveRaftVoterRequest | quorum.UpdateRaftVoterRequest


# --- transitions


class ToUnattached(msgspec.Struct, frozen=True):
    """No leader of the epoch is known. In an unchanged epoch the vote is unchanged too."""

    epoch: int


class ToFollower(msgspec.Struct, frozen=True):
    """Follow a leader, whose address is known."""

    leader: LeaderAndEpoch


class ToProspective(msgspec.Struct, frozen=True):
    """Begin a pre-vote in the current epoch (KIP-996)."""


class ToCandidate(msgspec.Struct, frozen=True):
    """Vote for itself in the next epoch and request the others' votes."""


class ToLeader(msgspec.Struct, frozen=True):
    """Lead the current epoch; `granted` are the voters that elected it."""

    granted: frozenset[int]


class ToResigned(msgspec.Struct, frozen=True):
    """Stop leading the current epoch and notify the successors, the preferred one first."""

    successors: tuple[Voter, ...]


Transition = ToUnattached | ToFollower | ToProspective | ToCandidate | ToLeader | ToResigned


def discovered(replica: Replica, leader: LeaderAndEpoch) -> Transition | None:
    """The transition to a newer epoch, or to a leader of the current epoch that was unknown; None if neither is new."""
    is_new = leader.epoch > replica.epoch or (leader.epoch == replica.epoch and replica.leader_id == NOBODY)
    if not is_new or replica.is_alone or not is_plausible(leader.epoch, replica.epoch):
        return None
    is_other = leader.leader_id >= 0 and leader.leader_id != replica.me.id and leader.epoch != replica.led_epoch
    if is_other and leader.address is not None:
        return ToFollower(leader)
    return ToUnattached(leader.epoch) if leader.epoch > replica.epoch else None


def discovered_by_request(replica: Replica, request: Message) -> Transition | None:
    """The transition to the newer epoch or leader that a request names, before any role answers the request."""
    if not isinstance(request, quorum.VoteRequest | quorum.BeginQuorumEpochRequest | quorum.EndQuorumEpochRequest):
        return None
    part = the_partition(request.topics)
    if part is None or _invalid(replica, request, part):
        return None
    if isinstance(request, quorum.VoteRequest):
        is_newer = part.replica_epoch > replica.epoch and not _vote_error(replica, part)
        return ToUnattached(part.replica_epoch) if is_newer else None
    if _leader_error(replica, part):
        return None
    named = Voter(part.leader_id, ZERO_UUID, request.leader_endpoints)
    address = replica.address_of(named) if named.listeners else None
    return discovered(replica, leader_at(replica, part.leader_id, part.leader_epoch, address))


def discovered_by_response(replica: Replica, response: Any, above: int = -1) -> tuple[Any | None, Transition | None]:
    """The partition in a response of another controller, if it has one without a top-level error, and the transition
    to the leader that it names, if its epoch is greater than `above`."""
    if response is None:
        return None, None
    part = the_partition(response.responses if isinstance(response, quorum.FetchResponse) else response.topics)
    if response.error_code or part is None:
        return None, None
    leader = part.current_leader if hasattr(part, "current_leader") else part
    if leader.leader_epoch <= above:
        return part, None
    nodes = response.node_endpoints
    address = next(((each.host, each.port) for each in nodes if each.node_id == leader.leader_id), None)
    return part, discovered(replica, leader_at(replica, leader.leader_id, leader.leader_epoch, address))


def leader_at(replica: Replica, leader_id: int, epoch: int, address: Address | None) -> LeaderAndEpoch:
    """A leader with its address; if that is None, with the one in the voter set."""
    voter = replica.voters.by_id.get(leader_id)
    if address is None and voter is not None:
        address = replica.address_of(voter)
    return LeaderAndEpoch(leader_id, epoch, address)


def start_election(replica: Replica) -> Transition:
    """Begin with a pre-vote, if all other voters support it; a single voter needs none."""
    if not replica.is_electable:
        return ToUnattached(replica.epoch)
    return ToCandidate() if replica.peers_lack_pre_vote or replica.is_alone else ToProspective()


# --- the role


class RoleState:
    """The default behaviour of a role, which subclasses override."""

    kind: ClassVar[Role]
    may_vote: ClassVar[bool] = False
    """True if a replica in this role may vote for a candidate of the current epoch."""
    grants_pre_votes = True
    """True unless this replica is, or is in contact with, a leader."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    @property
    def wake(self) -> float:
        """The time at which `tick` is due."""
        raise NotImplementedError

    def enter(self, now: float) -> Transition | None:
        """Called when the role begins."""
        return None

    def exit(self, now: float) -> None:
        """Called after the replica took its next epoch, before the next role begins."""

    def tick(self, now: float) -> Transition | None:
        """Called when `wake` is due."""
        raise NotImplementedError

    def flushed(self, now: float) -> Transition | None:
        """More of the log is durable."""
        return None

    def flush_failed(self, now: float) -> Transition | None:
        """Unflushed data is about to be truncated, because the disk is full."""
        return None

    def replied(self, now: float, context: Any, response: Any) -> Transition | None:
        """The response to a request of this role; None if there is none."""
        return discovered_by_response(self._replica, response)[1]

    def voted(self, now: float) -> None:
        """This replica voted for another one."""

    def resigned(self, now: float, leader_id: int, order: Sequence[int]) -> Transition | None:
        """A leader resigned; `order` are its successors, the preferred one first."""
        return None

    def serve(self, now: float, token: Hashable, request: Any, part: Any) -> Transition | None:
        """Answer a request to the leader of the current epoch, now or later. Only the leader role implements this."""
        raise NotImplementedError

    # --- requests

    def request(self, now: float, token: Hashable, request: Any) -> Transition | None:
        """Answer a request, now or later. A newer epoch in it was already applied (`discovered_by_request`)."""
        replica = self._replica
        is_whole = isinstance(request, Change | quorum.DescribeQuorumRequest)
        part: Any = request if is_whole else the_partition(request.topics)
        code = _invalid(replica, request, part)
        if code or part is None:
            replica.respond(token, change_response(replica, type(request), code))
            return None
        match request:
            case quorum.VoteRequest():
                code = _vote_error(replica, part) or _voter_error(replica, request, part)
                granted = not code and self._grants(now, part)
                self._answer_election(token, request, code, vote_granted=granted)
            case quorum.BeginQuorumEpochRequest():
                code = _leader_error(replica, part) or _voter_error(replica, request, part)
                self._answer_election(token, request, code)
            case quorum.EndQuorumEpochRequest():
                code = _leader_error(replica, part)
                self._answer_election(token, request, code)
                if not code:
                    order = [each.candidate_id for each in part.preferred_candidates] or part.preferred_successors
                    return self.resigned(now, part.leader_id, order)
            case _:
                epoch = getattr(part, "current_leader_epoch", replica.epoch)
                code = _epoch_error(replica, epoch) or (OK if self.kind is Role.LEADER else NOT_LEADER)
                if not code:
                    return self.serve(now, token, request, part)
                replica.respond(token, error_response(replica, type(request), code))
        return None

    def _answer_election(self, token: Hashable, request: Message, code: int, *, vote_granted: bool = False) -> None:
        part = quorum.QuorumPartitionResult(error_code=code, vote_granted=vote_granted)
        replica = self._replica
        replica.respond(token, leader_response(_RESPONSES[type(request)], replica.leader_and_epoch, part))

    def _grants(self, now: float, part: quorum.VotePartition) -> bool:
        """True if a candidate gets the vote of this epoch, or a pre-vote. Its log must not be shorter than this one."""
        replica = self._replica
        if part.replica_id in replica.distrusted or replica.is_alone:
            return False
        candidate = (part.replica_id, part.replica_directory_id)
        has_all = (part.last_offset_epoch, part.last_offset) >= (replica.log.last_epoch, replica.log.end)
        if part.pre_vote:
            return has_all and self.grants_pre_votes
        if replica.voted[0] != NOBODY:
            return replica.voted == candidate
        if not has_all or not self.may_vote:
            return False
        replica.vote(candidate)
        self.voted(now)
        return True


# --- errors and responses

NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_RESPONSES: Final[dict[type[Message], Any]] = {api.request: api.response for api in APIS.values()}


_TOPIC: Final[dict[str, Any]] = {"topic": METADATA_TOPIC, "topic_id": METADATA_TOPIC_ID}
_TOPICS: Final[dict[type[Message], Callable[..., Any]]] = {
    quorum.VotePartition: partial(quorum.VoteTopic, topic_name=METADATA_TOPIC),
    quorum.BeginEpochPartition: partial(quorum.BeginEpochTopic, topic_name=METADATA_TOPIC),
    quorum.EndEpochPartition: partial(quorum.EndEpochTopic, topic_name=METADATA_TOPIC),
    quorum.QuorumPartitionResult: partial(quorum.QuorumTopicResult, topic_name=METADATA_TOPIC),
    quorum.FetchPartition: partial(quorum.FetchTopic, **_TOPIC),
    quorum.FetchPartitionData: partial(quorum.FetchableTopicResponse, **_TOPIC),
    quorum.RequestPartitionSnapshot: partial(quorum.RequestTopicSnapshot, name=METADATA_TOPIC),
    quorum.ResponsePartitionSnapshot: partial(quorum.ResponseTopicSnapshot, name=METADATA_TOPIC),
    quorum.DescribeQuorumPartition: partial(quorum.DescribeQuorumTopic, topic_name=METADATA_TOPIC),
    quorum.DescribeQuorumPartitionResult: partial(quorum.DescribeQuorumTopicResult, topic_name=METADATA_TOPIC),
}


def topics_of(part: Message) -> tuple[Any, ...]:
    """The topics of a request or response about the metadata log, with its one partition."""
    return (_TOPICS[type(part)](partitions=(part,)),)


def the_partition(topics: tuple[Any, ...]) -> Any | None:
    """The one partition of the metadata log in a request or response; None if it contains anything else."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    return topics[0].partitions[0]


def _invalid(replica: Replica, request: Any, part: Any | None) -> int:
    """The error code of a request from another cluster, or of one that is invalid in every state; OK otherwise."""
    is_valid = part is not None
    if getattr(request, "cluster_id", None) not in (None, replica.options.cluster_id):
        return int(ErrorCode.INCONSISTENT_CLUSTER_ID)
    match request:
        case quorum.BeginQuorumEpochRequest() | quorum.EndQuorumEpochRequest() if part is not None:
            is_valid = part.leader_id >= 0
        case quorum.FetchRequest() if part is not None:  # from version 13 on it has the topic's id
            topic = request.topics[0]
            is_named = topic.topic == METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID
            is_valid = is_named and part.partition == 0 and part.fetch_offset >= 0 and part.last_fetched_epoch >= 0
    return OK if is_valid else int(ErrorCode.INVALID_REQUEST)


def _vote_error(replica: Replica, part: quorum.VotePartition) -> int:
    if part.replica_epoch < replica.epoch:
        return int(ErrorCode.FENCED_LEADER_EPOCH)
    newest = part.replica_epoch if part.pre_vote else part.replica_epoch - 1
    is_log = part.last_offset >= 0 and 0 <= part.last_offset_epoch <= newest
    is_valid = part.replica_id >= 0 and is_log and is_plausible(part.replica_epoch, replica.epoch)
    return OK if is_valid else int(ErrorCode.INVALID_REQUEST)


def _leader_error(replica: Replica, part: Any) -> int:
    """The error if the node that a request names cannot lead that epoch. A single voter knows that nobody was elected
    without its vote. Other voters may lack the newest voter set, so they follow any leader, as in Kafka."""
    if part.leader_epoch < replica.epoch:
        return int(ErrorCode.FENCED_LEADER_EPOCH)
    if not is_plausible(part.leader_epoch, replica.epoch):
        return int(ErrorCode.INVALID_REQUEST)
    is_known = (part.leader_id, part.leader_epoch) == (replica.leader_id, replica.epoch)
    return int(ErrorCode.INCONSISTENT_VOTER_SET) if replica.is_alone and not is_known else OK


def _voter_error(replica: Replica, request: Any, part: Any) -> int:
    is_me = request.voter_id in (-1, replica.me.id) and part.voter_directory_id in (ZERO_UUID, replica.me.directory)
    return OK if is_me else int(ErrorCode.INVALID_VOTER_KEY)


def _epoch_error(replica: Replica, epoch: int) -> int:
    if epoch == replica.epoch:
        return OK
    is_older = epoch < replica.epoch
    return int(ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH)


def leader_response(kind: type[Message], leader: LeaderAndEpoch, part: Message) -> Message:
    """A response with this partition, which also names the leader, its epoch and its address."""
    names: dict[str, Any] = {"leader_id": leader.leader_id, "leader_epoch": leader.epoch}
    if "current_leader" in part.__struct_fields__:
        names = {"current_leader": LeaderIdAndEpoch(**names)}
    topics: dict[str, Any] = {
        "responses" if kind is quorum.FetchResponse else "topics": topics_of(msgspec.structs.replace(part, **names))
    }
    if leader.leader_id >= 0 and leader.address is not None and "node_endpoints" in kind.__struct_fields__:
        host, port = leader.address
        topics["node_endpoints"] = (NodeEndpoint(node_id=leader.leader_id, host=host, port=port),)
    response: Message = kind(**topics)
    return response


_FAILED: Final[dict[type[Message], Message]] = {
    quorum.FetchRequest: quorum.FetchPartitionData(high_watermark=-1, records=b""),
    quorum.FetchSnapshotRequest: quorum.ResponsePartitionSnapshot(),
    quorum.DescribeQuorumRequest: quorum.DescribeQuorumPartitionResult(),
}
"""The partition in the response to a failed request, which has the error."""


def error_response(replica: Replica, kind: type[Message], code: int) -> Message:
    """The response to a request that only the leader of the current epoch can serve."""
    if kind not in _FAILED:
        return change_response(replica, kind, code)
    part = msgspec.structs.replace(_FAILED[kind], error_code=code)
    return leader_response(_RESPONSES[kind], replica.leader_and_epoch, part)


def change_response(replica: Replica, kind: type[Message], code: int, message: str | None = None) -> Message:
    """The response to a change of the voter set; without a message also to any request that is invalid."""
    more: dict[str, Any] = {} if message is None else {"error_message": message}
    if kind is quorum.UpdateRaftVoterRequest:
        host, port = replica.leader_address or ("", 0)
        leader = quorum.CurrentLeader(leader_id=replica.leader_id, leader_epoch=replica.epoch, host=host, port=port)
        more = {"current_leader": leader}
    response: Message = _RESPONSES[kind](error_code=code, **more)
    return response
