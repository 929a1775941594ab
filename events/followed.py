"""Whose decisions a log holds beside its own: those of another controller of the quorum, found in the metadata log.

Their events have the command FOLLOW as their cause, and a request id that names who led, in which epoch, and where in
the metadata log the decision begins.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from events.names import RequestId

FOLLOW: Final = "FollowController"
"""The command that is the cause of events that another controller decided."""
_ID = re.compile(r"controller-(\d{1,10})-epoch-(\d{1,10})-offset-(\d{1,19})")


class Followed(msgspec.Struct, frozen=True):
    """A decision of another controller: who led, the epoch, and the offset of its first record in the metadata log."""

    node_id: int
    leader_epoch: int
    offset: int

    @property
    def request_id(self) -> RequestId:
        """What stands as the request in the cause of its events."""
        return RequestId(f"controller-{self.node_id}-epoch-{self.leader_epoch}-offset-{self.offset}")

    @property
    def leader(self) -> str:
        """Who decided, in words."""
        return f"Kafka's controller {self.node_id}"


def followed(request_id: str) -> Followed | None:
    """The decision of another controller that a request id names; None if it names none."""
    found = _ID.fullmatch(request_id)
    return None if found is None else Followed(*map(int, found.groups()))
