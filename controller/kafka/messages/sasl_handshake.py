"""SaslHandshake (17): the client names a SASL mechanism (KIP-43); v1 says that SaslAuthenticate follows (KIP-152)."""

from controller.kafka.messages.message import Message


class SaslHandshakeRequest(Message, frozen=True, kw_only=True):
    """The mechanism that the client wants."""

    mechanism: str = ""


class SaslHandshakeResponse(Message, frozen=True, kw_only=True):
    """Whether it may, and the mechanisms that are enabled."""

    error_code: int = 0
    mechanisms: tuple[str, ...] = ()
