"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken (KIP-48): refused as by a Kafka that has
them disabled, for want of a `delegation.token.secret.key`. Those of a cluster that is taken over stay as they are.
"""

from __future__ import annotations

from controller.kafka.handling import RequestContext
from controller.kafka.messages.access import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from controller.machine.errors import ErrorCode

_DISABLED = int(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def refuse_creation(context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    """No token; the owner and the requester are named, as Kafka does."""
    requester_type, _, requester = context.principal.partition(":")
    named = bool(request.owner_principal_name)
    return CreateDelegationTokenResponse(
        error_code=_DISABLED,
        principal_type=(request.owner_principal_type or "") if named else requester_type,
        principal_name=(request.owner_principal_name or "") if named else requester,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
    )


def refuse_renewal(_: RequestContext, __: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    """No token lives longer."""
    return RenewDelegationTokenResponse(error_code=_DISABLED)


def refuse_expiry(_: RequestContext, __: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    """No token ends sooner."""
    return ExpireDelegationTokenResponse(error_code=_DISABLED)
