"""DeleteTopics (20): by name, and from v6 by name or id (KIP-516)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class DeleteTopicState(Message, frozen=True, kw_only=True):
    """A topic named by name or by id, never both."""

    name: str | None = None  # v6+
    topic_id: bytes = ZERO_UUID  # v6+


class DeleteTopicsRequest(Message, frozen=True, kw_only=True):
    """Topics to delete: `topic_names` up to v5, `topics` after."""

    topics: tuple[DeleteTopicState, ...] = ()  # v6+
    timeout_ms: int = 0
    topic_names: tuple[str, ...] = ()  # v0 to v5


class DeletableTopicResult(Message, frozen=True, kw_only=True):
    """The outcome for one topic; a null name (v6+) where only an id was given and nothing is known of it."""

    name: str | None = None
    topic_id: bytes = ZERO_UUID  # v6+
    error_code: int = 0
    error_message: str | None = None  # v5+


class DeleteTopicsResponse(Message, frozen=True, kw_only=True):
    """One outcome a topic."""

    throttle_time_ms: int = 0  # v1+
    responses: tuple[DeletableTopicResult, ...] = ()
