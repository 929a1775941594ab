"""What a voter does with the requests of others: each gets one response, of this role or of the leader's part."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

from controller.brokers.kraft.log.batches import METADATA_TOPIC, METADATA_TOPIC_ID
from controller.brokers.kraft.quorum.raft.effects import Role
from controller.brokers.kraft.quorum.raft.log import NOBODY, is_plausible
from controller.brokers.kraft.quorum.raft.responses import (
    OK,
    Said,
    begin_response,
    end_response,
    fetch_response,
    snapshot_response,
    the_partition,
    vote_response,
)
from controller.brokers.kraft.quorum.raft.voters import Place
from controller.kafka.messages import ZERO_UUID, Message, quorum
from controller.kafka.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    CurrentLeader,
    DescribeQuorumPartitionResult,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopicResult,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from controller.machine.errors import ErrorCode

if TYPE_CHECKING:
    from controller.brokers.kraft.quorum.raft.core import Quorum

_PRE_VOTERS: Final = (Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.RESIGNED)


def take(core: Quorum, now: float, token: Hashable, request: Message) -> None:
    """Do with a request what belongs to its kind."""
    match request:
        case quorum.VoteRequest():
            core.respond(token, _vote(core, now, request))
        case quorum.BeginQuorumEpochRequest():
            core.respond(token, _begin(core, now, request))
        case quorum.EndQuorumEpochRequest():
            core.respond(token, _end(core, now, request))
        case quorum.FetchRequest():
            _fetch(core, now, token, request)
        case quorum.FetchSnapshotRequest():
            _fetch_snapshot(core, now, token, request)
        case DescribeQuorumRequest():
            core.respond(token, _describe(core, now))
        case AddRaftVoterRequest() | RemoveRaftVoterRequest() | UpdateRaftVoterRequest():
            _change_voters(core, now, token, request)
        case _:
            raise AssertionError(f"the quorum has no answer to {type(request).__name__}")


def _vote(core: Quorum, now: float, request: quorum.VoteRequest) -> quorum.VoteResponse:
    part = the_partition(request.topics)
    if _is_foreign(core, request.cluster_id):
        return quorum.VoteResponse(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID))
    if part is None:
        return quorum.VoteResponse(error_code=int(ErrorCode.INVALID_REQUEST))
    if part.replica_epoch < core.epoch:
        return vote_response(core.said, int(ErrorCode.FENCED_LEADER_EPOCH))
    newest = part.replica_epoch if part.pre_vote else part.replica_epoch - 1
    is_log = part.last_offset >= 0 and 0 <= part.last_offset_epoch <= newest
    if part.replica_id < 0 or not is_log or not is_plausible(part.replica_epoch, core.epoch):
        return vote_response(core.said, int(ErrorCode.INVALID_REQUEST))
    if part.replica_epoch > core.epoch:
        core.to_unattached(now, part.replica_epoch)
    if not _is_for_this_disk(core, request.voter_id, part.voter_directory_id):
        return vote_response(core.said, int(ErrorCode.INVALID_VOTER_KEY))
    return vote_response(core.said, OK, _grant(core, now, part))


def _grant(core: Quorum, now: float, part: quorum.VotePartition) -> bool:
    """Who has at least this log may lead it: with a vote, one an epoch, or, sounded out, if no leader is at work."""
    if part.replica_id in core.distrusted or core.is_alone:
        return False
    candidate = (part.replica_id, part.replica_directory_id)
    has_all = (part.last_offset_epoch, part.last_offset) >= (core.log.last_epoch, core.log.end)
    if part.pre_vote:
        unled = core.following is not None and not core.following.has_fetched
        return has_all and (core.role in _PRE_VOTERS or unled)
    if core.voted[0] != NOBODY:
        return core.voted == candidate
    if not has_all or core.role not in (Role.UNATTACHED, Role.PROSPECTIVE):
        return False
    core.cast(now, candidate)
    return True


def _begin(core: Quorum, now: float, request: quorum.BeginQuorumEpochRequest) -> quorum.BeginQuorumEpochResponse:
    part = the_partition(request.topics)
    if _is_foreign(core, request.cluster_id):
        return quorum.BeginQuorumEpochResponse(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID))
    if part is None or part.leader_id < 0:
        return quorum.BeginQuorumEpochResponse(error_code=int(ErrorCode.INVALID_REQUEST))
    code = _no_leader(core, part)
    if code:
        return begin_response(core.said, code)
    _learn_of(core, now, part, request.leader_endpoints)
    if not _is_for_this_disk(core, request.voter_id, part.voter_directory_id):
        return begin_response(core.said, int(ErrorCode.INVALID_VOTER_KEY))
    return begin_response(core.said, OK)


def _end(core: Quorum, now: float, request: quorum.EndQuorumEpochRequest) -> quorum.EndQuorumEpochResponse:
    part = the_partition(request.topics)
    if _is_foreign(core, request.cluster_id):
        return quorum.EndQuorumEpochResponse(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID))
    if part is None or part.leader_id < 0:
        return quorum.EndQuorumEpochResponse(error_code=int(ErrorCode.INVALID_REQUEST))
    code = _no_leader(core, part)
    if code:
        return end_response(core.said, code)
    _learn_of(core, now, part, request.leader_endpoints)
    if core.following is not None and core.leader_id == part.leader_id:
        order = [each.candidate_id for each in part.preferred_candidates] or list(part.preferred_successors)
        core.following.leader_resigned(now, order.index(core.me.id) if core.me.id in order else len(order))
    return end_response(core.said, OK)


def _no_leader(core: Quorum, part: Any) -> int:
    """Why the node that a request names cannot be the leader of that epoch; OK if it can. Nobody is elected without the
    vote of a node that votes alone. Other voters may lack the newest voter set, so they follow any leader, as Kafka."""
    if part.leader_epoch < core.epoch:
        return int(ErrorCode.FENCED_LEADER_EPOCH)
    if not is_plausible(part.leader_epoch, core.epoch):
        return int(ErrorCode.INVALID_REQUEST)
    is_known = (part.leader_id, part.leader_epoch) == (core.leader_id, core.epoch)
    return int(ErrorCode.INCONSISTENT_VOTER_SET) if core.is_alone and not is_known else OK


def _learn_of(core: Quorum, now: float, part: Any, endpoints: tuple[Any, ...]) -> None:
    name = core.me.listeners[0].name
    found = next((each for each in endpoints if each.name == name), endpoints[0] if endpoints else None)
    known = core.voters.by_id.get(part.leader_id)
    place: Place | None = None
    if found is not None:
        place = found.host, found.port
    elif known is not None:
        place = core.place_of(known)
    core.learn(now, Said(part.leader_id, part.leader_epoch, place))


def _fetch(core: Quorum, now: float, token: Hashable, request: quorum.FetchRequest) -> None:
    part = the_partition(request.topics)
    if _is_foreign(core, request.cluster_id):
        core.respond(token, quorum.FetchResponse(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID)))
    elif part is None or _is_another(request) or part.fetch_offset < 0 or part.last_fetched_epoch < 0:
        core.respond(token, quorum.FetchResponse(error_code=int(ErrorCode.INVALID_REQUEST)))
    elif core.leading is None or part.current_leader_epoch != core.epoch:
        code = _wrong_epoch(core, part.current_leader_epoch)
        core.respond(token, fetch_response(core.said, quorum.FetchPartitionData(error_code=code, high_watermark=-1)))
    else:
        core.leading.fetch(now, token, request, part)


def _fetch_snapshot(core: Quorum, now: float, token: Hashable, request: quorum.FetchSnapshotRequest) -> None:
    part = the_partition(request.topics)
    if _is_foreign(core, request.cluster_id):
        core.respond(token, quorum.FetchSnapshotResponse(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID)))
    elif part is None:
        core.respond(token, quorum.FetchSnapshotResponse(error_code=int(ErrorCode.INVALID_REQUEST)))
    elif core.leading is None or part.current_leader_epoch != core.epoch:
        code = _wrong_epoch(core, part.current_leader_epoch)
        core.respond(token, snapshot_response(core.said, quorum.ResponsePartitionSnapshot(error_code=code)))
    else:
        core.respond(token, core.leading.fetch_snapshot(now, request, part))


def _describe(core: Quorum, now: float) -> DescribeQuorumResponse:
    if core.leading is not None:
        return core.leading.describe(now)
    code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    part = DescribeQuorumPartitionResult(error_code=code, leader_id=core.leader_id, leader_epoch=core.epoch)
    topic = DescribeQuorumTopicResult(topic_name=METADATA_TOPIC, partitions=(part,))
    return DescribeQuorumResponse(topics=(topic,))


def _change_voters(
    core: Quorum,
    now: float,
    token: Hashable,
    request: AddRaftVoterRequest | RemoveRaftVoterRequest | UpdateRaftVoterRequest,
) -> None:
    code = OK
    if _is_foreign(core, request.cluster_id):
        code = int(ErrorCode.INCONSISTENT_CLUSTER_ID)
    elif isinstance(request, UpdateRaftVoterRequest) and request.current_leader_epoch != core.epoch:
        code = _wrong_epoch(core, request.current_leader_epoch)
    elif core.leading is None:
        code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if code or core.leading is None:
        core.respond(token, change_response(core, request, code))
    else:
        core.leading.changes.take(now, token, request)


def change_response(core: Quorum, request: Message, code: int, message: str | None = None) -> Message:
    """The response to a request that changes who votes."""
    if isinstance(request, AddRaftVoterRequest):
        return AddRaftVoterResponse(error_code=code, error_message=message)
    if isinstance(request, RemoveRaftVoterRequest):
        return RemoveRaftVoterResponse(error_code=code, error_message=message)
    host, port = core.leader_place or ("", 0)
    leader = CurrentLeader(leader_id=core.leader_id, leader_epoch=core.epoch, host=host, port=port)
    return UpdateRaftVoterResponse(error_code=code, current_leader=leader)


def _is_another(request: quorum.FetchRequest) -> bool:
    """Whether a fetch is of another partition than the metadata log's; from version 13 on it names its id."""
    topic = request.topics[0]
    is_named = topic.topic == METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID
    return not is_named or topic.partitions[0].partition != 0


def _wrong_epoch(core: Quorum, epoch: int) -> int:
    if epoch < core.epoch:
        return int(ErrorCode.FENCED_LEADER_EPOCH)
    if epoch > core.epoch:
        return int(ErrorCode.UNKNOWN_LEADER_EPOCH)
    return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _is_foreign(core: Quorum, cluster_id: str | None) -> bool:
    return cluster_id not in (None, core.options.cluster_id)


def _is_for_this_disk(core: Quorum, voter_id: int, directory: bytes) -> bool:
    return voter_id in (-1, core.me.id) and directory in (ZERO_UUID, core.me.directory)
