"""RemoveRaftVoter (81): one voter less in the quorum of controllers (KIP-853)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class RemoveRaftVoterRequest(Message, frozen=True, kw_only=True):
    cluster_id: str | None = None
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID


class RemoveRaftVoterResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
