"""SaslHandshake and SaslAuthenticate where nobody has to log in; on other listeners `controller.kafka.sasl.gate` takes
them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.kafka.handling import Handler, RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.access import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from controller.machine.errors import ErrorCode


def _handshake(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def _authenticate(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)


not_expected: Final[Mapping[int, Handler]] = {
    ApiKey.SASL_HANDSHAKE: _handshake,
    ApiKey.SASL_AUTHENTICATE: _authenticate,
}
"""What Kafka answers to a login that was not expected."""
