"""AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter on the leader (KIP-853): one uncommitted change at a time.

The checks and their error codes are those of Kafka's `AddVoterHandler`, `RemoveVoterHandler` and `UpdateVoterHandler`.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import msgspec

from controller.kafka.messages import ZERO_UUID, quorum
from controller.kafka.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from controller.machine.errors import ErrorCode
from controller.quorum.log.batches import KRAFT_VERSION_MAX, Pair
from controller.quorum.raft.effects import Refused
from controller.quorum.raft.progress import Progress
from controller.quorum.raft.replica import Replica
from controller.quorum.raft.role import OK, Change, change_response
from controller.quorum.raft.voters import Voter, VoterSet, kraft_version_record, voters_record

KRAFT_FEATURE: Final = "kraft.version"
TIMEOUT_S_MAX: Final = 30.0
CAUGHT_UP_S: Final = 3600.0
"""A new voter must have been caught up within this time (`AddVoterHandler`)."""


class _Pending(msgspec.Struct):
    """The pending change; `offset` is that of its record, None before the append."""

    token: Hashable
    request: Change
    until: float
    offset: int | None = None
    is_answered: bool = False


class VoterChanges:
    """The voter changes of one leader in its epoch; at most one is pending."""

    def __init__(
        self,
        replica: Replica,
        progress: Progress,
        watermark: Callable[[], int],
        append_control: Callable[[float, Sequence[Pair]], None],
    ) -> None:
        """`watermark` and `append_control` are those of the leader role."""
        self._replica, self._progress = replica, progress
        self._watermark, self._append_control = watermark, append_control
        self._pending: _Pending | None = None
        self._reported: dict[int, Voter] = {}  # by UpdateRaftVoter, while kraft.version is 0

    @property
    def wake(self) -> float:
        return self._pending.until if self._pending is not None and not self._pending.is_answered else math.inf

    def tick(self, now: float) -> None:
        """Answer a change that takes too long with REQUEST_TIMED_OUT. An appended change may still be committed."""
        if now >= self.wake:
            self._end(ErrorCode.REQUEST_TIMED_OUT, "it was not committed in time")

    def cancel(self) -> None:
        """The epoch of the leader is over: answer the pending change."""
        self._end(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        self._pending = None

    def committed(self) -> None:
        """Called when the high watermark advanced: answers a change that is now committed."""
        pending = self._pending
        if pending is not None and pending.offset is not None and pending.offset < self._replica.high_watermark:
            self._end(OK, None)
            self._pending = None

    def request(self, now: float, token: Hashable, request: Change) -> None:
        code, reason = self._rejection(request)
        if code:
            self._replica.respond(token, change_response(self._replica, type(request), code, reason))
            return
        match request:
            case quorum.AddRaftVoterRequest():
                until = now + min(max(request.timeout_ms / 1000, 0.0), TIMEOUT_S_MAX)
                self._pending = _Pending(token, request, until)
                address = self._replica.address_of(_voter(request))
                versions = ApiVersionsRequest(client_software_name="topicwright", client_software_version="0")
                self._replica.send(self._pending, address, versions, until - now)
            case quorum.RemoveRaftVoterRequest():
                self._pending = _Pending(token, request, now + TIMEOUT_S_MAX)
                self._append(now, self._replica.voters.without(request.voter_id))
            case quorum.UpdateRaftVoterRequest():
                self._update(now, token, request)

    def _rejection(self, request: Change) -> tuple[int, str | None]:
        """The error code and message of a change that cannot begin now; OK if it can."""
        replica = self._replica
        invalid = self._invalid(request)
        if invalid is not None:
            return int(ErrorCode.INVALID_REQUEST), invalid
        if self._watermark() < 0:
            return int(ErrorCode.REQUEST_TIMED_OUT), "the leader has not committed a record of its epoch yet"
        if replica.kraft_version == 0 and not isinstance(request, quorum.UpdateRaftVoterRequest):
            how = "with kraft.version 0 controller.quorum.voters names the voters; raise it to 1 to change them"
            return int(ErrorCode.UNSUPPORTED_VERSION), how
        is_pending = self._pending is not None or replica.history.changed_at >= replica.high_watermark
        if replica.kraft_version > 0 and is_pending:
            return int(ErrorCode.REQUEST_TIMED_OUT), "another change of the voters is not committed yet"
        voters, node_id, directory = replica.voters, request.voter_id, request.voter_directory_id
        if isinstance(request, quorum.AddRaftVoterRequest):
            if node_id in voters.by_id:
                return int(ErrorCode.DUPLICATE_VOTER), f"node {node_id} is a voter already"
            return OK, None
        if not voters.has(node_id, directory):
            is_update = isinstance(request, quorum.UpdateRaftVoterRequest)
            reason = None if is_update else f"no voter {node_id} has the directory id {directory.hex()}"
            return int(ErrorCode.VOTER_NOT_FOUND), reason
        if isinstance(request, quorum.RemoveRaftVoterRequest) and len(voters) == 1:
            return int(ErrorCode.INVALID_REQUEST), f"voter {node_id} is the last one"
        return OK, None

    def _invalid(self, request: Change) -> str | None:
        """The reason why a request is invalid in every state of the quorum."""
        if isinstance(request, quorum.UpdateRaftVoterRequest):
            return None if request.listeners else "the request must name at least one endpoint of the voter"
        if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
            return "the voter id must be 0 or more, and the directory id must not be zero"
        name = self._replica.me.listeners[0].name
        if isinstance(request, quorum.AddRaftVoterRequest) and name not in [each.name for each in request.listeners]:
            return f"the endpoints must include one for the controllers' listener {name}"
        return None

    def replied(self, now: float, context: Any, response: ApiVersionsResponse | None) -> None:
        """The new voter reported the versions that it supports, or could not be reached."""
        pending = self._pending
        if pending is None or pending is not context or not isinstance(pending.request, quorum.AddRaftVoterRequest):
            return
        request, version = pending.request, self._replica.kraft_version
        new = _voter(request)
        found = [each for each in response.supported_features if each.name == KRAFT_FEATURE] if response else []
        caught_up_at = self._progress.of(new).caught_up_at
        if response is None:
            host, port = self._replica.address_of(new)
            self._end(ErrorCode.REQUEST_TIMED_OUT, f"voter {new.id} cannot be reached at {host}:{port}")
        elif not found or not found[0].min_version <= version <= found[0].max_version:
            self._end(ErrorCode.INVALID_REQUEST, f"voter {new.id} does not support kraft.version {version}")
        elif now - caught_up_at > CAUGHT_UP_S:
            self._end(ErrorCode.REQUEST_TIMED_OUT, f"voter {new.id} has not fetched the whole log yet")
        else:
            lowest, highest = found[0].min_version, found[0].max_version
            versions = quorum.KRaftVersionFeature(min_supported_version=lowest, max_supported_version=highest)
            new = msgspec.structs.replace(new, versions=versions)
            self._append(now, self._replica.voters.with_voter(new))
            if not request.ack_when_committed:
                self._end(OK, None)

    def _update(self, now: float, token: Hashable, request: quorum.UpdateRaftVoterRequest) -> None:
        replica, versions = self._replica, request.k_raft_version_feature
        new = msgspec.structs.replace(_voter(request), versions=versions)
        code = OK
        if replica.kraft_version == 0:
            self._reported[new.id] = new
        elif not versions.min_supported_version <= replica.kraft_version <= versions.max_supported_version:
            code = int(ErrorCode.INVALID_REQUEST)
        elif new != replica.voters.by_id[new.id]:
            self._pending = _Pending(token, request, now + TIMEOUT_S_MAX)
            self._append(now, replica.voters.with_voter(new))
            return
        replica.respond(token, change_response(replica, type(request), code))

    def raise_kraft_version(self, now: float) -> None:
        """Raise kraft.version from 0 to 1: append the voter set, with directory ids. Raises Refused."""
        replica = self._replica
        if replica.kraft_version >= KRAFT_VERSION_MAX:
            raise Refused(f"kraft.version is already {replica.kraft_version}, the newest that this release supports")
        if self._watermark() < 0:
            raise Refused("the leader has not committed a record of its epoch yet")
        known = {**self._reported, replica.me.id: replica.me}
        missing = [each.id for each in replica.voters if each.id not in known]
        if missing:
            raise Refused(f"voters {missing} have not sent their directory ids yet (UpdateRaftVoter)")
        voters = VoterSet.of(known[each.id] for each in replica.voters)
        self._append_control(now, [kraft_version_record(KRAFT_VERSION_MAX), voters_record(voters)])

    def _append(self, now: float, voters: VoterSet) -> None:
        assert self._pending is not None
        self._pending.offset = self._replica.log.end
        try:
            self._append_control(now, [voters_record(voters)])
        except OSError as error:
            self._replica.on_disk_full(error)
            self._pending.offset = None
            self._end(ErrorCode.KAFKA_STORAGE_ERROR, f"the leader's disk is full: {error}")

    def _end(self, code: int, reason: str | None) -> None:
        """Answer the pending change, once. An appended change is pending until it is committed, even when answered."""
        pending = self._pending
        if pending is None or pending.is_answered:
            return
        pending.is_answered = True
        self._replica.respond(pending.token, change_response(self._replica, type(pending.request), int(code), reason))
        if pending.offset is None:
            self._pending = None


def _voter(request: quorum.AddRaftVoterRequest | quorum.UpdateRaftVoterRequest) -> Voter:
    return Voter(request.voter_id, request.voter_directory_id, request.listeners)
