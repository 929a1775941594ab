"""Commands: requests of clients, and observations of brokers and timers."""

import msgspec

from events.names import RequestId, TopicName

NO_TOPIC = TopicName("")
"""The topic name of commands that are not about a topic, and of their answers."""


class Command(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Base of all commands. `request_id` identifies the cause of the resulting events, `at_ms` is the time of the
    command."""

    request_id: RequestId
    at_ms: int
