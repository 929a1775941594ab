"""SaslAuthenticate (36): one step of a SASL conversation (KIP-152); v1 says how long the session lasts (KIP-368)."""

from controller.kafka.messages.message import Message


class SaslAuthenticateRequest(Message, frozen=True, kw_only=True):
    """What the mechanism's client says. Holds secrets: never log or show it."""

    auth_bytes: bytes = b""

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest(hidden)"


class SaslAuthenticateResponse(Message, frozen=True, kw_only=True):
    """What the mechanism's server says; `session_lifetime_ms` is 0 for a session without end."""

    error_code: int = 0
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0  # v1+
