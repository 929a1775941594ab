"""The handlers of APIs for access, which `tables` gives to listeners: CreateAcls, DescribeAcls and DeleteAcls (KIP-140,
KIP-290), AlterClientQuotas and DescribeClientQuotas (KIP-546), AlterUserScramCredentials and
DescribeUserScramCredentials (KIP-554). Changes become commands for the state machine; descriptions come from its
durable state.

Clients send salted passwords. The stored key and the server key are derived here and go into the log; the salted
password is not stored.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from typing import Final

from controller.access.authorizer import Operation
from controller.apis import Call, errors_of
from controller.apis.limits import BATCH, batch_error, in_turns, slices
from controller.kafka.handling import ANONYMOUS, Disconnect
from controller.kafka.messages import access
from controller.kafka.sasl import keys_of
from controller.machine.access import acls as codes
from controller.machine.access.acls import ALLOW, PREFIXED, Pattern, pattern_of
from controller.machine.access.requests import CLIENT_ID, IP, MECHANISMS, OPERATIONS, USER, canonical_entity
from controller.machine.commands.access import AclFilter, AlterClientQuotas, CreateAcls, DeleteAcls, QuotaAlteration
from controller.machine.commands.commands import AlterUserScramCredentials, ScramChange
from controller.machine.decision import Detail
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.state import Cluster, ScramCredential
from controller.quorum.log.record_kinds import acl_fields
from events.access import Acl, QuotaEntity

DISABLED: Final = Detail(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
DENIED: Final = Detail(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
CREATION_FIELDS: Final = (
    "resource_type", "resource_pattern_type", "resource_name", "principal", "host", "operation", "permission_type",
)  # fmt: skip
FILTER_FIELDS: Final = (
    "resource_type_filter", "pattern_type_filter", "resource_name_filter", "principal_filter", "host_filter",
    "operation", "permission_type",
)  # fmt: skip
"""The fields of an ACL and of a filter in requests, in the order of `Acl` and `AclFilter`."""
ACLS_SCANNED_MAX: Final = 200_000
"""ACLs that the filters of one request may scan together."""
PER_SLICE: Final = 500
"""The number of patterns, quota entities or users in one slice of a long request or response."""


async def create_acls(call: Call, request: access.CreateAclsRequest) -> access.CreateAclsResponse:
    """Answer CreateAcls. Raises Disconnect for unknown codes, because Kafka cannot parse such a request."""
    for one in request.creations:
        _check_codes(one.resource_type, one.resource_pattern_type, one.operation, one.permission_type)
    acls = tuple(Acl(*map(partial(getattr, one), CREATION_FIELDS)) for one in request.creations)
    wrong = batch_error(len(acls)) or _denial(call, "Alter")
    command = CreateAcls(**call.origin(), acls=acls)
    details = await call.api.submit_cluster(command, len(acls)) if wrong is None else [wrong] * len(acls)
    return access.CreateAclsResponse(results=tuple(access.AclCreationResult(**errors_of(each)) for each in details))


async def describe_acls(call: Call, request: access.DescribeAclsRequest) -> access.DescribeAclsResponse:
    """Answer DescribeAcls with the ACLs that match a filter. Raises Disconnect for unknown codes."""
    requested = _filter(request)
    wrong = _denial(call, "Describe")
    if wrong is not None:
        return access.DescribeAclsResponse(**errors_of(wrong))
    matching = call.api.cluster.acls.matching(requested)
    found = [(pattern, tuple(acls)) for pattern, acls in groupby(matching, key=pattern_of)]
    resources = await in_turns(call, found, PER_SLICE, lambda one: _resource(*one))
    return access.DescribeAclsResponse(resources=resources)


def _resource(pattern: Pattern, acls: tuple[Acl, ...]) -> access.DescribeAclsResource:
    kind, pattern_type, name = pattern
    described = tuple(
        access.AclDescription(
            principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
        )
        for acl in acls
    )
    return access.DescribeAclsResource(
        resource_type=kind, resource_name=name, pattern_type=pattern_type, acls=described
    )


async def delete_acls(call: Call, request: access.DeleteAclsRequest) -> access.DeleteAclsResponse:
    """Answer DeleteAcls: remove the ACLs that match filters. Raises Disconnect for unknown codes."""
    filters = tuple(_filter(one) for one in request.filters)
    wide = sum(  # they do not name one pattern, so each scans all ACLs
        each.name is None or each.resource_type == codes.ANY or each.pattern_type not in (codes.LITERAL, PREFIXED)
        for each in filters
    )
    wrong = BATCH if wide * call.api.cluster.acls.count > ACLS_SCANNED_MAX else batch_error(len(filters))
    wrong = wrong or _denial(call, "Alter")
    command = DeleteAcls(**call.origin(), filters=filters)
    details = await call.api.submit_cluster(command, len(filters)) if wrong is None else [wrong] * len(filters)
    return access.DeleteAclsResponse(
        filter_results=tuple(
            access.DeleteAclsFilterResult(
                **errors_of(each),
                matching_acls=tuple(access.DeleteAclsMatchingAcl(**acl_fields(acl)) for acl in each.acls),
            )
            for each in details
        )
    )


def _denial(call: Call, operation: Operation) -> Detail | None:
    if not call.grants(operation):
        return DENIED
    return DISABLED if call.api.authorizer is None else None


def _filter(requested: access.DescribeAclsRequest | access.DeleteAclsFilter) -> AclFilter:
    _check_codes(
        requested.resource_type_filter, requested.pattern_type_filter, requested.operation, requested.permission_type
    )
    return AclFilter(*map(partial(getattr, requested), FILTER_FIELDS))


def _check_codes(resource_type: int, pattern_type: int, operation: int, permission: int) -> None:
    """Raises Disconnect for unknown codes."""
    for what, code, most in (
        ("resource type", resource_type, codes.USER),
        ("pattern type", pattern_type, PREFIXED),
        ("operation", operation, OPERATIONS[-1]),
        ("permission type", permission, ALLOW),
    ):
        if not 1 <= code <= most:
            raise Disconnect(f"unknown {what} {code} in a request about ACLs; known are 1 to {most}")


EXACT, DEFAULT, SPECIFIED = 0, 1, 2
"""Match types of a filter component."""


async def alter_client_quotas(call: Call, request: access.AlterClientQuotasRequest) -> access.AlterClientQuotasResponse:
    """Answer AlterClientQuotas: change the quotas of each entity; needs AlterConfigs on the cluster."""
    wrong = batch_error(sum(max(1, len(entry.ops)) for entry in request.entries))
    if wrong is None and not call.grants("AlterConfigs"):
        wrong = DENIED
    details = await _alter_in_slices(call, request) if wrong is None else [wrong] * len(request.entries)
    return access.AlterClientQuotasResponse(
        entries=tuple(
            access.AlteredEntryData(**errors_of(each), entity=entry.entity)
            for each, entry in zip(details, request.entries, strict=True)
        )
    )


async def _alter_in_slices(call: Call, request: access.AlterClientQuotasRequest) -> Sequence[Detail]:
    """Submit one command for each slice. Duplicate entries of an entity stay in one command, so that the decision
    can reject them."""
    together: dict[QuotaEntity, list[int]] = {}
    for number, entry in enumerate(request.entries):
        together.setdefault(canonical_entity(_entity(entry)), []).append(number)
    details = [Detail()] * len(request.entries)
    for entities in slices(list(together.values()), PER_SLICE):
        numbers = list(chain.from_iterable(entities))
        alterations = tuple(
            QuotaAlteration(_entity(each), tuple((op.key, None if op.remove else op.value) for op in each.ops))
            for each in (request.entries[number] for number in numbers)
        )
        origin, validate_only = call.origin(), request.validate_only
        command = AlterClientQuotas(**origin, alterations=alterations, validate_only=validate_only)
        for number, detail in zip(numbers, await call.api.submit_cluster(command, len(numbers)), strict=True):
            details[number] = detail
    return details


def _entity(entry: access.EntryData) -> QuotaEntity:
    return tuple((part.entity_type, part.entity_name) for part in entry.entity)


async def describe_client_quotas(
    call: Call, request: access.DescribeClientQuotasRequest
) -> access.DescribeClientQuotasResponse:
    """Answer DescribeClientQuotas: the entities that match all components; with `strict`, without other components."""
    wrong = next(_filter_errors(request.components), None) if call.grants("DescribeConfigs") else DENIED
    if wrong is not None:
        return access.DescribeClientQuotasResponse(**errors_of(wrong), entries=None)
    quotas = call.api.cluster.quotas
    entities = sorted(quotas, key=lambda one: [(kind, name or "") for kind, name in one])

    def entry(entity: QuotaEntity) -> access.DescribedEntryData | None:
        return _entry(entity, quotas[entity]) if _matches(dict(entity), request) else None

    found = await in_turns(call, entities, PER_SLICE, entry)
    return access.DescribeClientQuotasResponse(entries=found)


def _matches(entity: dict[str, str | None], request: access.DescribeClientQuotasRequest) -> bool:
    if request.strict and len(entity) != len(request.components):
        return False
    return all(
        one.entity_type in entity and (one.match_type == SPECIFIED or entity[one.entity_type] == one.match)
        for one in request.components
    )


def _entry(entity: QuotaEntity, values: tuple[tuple[str, float], ...]) -> access.DescribedEntryData:
    return access.DescribedEntryData(
        entity=tuple(access.EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
        values=tuple(access.ValueData(key=key, value=value) for key, value in values),
    )


def _filter_errors(components: Sequence[access.ComponentData]) -> Iterator[Rejection]:
    """Kafka's validation of filters (ClientQuotasImage.describe)."""
    seen: set[str] = set()
    for one in components:
        if not one.entity_type:
            yield _invalid("Invalid empty entity type.")
        if one.entity_type in seen:
            yield _invalid(f"Entity type {one.entity_type} cannot appear more than once in the filter.")
        if one.entity_type not in (USER, CLIENT_ID, IP):
            message = f"Unsupported entity type {one.entity_type}"
            yield Rejection(ErrorCode.UNSUPPORTED_VERSION, message, "validation:quota-filter")
        if one.match_type == EXACT and one.match is None:
            yield _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if one.match_type == DEFAULT and one.match is not None:
            yield _invalid("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
        if one.match_type == SPECIFIED and one.match is not None:
            yield _invalid("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
        if one.match_type not in (EXACT, DEFAULT, SPECIFIED):
            yield _invalid(f"Unknown match type {one.match_type}")
        seen.add(one.entity_type)
    if IP in seen and len(seen) > 1:
        yield _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )


def _invalid(message: str) -> Rejection:
    return Rejection(ErrorCode.INVALID_REQUEST, message, "validation:quota-filter")


async def alter_user_scram_credentials(
    call: Call, request: access.AlterUserScramCredentialsRequest
) -> access.AlterUserScramCredentialsResponse:
    """Answer AlterUserScramCredentials; needs Alter on the cluster. One result a user, in order of first appearance."""
    names = [*(one.name for one in request.deletions), *(one.name for one in request.upsertions)]
    wrong = batch_error(len(names))
    outcomes = dict.fromkeys(names, wrong or DENIED)
    if wrong is None and call.grants("Alter"):
        for users in slices(list(outcomes), PER_SLICE):
            outcomes |= await _alter_credentials(call, request, frozenset(users))
    return access.AlterUserScramCredentialsResponse(
        results=tuple(
            access.AlterUserScramCredentialsResult(user=user, **errors_of(detail)) for user, detail in outcomes.items()
        )
    )


async def _alter_credentials(
    call: Call, request: access.AlterUserScramCredentialsRequest, users: frozenset[str]
) -> dict[str, Detail]:
    """Submit one command with the changes of these users. Returns the result of each user."""
    rows: tuple[ScramRow, ...] = (*request.deletions, *request.upsertions)
    changes = [scram_change(one) for one in rows if one.name in users]
    command = AlterUserScramCredentials(**call.origin(), changes=tuple(changes))
    details = await call.api.submit_cluster(command, len(changes))
    return dict(zip((one.user for one in changes), details, strict=True))


ScramRow = access.ScramCredentialDeletion | access.ScramCredentialUpsertion


def scram_change(requested: ScramRow) -> ScramChange:
    if isinstance(requested, access.ScramCredentialDeletion):
        return ScramChange(requested.name, requested.mechanism)
    mechanism = MECHANISMS.get(requested.mechanism)
    keys = (b"", b"") if mechanism is None else keys_of(mechanism, requested.salted_password)
    return ScramChange(
        requested.name, requested.mechanism, ScramCredential(requested.iterations, requested.salt, *keys)
    )


async def describe_user_scram_credentials(
    call: Call, request: access.DescribeUserScramCredentialsRequest
) -> access.DescribeUserScramCredentialsResponse:
    """Answer DescribeUserScramCredentials: the requested users, or all; needs Describe on the cluster. Without that
    permission, as in Kafka, each requested user has a result with the error and no name."""
    if not call.grants("Describe"):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        row = access.DescribeUserScramCredentialsResult(error_code=code)
        return access.DescribeUserScramCredentialsResponse(error_code=code, results=(row,) * len(request.users or ()))
    cluster = call.api.cluster
    named = tuple(user.name for user in request.users or ())
    names = named or tuple(sorted({user for user, _ in cluster.scram}))
    times = Counter(names)
    results = await in_turns(call, list(times), PER_SLICE, lambda name: _described_user(cluster, name, times[name] > 1))
    return access.DescribeUserScramCredentialsResponse(results=results)


def _described_user(cluster: Cluster, user: str, twice: bool) -> access.DescribeUserScramCredentialsResult:
    if twice:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return _not_described(user, ErrorCode.DUPLICATE_RESOURCE, message)
    known = [(number, cluster.scram.get((user, mechanism))) for number, mechanism in MECHANISMS.items()]
    infos = tuple(access.CredentialInfo(mechanism=n, iterations=one.iterations) for n, one in known if one is not None)
    if not infos:
        message = f"Attempt to describe a user credential that does not exist: {user}"
        return _not_described(user, ErrorCode.RESOURCE_NOT_FOUND, message)
    return access.DescribeUserScramCredentialsResult(user=user, credential_infos=infos)


def _not_described(user: str, code: ErrorCode, message: str) -> access.DescribeUserScramCredentialsResult:
    return access.DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=message)


def describe_delegation_tokens(
    call: Call, _: access.DescribeDelegationTokenRequest
) -> access.DescribeDelegationTokenResponse:
    """Answer DescribeDelegationToken as a Kafka without `delegation.token.secret.key`."""
    is_anonymous = call.context.principal == ANONYMOUS
    disabled, refused = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return access.DescribeDelegationTokenResponse(error_code=refused if is_anonymous else disabled)
