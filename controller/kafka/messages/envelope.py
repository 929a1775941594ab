"""Envelope (58): a request that a broker forwards for a client, with the client's principal (KIP-590)."""

from controller.kafka.messages.message import Message


class EnvelopeRequest(Message, frozen=True, kw_only=True):
    request_data: bytes = b""
    request_principal: bytes | None = None
    client_host_address: bytes = b""


class EnvelopeResponse(Message, frozen=True, kw_only=True):
    response_data: bytes | None = None
    error_code: int = 0
