"""Changing who votes, as the leader (KIP-853): one voter at a time, each committed before the next begins.

The checks and their answers are those of Kafka's `AddVoterHandler`, `RemoveVoterHandler`, `UpdateVoterHandler`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from controller.brokers.kraft.log.batches import KRAFT_VERSION_MAX
from controller.brokers.kraft.quorum.raft.effects import UPDATE, Refused
from controller.brokers.kraft.quorum.raft.full_disk import no_room
from controller.brokers.kraft.quorum.raft.requests import change_response
from controller.brokers.kraft.quorum.raft.responses import OK
from controller.brokers.kraft.quorum.raft.voters import Listener, Voter, VoterSet, kraft_version_record, voters_record
from controller.kafka.messages import ZERO_UUID
from controller.kafka.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from controller.kafka.messages.quorum import AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest
from controller.machine.errors import ErrorCode

if TYPE_CHECKING:
    from controller.brokers.kraft.quorum.raft.core import Quorum
    from controller.brokers.kraft.quorum.raft.leading import Leader

Change = AddRaftVoterRequest | RemoveRaftVoterRequest | UpdateRaftVoterRequest

KRAFT_FEATURE: Final = "kraft.version"
TIMEOUT_S_MAX: Final = 30.0
CAUGHT_UP_S: Final = 3600.0
"""A voter to be has had all of the log since then (`AddVoterHandler`)."""


class _Pending(msgspec.Struct):
    """The change under way; `offset` is its record's, None before it is appended."""

    token: Hashable
    request: Change
    until: float
    offset: int | None = None
    is_answered: bool = False


class VoterChanges:
    """The changes that one leader makes in its epoch."""

    def __init__(self, core: Quorum, leader: Leader) -> None:
        self._core = core
        self._leader = leader
        self._pending: _Pending | None = None
        self._known: dict[int, Voter] = {}  # what voters said of themselves while kraft.version is 0

    @property
    def wake(self) -> float:
        """When it wants `tick`."""
        return self._pending.until if self._pending is not None and not self._pending.is_answered else math.inf

    def tick(self, now: float) -> None:
        """A change that takes too long is answered; if it is appended, it may be committed yet."""
        if now >= self.wake:
            self._end(int(ErrorCode.REQUEST_TIMED_OUT), "it was not committed in time")

    def leave(self) -> None:
        """The leader is one no longer."""
        self._end(int(ErrorCode.NOT_LEADER_OR_FOLLOWER), None)
        self._pending = None

    def committed(self, now: float) -> None:
        """The high watermark moved."""
        pending = self._pending
        if pending is not None and pending.offset is not None and pending.offset < self._core.high_watermark:
            self._end(OK, None)
            self._pending = None

    def take(self, now: float, token: Hashable, request: Change) -> None:
        """A request to change who votes."""
        code, why = self._refusal(request)
        if code:
            self._core.respond(token, change_response(self._core, request, code, why))
            return
        match request:
            case AddRaftVoterRequest():
                until = now + min(max(request.timeout_ms / 1000, 0.0), TIMEOUT_S_MAX)
                self._pending = _Pending(token, request, until)
                place = self._core.place_of(_voter(request))
                versions = ApiVersionsRequest(client_software_name="topicwright", client_software_version="0")
                self._core.send(self._pending, request.voter_id, place, UPDATE, versions, until - now)
            case RemoveRaftVoterRequest():
                self._pending = _Pending(token, request, now + TIMEOUT_S_MAX)
                self._append(now, self._core.voters.without(request.voter_id))
            case UpdateRaftVoterRequest():
                self._update(now, token, request)

    def _refusal(self, request: Change) -> tuple[int, str | None]:
        """Why not, the code and in words; 0 if it may be tried."""
        core = self._core
        is_update = isinstance(request, UpdateRaftVoterRequest)
        invalid = self._invalid(request)
        if invalid is not None:
            return int(ErrorCode.INVALID_REQUEST), invalid
        if self._leader.watermark < 0:
            return int(ErrorCode.REQUEST_TIMED_OUT), "the leader has not committed a record of its epoch yet"
        if core.kraft_version == 0 and not is_update:
            return int(ErrorCode.UNSUPPORTED_VERSION), "kraft.version is 0: the settings say who votes"
        if core.kraft_version > 0 and (self._pending is not None or core.history.changed_at >= core.high_watermark):
            return int(ErrorCode.REQUEST_TIMED_OUT), "another change of the voters is not committed yet"
        return self._wrong(request)

    def _wrong(self, request: Change) -> tuple[int, str | None]:
        voters, node_id, directory = self._core.voters, request.voter_id, request.voter_directory_id
        if isinstance(request, RemoveRaftVoterRequest):
            if not voters.has(node_id, directory):
                return int(ErrorCode.VOTER_NOT_FOUND), f"no voter {node_id} has the directory id {directory.hex()}"
            if len(voters) == 1:
                return int(ErrorCode.INVALID_REQUEST), f"voter {node_id} is the last one"
            return OK, None
        if isinstance(request, AddRaftVoterRequest):
            if node_id in voters.by_id:
                return int(ErrorCode.DUPLICATE_VOTER), f"voter {node_id} is there already"
        elif not voters.has(node_id, directory):
            return int(ErrorCode.VOTER_NOT_FOUND), None
        return OK, None

    def _invalid(self, request: Change) -> str | None:
        """Why the request can be fulfilled in no state of the quorum."""
        if isinstance(request, UpdateRaftVoterRequest):
            return None if request.listeners else "a voter has a listener"
        if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
            return "a voter has an id of 0 or more and a directory id"
        name = self._core.me.listeners[0].name
        if isinstance(request, AddRaftVoterRequest) and name not in [each.name for each in request.listeners]:
            return f"a voter has an endpoint for the controllers' listener {name}"
        return None

    def replied(self, now: float, context: Any, response: ApiVersionsResponse | None) -> None:
        """The voter to be says which versions of the quorum's protocol it speaks."""
        pending = self._pending
        if pending is None or pending is not context or not isinstance(pending.request, AddRaftVoterRequest):
            return
        request = pending.request
        new = _voter(request)
        found = [each for each in response.supported_features if each.name == KRAFT_FEATURE] if response else []
        caught_up_at = self._leader.progress.of(new).caught_up_at
        if response is None:
            self._fail(ErrorCode.REQUEST_TIMED_OUT, f"voter {new.id} cannot be reached at {self._core.place_of(new)}")
        elif not found or not found[0].min_version <= self._core.kraft_version <= found[0].max_version:
            self._fail(
                ErrorCode.INVALID_REQUEST, f"voter {new.id} does not speak kraft.version {self._core.kraft_version}"
            )
        elif now - caught_up_at > CAUGHT_UP_S:
            self._fail(ErrorCode.REQUEST_TIMED_OUT, f"voter {new.id} has not fetched all of the log yet")
        else:
            new = msgspec.structs.replace(new, versions=(found[0].min_version, found[0].max_version))
            self._append(now, self._core.voters.with_voter(new))
            if not request.ack_when_committed:
                self._end(OK, None)

    def _update(self, now: float, token: Hashable, request: UpdateRaftVoterRequest) -> None:
        core, feature = self._core, request.k_raft_version_feature
        versions = feature.min_supported_version, feature.max_supported_version
        new = msgspec.structs.replace(_voter(request), versions=versions)
        if core.kraft_version == 0:
            self._known[new.id] = new
        elif not versions[0] <= core.kraft_version <= versions[1]:
            core.respond(token, change_response(core, request, int(ErrorCode.INVALID_REQUEST)))
            return
        elif new != core.voters.by_id[new.id]:
            self._pending = _Pending(token, request, now + TIMEOUT_S_MAX)
            self._append(now, core.voters.with_voter(new))
            return
        core.respond(token, change_response(core, request, OK))

    def raise_kraft_version(self, now: float) -> None:
        """From 0 to 1: the voters with their disks go into the log. Raises Refused."""
        core = self._core
        if core.kraft_version >= KRAFT_VERSION_MAX:
            raise Refused(f"kraft.version is {core.kraft_version}, which is the newest")
        if self._leader.watermark < 0:
            raise Refused("the leader has not committed a record of its epoch yet")
        known = {**self._known, core.me.id: core.me}
        missing = [each.id for each in core.voters if each.id not in known]
        if missing:
            raise Refused(f"voters {missing} have not shown their directory ids yet (UpdateRaftVoter)")
        voters = VoterSet.of(known[each.id] for each in core.voters)
        self._leader.append_control(now, [kraft_version_record(KRAFT_VERSION_MAX), voters_record(voters)])

    def _append(self, now: float, voters: VoterSet) -> None:
        assert self._pending is not None
        self._pending.offset = self._core.log.end
        try:
            self._leader.append_control(now, [voters_record(voters)])
        except OSError as error:
            no_room(self._core, error)
            self._pending.offset = None
            self._fail(ErrorCode.KAFKA_STORAGE_ERROR, f"the leader has no room for it: {error}")

    def _fail(self, code: ErrorCode, why: str) -> None:
        self._end(int(code), why)
        self._pending = None

    def _end(self, code: int, why: str | None) -> None:
        """Answer the pending change, once. Once appended it is pending until committed, even when answered."""
        pending = self._pending
        if pending is None or pending.is_answered:
            return
        pending.is_answered = True
        self._core.respond(pending.token, change_response(self._core, pending.request, code, why))
        if pending.offset is None:
            self._pending = None


def _voter(request: AddRaftVoterRequest | UpdateRaftVoterRequest) -> Voter:
    listeners = tuple(Listener(each.name, each.host, each.port) for each in request.listeners)
    return Voter(request.voter_id, request.voter_directory_id, listeners)
