"""AlterUserScramCredentials and DescribeUserScramCredentials (KIP-554).

The client salts its password and sends that; what can check a login is derived from it here and goes into the log, and
what was sent is forgotten.
"""

from __future__ import annotations

from controller.kafka.handling import RequestContext
from controller.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from controller.kafka.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from controller.kafka.sasl.scram import keys_of
from controller.machine.commands import AlterUserScramCredentials, ScramRemoval, ScramUpsert
from controller.machine.credentials import MECHANISMS
from controller.machine.decision import Detail
from controller.machine.errors import ErrorCode
from controller.machine.state import Cluster
from controller.runtime.front import Front

_DENIED = "Cluster authorization failed."


class AlterUserScramCredentialsHandler:
    """Sets and removes credentials; needs `Alter` on the cluster."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def __call__(
        self, context: RequestContext, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        """One outcome a user, in the order in which users are first named."""
        users = [*(each.name for each in request.deletions), *(each.name for each in request.upsertions)]
        if not self._front.grants(context, "Alter"):
            return _response(users, [Detail(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _DENIED)] * len(users))
        controller = self._front.controller
        command = AlterUserScramCredentials(
            request_id=controller.new_request_id(),
            at_ms=controller.now_ms(),
            principal=context.principal,
            client_id=context.client_id,
            removals=tuple(ScramRemoval(each.name, each.mechanism) for each in request.deletions),
            upserts=tuple(map(_upsert, request.upsertions)),
        )
        (answer,) = await self._front.ask([command])
        return _response(users, answer.details or [Detail(answer.code, answer.message)] * len(users))


def _upsert(asked: ScramCredentialUpsertion) -> ScramUpsert:
    mechanism = MECHANISMS.get(asked.mechanism)
    stored_key, server_key = (b"", b"") if mechanism is None else keys_of(mechanism, asked.salted_password)
    return ScramUpsert(asked.name, asked.mechanism, asked.iterations, asked.salt, stored_key, server_key)


def _response(users: list[str], details: tuple[Detail, ...] | list[Detail]) -> AlterUserScramCredentialsResponse:
    outcomes = dict(zip(users, details, strict=True))
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(user=user, error_code=told.code, error_message=told.message or None)
            for user, told in outcomes.items()
        )
    )


class DescribeUserScramCredentialsHandler:
    """Tells who has credentials; needs `Describe` on the cluster."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def __call__(
        self, context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        """The users asked for, or all."""
        if not self._front.grants(context, "Describe"):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return DescribeUserScramCredentialsResponse(error_code=code, error_message=_DENIED)
        cluster = self._front.cluster
        asked = tuple(user.name for user in request.users or ())
        names = asked or tuple(sorted({user for user, _ in cluster.scram}))
        twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
        results = tuple(_described(cluster, name, name in twice) for name in dict.fromkeys(names))
        return DescribeUserScramCredentialsResponse(results=results)


def _described(cluster: Cluster, user: str, twice: bool) -> DescribeUserScramCredentialsResult:
    if twice:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return DescribeUserScramCredentialsResult(
            user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message
        )
    known = [(number, cluster.scram.get((user, mechanism))) for number, mechanism in MECHANISMS.items()]
    infos = tuple(CredentialInfo(mechanism=n, iterations=one.iterations) for n, one in known if one is not None)
    if not infos:
        message = f"Attempt to describe a user credential that does not exist: {user}"
        return DescribeUserScramCredentialsResult(
            user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message
        )
    return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)
