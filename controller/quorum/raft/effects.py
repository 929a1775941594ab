"""The options of the consensus, its effects, which `quorum.node` carries out in order, and its errors."""

import enum
from typing import Any, Final, NamedTuple

import msgspec

from controller.kafka.messages import Message
from controller.quorum.raft.voters import Address, Voter

PRE_VOTE_SINCE: Final = 2
"""The first version of Vote with pre-votes (KIP-996)."""
LATE_TIMEOUTS: Final = 2
"""Election timeouts that a voter of priority 0 without a leader waits in addition, so that others are elected first."""


class Peer(NamedTuple):
    """The newest version of Vote that another voter supports, and its leader priority; None for Kafka voters."""

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
    """A voter's settings. `static` has the voters of `controller.quorum.voters`, the voter set with kraft.version 0.

    With `priority` 0 a voter never takes over from a live leader. If the leader is lost, it still starts an election,
    because the other voters may be down or have a shorter log; but it waits a little longer than the others.
    """

    cluster_id: str
    me: Voter
    bootstrap: tuple[Address, ...] = ()
    static: tuple[Voter, ...] = ()
    fetch_timeout_s: float = 2.0
    election_timeout_s: float = 1.0
    priority: int = 1


class Send(msgspec.Struct, frozen=True):
    token: int
    address: Address
    request: Message
    timeout_s: float


class Reply(msgspec.Struct, frozen=True):
    """The response to the request that had this token."""

    token: Any
    response: Message


class StartFlush(msgspec.Struct, frozen=True):
    """Flush the log concurrently, then call `flushed` or `flush_failed`. At most one flush runs at a time."""


class HighWatermark(msgspec.Struct, frozen=True):
    """All records below the offset are committed, and durable here too."""

    offset: int


class Fetched(msgspec.Struct, frozen=True):
    replica: int


class RoleChanged(msgspec.Struct, frozen=True):
    """This replica's role, epoch or leader changed; the leader is -1 if none is known."""

    role: Role
    epoch: int
    leader_id: int


class Warned(msgspec.Struct, frozen=True):
    """A warning for the operator; the replica tries again."""

    message: str


Effect = Send | Reply | StartFlush | HighWatermark | Fetched | RoleChanged | Warned


class NotLeader(Exception):
    """This node does not lead, or it resigns and accepts no more records."""


class Refused(Exception):
    """A change of the quorum, such as of kraft.version, is not possible now. The message has the reason."""


class CommittedLost(Exception):
    """A leader lacks records that are committed here: the leader or this node lost its disk. The log is unchanged."""
