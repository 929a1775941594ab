"""CreateDelegationToken (38): a token to log in with in place of a password (KIP-48)."""

from controller.kafka.messages.message import Message


class CreatableRenewers(Message, frozen=True, kw_only=True):
    """Somebody who may renew the token."""

    principal_type: str = ""
    principal_name: str = ""


class CreateDelegationTokenRequest(Message, frozen=True, kw_only=True):
    """Without an owner the token is for the sender."""

    owner_principal_type: str | None = None  # v3+
    owner_principal_name: str | None = None  # v3+
    renewers: tuple[CreatableRenewers, ...] = ()
    max_lifetime_ms: int = 0


class CreateDelegationTokenResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""  # v3+
    token_requester_principal_name: str = ""  # v3+
    issue_timestamp_ms: int = 0
    expiry_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: int = 0
