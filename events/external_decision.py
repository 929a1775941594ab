"""The origin of events that another controller of the quorum decided and that this node read from the metadata log.

`controller.brokers.kraft` writes the cause of such an event: the command FOLLOW and, instead of a client's request id,
an id that encodes the origin. The origin is a batch, with its leader and epoch, or a snapshot, whose author is unknown.
Indexes, queries and views read it with `external_decision`.
"""

import re
from typing import Final

import msgspec

from events.catalog import Cause, HistorySkipped, Recorded
from events.names import RequestId, shard_key

FOLLOW: Final = "FollowController"
"""The command in the cause of events that another controller decided."""
_WITHOUT_CLIENT: Final = frozenset(("AdoptMetadata", "HandMetadataBack", FOLLOW))
"""Commands that no client requested."""
_UNKNOWN: Final = -1
_ID = re.compile(r"(?:controller-(\d{1,10})|snapshot)-epoch-(\d{1,10})-offset-(\d{1,19})")


class ExternalDecision(msgspec.Struct, frozen=True):
    """Where another controller's decisions were found: in a batch of the metadata log, or in a snapshot.

    For a batch, `offset` is the offset of its first record, and `node_id` led the epoch. A snapshot has all records
    below `offset`; the node that decided them is unknown.
    """

    node_id: int
    leader_epoch: int
    offset: int

    @property
    def cause(self) -> Cause:
        return Cause(FOLLOW, self.request_id)

    @property
    def request_id(self) -> RequestId:
        """The id in the cause, instead of the request id of a client."""
        found = f"controller-{self.node_id}" if self.node_id != _UNKNOWN else "snapshot"
        return RequestId(f"{found}-epoch-{self.leader_epoch}-offset-{self.offset}")

    @property
    def leader(self) -> str:
        """The deciding controller, for display."""
        return f"Kafka's controller {self.node_id}" if self.node_id != _UNKNOWN else "the cluster"

    @property
    def summary(self) -> str:
        """The deciding controller and its epoch, for display."""
        if self.node_id == _UNKNOWN:
            return f"as in a snapshot of epoch {self.leader_epoch}"
        return f"decided by {self.leader}, which led epoch {self.leader_epoch}"

    @property
    def position(self) -> str:
        """The offset in the metadata log, for display."""
        begins = "up to" if self.node_id == _UNKNOWN else "from"
        return f"{begins} offset {self.offset} of the metadata log"


def skipped_snapshot(skipped: HistorySkipped) -> ExternalDecision:
    """The snapshot that replaced skipped history."""
    return ExternalDecision(_UNKNOWN, skipped.leader_epoch, skipped.end_offset)


def external_decision(cause: Cause) -> ExternalDecision | None:
    """The origin of an event that another controller decided; None if the event was decided by this controller."""
    found = _ID.fullmatch(cause.request_id) if cause.command == FOLLOW else None
    if found is None:
        return None
    node_id, epoch, offset = found.groups()
    return ExternalDecision(_UNKNOWN if node_id is None else int(node_id), int(epoch), int(offset))


def request_of(record: Recorded) -> str:
    """The id under which a log indexes an event: a client's request or another controller's decision; "" for none."""
    command = record.cause.command
    if command in _WITHOUT_CLIENT:
        return record.cause.request_id if command == FOLLOW else ""
    request: str = getattr(record.event, "request_id", "")
    return request


def indexed_under(record: Recorded, of_requests: bool) -> str:
    """The index key of an event: with `of_requests` its request id ("" is not indexed), else its shard key."""
    return request_of(record) if of_requests else shard_key(getattr(record.event, "topic", ""))
