"""The handlers of CreateAcls, DescribeAcls and DeleteAcls (KIP-140, KIP-290), which `tables` gives to listeners.
Changes become commands for the state machine; descriptions come from its durable state."""

from __future__ import annotations

from functools import partial
from itertools import groupby, starmap
from typing import Final

from controller.access.authorizer import Operation
from controller.apis import errors_of, origin_of
from controller.apis.limits import in_turns
from controller.controller_api import ControllerApi
from controller.kafka.handling import Disconnect, RequestContext
from controller.kafka.messages import access
from controller.machine.access.acls import ALLOW, PREFIXED, USER, Pattern, pattern_of
from controller.machine.access.permissions import OPERATIONS
from controller.machine.commands.access import AclFilter, CreateAcls, DeleteAcls
from controller.machine.decision import Detail
from controller.machine.errors import ErrorCode
from events.access import Acl

DISABLED: Final = Detail(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
DENIED: Final = Detail(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
PATTERNS_PER_SLICE: Final = 500
"""The number of patterns of a long response that one slice encodes."""


async def create_acls(
    api: ControllerApi, context: RequestContext, request: access.CreateAclsRequest
) -> access.CreateAclsResponse:
    """Answer CreateAcls. Raises Disconnect for unknown codes, because Kafka cannot parse such a request."""
    for one in request.creations:
        _check_codes(one.resource_type, one.resource_pattern_type, one.operation, one.permission_type)
    wrong = _denial(api, context, "Alter")
    if wrong is not None:
        return access.CreateAclsResponse(
            results=(access.AclCreationResult(**errors_of(wrong)),) * len(request.creations)
        )
    acls = tuple(
        Acl(
            one.resource_type,
            one.resource_pattern_type,
            one.resource_name,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for one in request.creations
    )
    details = await api.submit_cluster(CreateAcls(**origin_of(api, context), acls=acls), len(acls))
    return access.CreateAclsResponse(results=tuple(access.AclCreationResult(**errors_of(each)) for each in details))


async def describe_acls(
    api: ControllerApi, context: RequestContext, request: access.DescribeAclsRequest
) -> access.DescribeAclsResponse:
    """Answer DescribeAcls with the ACLs that match a filter. Raises Disconnect for unknown codes."""
    requested = _filter(request)
    wrong = _denial(api, context, "Describe")
    if wrong is not None:
        return access.DescribeAclsResponse(**errors_of(wrong))
    found = [(pattern, tuple(acls)) for pattern, acls in groupby(api.cluster.acls.matching(requested), key=pattern_of)]
    resources = await in_turns(api, context, found, PATTERNS_PER_SLICE, partial(starmap, _resource))
    return access.DescribeAclsResponse(resources=resources)


def _resource(pattern: Pattern, acls: tuple[Acl, ...]) -> access.DescribeAclsResource:
    kind, pattern_type, name = pattern
    return access.DescribeAclsResource(
        resource_type=kind, resource_name=name, pattern_type=pattern_type, acls=tuple(map(_described, acls))
    )


async def delete_acls(
    api: ControllerApi, context: RequestContext, request: access.DeleteAclsRequest
) -> access.DeleteAclsResponse:
    """Answer DeleteAcls: remove the ACLs that match filters. Raises Disconnect for unknown codes."""
    filters = tuple(_filter(one) for one in request.filters)
    wrong = _denial(api, context, "Alter")
    if wrong is not None:
        return access.DeleteAclsResponse(
            filter_results=(access.DeleteAclsFilterResult(**errors_of(wrong)),) * len(filters)
        )
    details = await api.submit_cluster(DeleteAcls(**origin_of(api, context), filters=filters), len(filters))
    return access.DeleteAclsResponse(
        filter_results=tuple(
            access.DeleteAclsFilterResult(**errors_of(each), matching_acls=tuple(map(_matching, each.acls)))
            for each in details
        )
    )


def _denial(api: ControllerApi, context: RequestContext, operation: Operation) -> Detail | None:
    if not api.grants(context, operation):
        return DENIED
    return DISABLED if api.authorizer is None else None


def _filter(requested: access.DescribeAclsRequest | access.DeleteAclsFilter) -> AclFilter:
    _check_codes(
        requested.resource_type_filter, requested.pattern_type_filter, requested.operation, requested.permission_type
    )
    return AclFilter(
        requested.resource_type_filter,
        requested.pattern_type_filter,
        requested.resource_name_filter,
        requested.principal_filter,
        requested.host_filter,
        requested.operation,
        requested.permission_type,
    )


def _check_codes(resource_type: int, pattern_type: int, operation: int, permission: int) -> None:
    """Raises Disconnect for unknown codes."""
    for what, code, most in (
        ("resource type", resource_type, USER),
        ("pattern type", pattern_type, PREFIXED),
        ("operation", operation, OPERATIONS[-1]),
        ("permission type", permission, ALLOW),
    ):
        if not 1 <= code <= most:
            raise Disconnect(f"unknown {what} {code} in a request about ACLs; known are 1 to {most}")


def _described(acl: Acl) -> access.AclDescription:
    return access.AclDescription(
        principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
    )


def _matching(acl: Acl) -> access.DeleteAclsMatchingAcl:
    return access.DeleteAclsMatchingAcl(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
