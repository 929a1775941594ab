"""AlterUserScramCredentials and DescribeUserScramCredentials (KIP-554).

The client sends a salted password. The stored key and the server key are derived from it here and go into the log; the
salted password is not stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from controller.apis.acls import details_of
from controller.apis.limits import in_turns, slices
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages.access import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from controller.kafka.sasl.scram import keys_of
from controller.machine.access.credentials import MECHANISMS
from controller.machine.commands.access import AlterUserScramCredentials, ScramRemoval, ScramUpsert
from controller.machine.decision import Detail
from controller.machine.errors import ErrorCode
from controller.machine.state import Cluster

_Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion
USERS_PER_SLICE = 500
"""Users that are described, or changed by one command, at once."""
_DENIED = "Cluster authorization failed."


async def alter_user_scram_credentials(
    api: ControllerApi, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set and remove credentials; needs Alter on the cluster. One result a user, in order of first appearance."""
    changes: tuple[_Change, ...] = (*request.deletions, *request.upsertions)
    of_user: dict[str, list[_Change]] = {each.name: [] for each in changes}
    for each in changes:
        of_user[each.name].append(each)
    if not api.grants(context, "Alter"):
        return _response(dict.fromkeys(of_user, Detail(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _DENIED)))
    outcomes: dict[str, Detail] = {}
    for users in slices(list(of_user), USERS_PER_SLICE):
        outcomes |= await _alter(api, context, [each for user in users for each in of_user[user]])
    return _response(outcomes)


async def _alter(api: ControllerApi, context: RequestContext, changes: Sequence[_Change]) -> dict[str, Detail]:
    removals = [each for each in changes if isinstance(each, ScramCredentialDeletion)]
    upserts = [each for each in changes if isinstance(each, ScramCredentialUpsertion)]
    controller = api.controller
    command = AlterUserScramCredentials(
        request_id=controller.new_request_id(),
        at_ms=controller.now_ms(),
        principal=context.principal,
        client_id=context.client_id,
        host=context.host,
        removals=tuple(ScramRemoval(each.name, each.mechanism) for each in removals),
        upserts=tuple(map(_upsert, upserts)),
    )
    details = details_of(await api.submit_cluster(command), len(changes))
    names = [*(each.name for each in removals), *(each.name for each in upserts)]
    return dict(zip(names, details, strict=True))


def _upsert(wanted: ScramCredentialUpsertion) -> ScramUpsert:
    mechanism = MECHANISMS.get(wanted.mechanism)
    stored_key, server_key = (b"", b"") if mechanism is None else keys_of(mechanism, wanted.salted_password)
    return ScramUpsert(wanted.name, wanted.mechanism, wanted.iterations, wanted.salt, stored_key, server_key)


def _response(outcomes: Mapping[str, Detail]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(user=user, error_code=detail.code, error_message=detail.message or None)
            for user, detail in outcomes.items()
        )
    )


async def describe_user_scram_credentials(
    api: ControllerApi, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """The users with credentials: the requested ones, or all; needs Describe on the cluster. Without it, as in Kafka,
    each requested user has a result with the error and no name."""
    if not api.grants(context, "Describe"):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        row = DescribeUserScramCredentialsResult(error_code=code)
        return DescribeUserScramCredentialsResponse(error_code=code, results=(row,) * len(request.users or ()))
    cluster = api.cluster
    named = tuple(user.name for user in request.users or ())
    names = named or tuple(sorted({user for user, _ in cluster.scram}))
    times = Counter(names)
    results = await in_turns(
        api,
        context,
        list(times),
        USERS_PER_SLICE,
        lambda some: [_described(cluster, name, times[name] > 1) for name in some],
    )
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
