"""Whose decisions a log holds beside its own: those of another controller of the quorum, found in the metadata log.

Their events have the command FOLLOW as their cause, and a request id that says where they were found: in a batch, who
led and in which epoch; or in a snapshot, of which it is not known who decided what.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from events.catalog import Cause, HistorySkipped, Recorded
from events.names import RequestId, shard_key

FOLLOW: Final = "FollowController"
"""The command that is the cause of events that another controller decided."""
_NOT_INDEXED: Final = ("AdoptMetadata", "HandMetadataBack", FOLLOW)
"""Commands whose events nobody requested here: they are in no request's index."""
_NOBODY: Final = -1
_ID = re.compile(r"(?:controller-(\d{1,10})|snapshot)-epoch-(\d{1,10})-offset-(\d{1,19})")


class Followed(msgspec.Struct, frozen=True):
    """Where decisions of another controller were found: in the batch of the metadata log whose first record is at
    `offset`, written by the node that led the epoch; or in the snapshot of all below `offset`, where no node is known.
    """

    node_id: int
    leader_epoch: int
    offset: int

    @property
    def cause(self) -> Cause:
        """Of its events."""
        return Cause(FOLLOW, self.request_id)

    @property
    def request_id(self) -> RequestId:
        """What stands for the request that led to its events."""
        found = f"controller-{self.node_id}" if self.node_id != _NOBODY else "snapshot"
        return RequestId(f"{found}-epoch-{self.leader_epoch}-offset-{self.offset}")

    @property
    def leader(self) -> str:
        """Who decided, in words."""
        return f"Kafka's controller {self.node_id}" if self.node_id != _NOBODY else "the cluster"

    @property
    def words(self) -> str:
        """Who decided, and when."""
        if self.node_id == _NOBODY:
            return f"as a snapshot of epoch {self.leader_epoch} has it"
        return f"decided by {self.leader}, which led epoch {self.leader_epoch}"

    @property
    def place(self) -> str:
        """Where that is in the metadata log."""
        begins = "up to" if self.node_id == _NOBODY else "from"
        return f"{begins} offset {self.offset} of the metadata log"


def skipped_to(skipped: HistorySkipped) -> Followed:
    """The snapshot that was taken in place of what is skipped."""
    return Followed(_NOBODY, skipped.leader_epoch, skipped.end_offset)


def followed(cause: Cause) -> Followed | None:
    """Where an event was found that another controller decided; None of one that was decided here."""
    found = _ID.fullmatch(cause.request_id) if cause.command == FOLLOW else None
    if found is None:
        return None
    node_id, epoch, offset = found.groups()
    return Followed(_NOBODY if node_id is None else int(node_id), int(epoch), int(offset))


def request_of(record: Recorded) -> str:
    """The request in whose index an event is: a client's, or the decision of another controller; "" for none."""
    own: str = getattr(record.event, "request_id", "")
    return own or (record.cause.request_id if record.cause.command == FOLLOW else "")


def was_requested(record: Recorded) -> bool:
    """Whether somebody requested here what led to an event: then it is in the index of requests."""
    return record.cause.command not in _NOT_INDEXED


def indexed_under(record: Recorded, of_requests: bool) -> str:
    """The shard key, or the request, under which an event is in the index of a log; a request "" is in none."""
    if of_requests:
        return request_of(record) if was_requested(record) else ""
    return shard_key(getattr(record.event, "topic", ""))
