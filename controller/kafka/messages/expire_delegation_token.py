"""ExpireDelegationToken (40): have a token live shorter (KIP-48)."""

from controller.kafka.messages.message import Message


class ExpireDelegationTokenRequest(Message, frozen=True, kw_only=True):
    hmac: bytes = b""
    expiry_time_period_ms: int = 0


class ExpireDelegationTokenResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0
