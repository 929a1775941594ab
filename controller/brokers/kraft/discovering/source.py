"""Who decided what is discovered, in the words that its events have."""

from __future__ import annotations

import msgspec

from events.catalog import Cause
from events.external_decision import FOLLOW, external_decision
from events.names import RequestId


class Source(msgspec.Struct, frozen=True):
    """What the events of one discovery share."""

    request_id: RequestId
    principal: str
    """Stands for whoever requested it at the controller that decided, which its records do not say."""
    reason: str


def source_of(request_id: RequestId) -> Source:
    """Another controller, as the events have it that are of this request."""
    decided = external_decision(Cause(FOLLOW, request_id))
    assert decided is not None, f"{request_id} is the id of a decision that was external_decision"
    return Source(decided.request_id, decided.leader, decided.summary)
