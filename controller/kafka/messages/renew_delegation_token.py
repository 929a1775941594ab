"""RenewDelegationToken (39): have a token live longer (KIP-48)."""

from controller.kafka.messages.message import Message


class RenewDelegationTokenRequest(Message, frozen=True, kw_only=True):
    hmac: bytes = b""
    renew_period_ms: int = 0


class RenewDelegationTokenResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0
