"""What the consensus core is given at its start, and what comes out of it: effects, to be carried out in order."""

from __future__ import annotations

import enum
from collections.abc import Hashable
from typing import Final, NamedTuple

import msgspec

from controller.brokers.kraft.quorum.raft.log import SnapshotId
from controller.brokers.kraft.quorum.raft.voters import Place, Voter
from controller.kafka.messages import Message

FETCH: Final = "fetch"
VOTE: Final = "vote"
BEGIN: Final = "begin"
UPDATE: Final = "update"
"""What a connection is for. Each takes one request at a time, so what must not wait for a parked fetch has its own."""


PRE_VOTE_SINCE: Final = 2
"""The version of Vote that can ask for a pre-vote (KIP-996)."""


class Peer(NamedTuple):
    """What another voter has shown: the newest version of Vote that it speaks, and how much it wants to lead; None of
    Kafka's own."""

    vote_version: int
    priority: int | None


class Role(enum.Enum):
    """Kafka's roles of a replica (`QuorumState`). An observer is a follower, or unattached, outside the voter set."""

    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """A voter's settings. `static` are the voters of `controller.quorum.voters`, which count with kraft.version 0.

    `priority` 0 never claims the lead from a leader that lives, and stands for a lost one only after the others had
    time to: two election timeouts later. It must stand at last: the others may be gone, or behind.
    """

    cluster_id: str
    me: Voter
    bootstrap: tuple[Place, ...] = ()
    static: tuple[Voter, ...] = ()
    fetch_timeout_s: float = 2.0
    election_timeout_s: float = 1.0
    priority: int = 1


class Send(msgspec.Struct, frozen=True):
    """A request to a peer; `node_id` is -1 where only its place is known."""

    token: int
    node_id: int
    place: Place
    purpose: str
    request: Message
    timeout_s: float


class Reply(msgspec.Struct, frozen=True):
    """The response to a request that came in with this token."""

    token: Hashable
    response: Message


class StartFlush(msgspec.Struct, frozen=True):
    """Flush the log beside all else, and say so with `flushed`. There is one at a time."""


class HighWatermark(msgspec.Struct, frozen=True):
    """All below is committed, and durable here too."""

    offset: int


class Fetched(msgspec.Struct, frozen=True):
    """A replica has all of the leader's log below the offset, durably."""

    replica: int
    offset: int


class RoleChanged(msgspec.Struct, frozen=True):
    """Role, epoch or leader changed; -1 and None where no leader is known."""

    role: Role
    epoch: int
    leader_id: int
    leader_place: Place | None


class Truncated(msgspec.Struct, frozen=True):
    """The log lost what no majority had: it ended at `was`, and ends at `end` now."""

    was: int
    end: int


class SnapshotInstalled(msgspec.Struct, frozen=True):
    """The log begins anew behind a snapshot of the leader's."""

    snapshot: SnapshotId


class Warned(msgspec.Struct, frozen=True):
    """Something that an operator should see; it is tried again."""

    what: str


Effect = Send | Reply | StartFlush | HighWatermark | Fetched | RoleChanged | Truncated | SnapshotInstalled | Warned


class NotLeader(Exception):
    """This node does not lead, or takes no more: whoever sent the request looks for the leader."""


class Refused(Exception):
    """A change to the quorum is not possible now; says why."""


class CommittedLost(Exception):
    """A leader wants what is committed here to be cut off: it, or this node, lost its disk. The log is as it was."""
