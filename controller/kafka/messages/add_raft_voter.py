"""AddRaftVoter (80): a further voter for the quorum of controllers (KIP-853)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class Listener(Message, frozen=True, kw_only=True):
    """Where the voter can be reached."""

    name: str = ""
    host: str = ""
    port: int = 0


class AddRaftVoterRequest(Message, frozen=True, kw_only=True):
    cluster_id: str | None = None
    timeout_ms: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID
    listeners: tuple[Listener, ...] = ()
    ack_when_committed: bool = True  # v1+


class AddRaftVoterResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
