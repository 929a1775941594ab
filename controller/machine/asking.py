"""What all commands have, and what all that clients ask for has."""

from __future__ import annotations

import msgspec

from events.names import RequestId, TopicName

LATEST_CREATE_TOPICS = 7
"""The newest CreateTopics version: asks that do not come through CreateTopics follow its rules."""


NO_TOPIC = TopicName("")
"""Stands where an ask that concerns no topic would have one."""


class Command(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Base of all commands: `request_id` names the cause of what follows, `at_ms` is the time it happens at."""

    request_id: RequestId
    at_ms: int


class Clearance(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the cluster that carries decisions out said of an ask when it was tried there without effect: 0, or the
    error code and message with which it would refuse."""

    error_code: int = 0
    message: str = ""


class Ask(Command, frozen=True, kw_only=True, gc=False):
    """Base of what a client asks for: who asks, about which topic, through what.

    `api` is Kafka's name of the request, `Metadata` for an auto-creation (KIP-361), or `HTTP`; `api_version` its
    version. `denied` is the error code of the authorizer, 0 when it allows the ask. `duplicate` says that the request
    named the topic more than once; it is put once all the same. `validate_only` runs all the checks and changes
    nothing (KIP-108). `clearance` is what the cluster says that carries decisions out, None while it was not asked, or
    where there is none. `throttle_ms` above 0 says for how long the asker's mutation quota is exhausted (KIP-599).
    """

    topic: TopicName
    principal: str = "User:ANONYMOUS"
    client_id: str | None = None
    api: str = "CreateTopics"
    api_version: int = LATEST_CREATE_TOPICS
    denied: int = 0
    duplicate: bool = False
    validate_only: bool = False
    clearance: Clearance | None = None
    throttle_ms: int = 0


class ClusterAsk(Command, frozen=True, kw_only=True, gc=False):
    """Base of what a client asks for that concerns no topic: one command a request, answered with details.

    Who may not ask is turned away before there is a command.
    """

    principal: str = "User:ANONYMOUS"
    client_id: str | None = None

    @property
    def topic(self) -> TopicName:
        """None: answers to it are filed under the empty name."""
        return NO_TOPIC
