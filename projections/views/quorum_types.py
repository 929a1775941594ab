"""The JSON of a quorum of controllers as one of its voters sees it."""

from __future__ import annotations

import msgspec


class VoterView(msgspec.Struct, frozen=True, kw_only=True):
    """A voter. `priority` says how much it wants to lead: null of Kafka's own controllers, and of who has not shown it
    to this node yet. How far its log goes, and how many records it lacks, are known where this node leads."""

    node_id: int
    host: str
    port: int
    priority: int | None
    log_end: int | None
    lag: int | None


class QuorumView(msgspec.Struct, frozen=True, kw_only=True):
    """The quorum. `leads_since` is when the epoch began, by its first record; null where that is not here. Below
    `high_watermark` all of the metadata log is committed, and below `applied` it is in this node's event log."""

    node_id: int
    role: str
    epoch: int
    leader: int | None
    leads_since: str | None
    leads_since_ms: int | None
    high_watermark: int
    applied: int
    voters: tuple[VoterView, ...]
