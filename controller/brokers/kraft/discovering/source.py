"""Who decided what is discovered, in the words that its events have."""

from __future__ import annotations

import msgspec

from events.followed import followed
from events.names import RequestId


class Source(msgspec.Struct, frozen=True):
    """What the events of one discovery share."""

    request_id: RequestId
    principal: str
    """Stands for whoever requested it at the controller that decided, which its records do not say."""
    reason: str


def source_of(request_id: RequestId) -> Source:
    """What another controller decided, by the request id that names it (see `events.followed`)."""
    decided = followed(request_id)
    leader = decided.leader if decided is not None else "another controller"
    return Source(request_id, leader, f"by {leader}")
