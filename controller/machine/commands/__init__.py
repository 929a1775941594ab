"""What the machine decides on: requests and observations."""

from __future__ import annotations

import msgspec

from events.names import RequestId, TopicName

NO_TOPIC = TopicName("")
"""Stands where a command that concerns no topic would have one: its answer is filed under the empty name."""


class Command(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Base of all commands: `request_id` names the cause of what follows, `at_ms` is the time it happens at."""

    request_id: RequestId
    at_ms: int
