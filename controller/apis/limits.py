"""Limits of one request and one response: Kafka's bounds on changes, and slices for what takes long.

A request beyond the bounds is rejected as a whole, with one error for each thing it names. The listeners of simulated
brokers reject changes in the same form, with NOT_CONTROLLER (KIP-4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from controller.apis import errors_of
from controller.controller_api import ControllerApi
from controller.kafka.codec.codec import encode_element
from controller.kafka.handling import Handler, RequestContext
from controller.kafka.messages import ApiKey, Encoded, Message, access, configs, topics
from controller.kafka.messages.access import DeleteAclsRequest
from controller.kafka.messages.message import Outcome
from controller.kafka.messages.topics import CreatePartitionsRequest, CreateTopicsRequest
from controller.machine.access.acls import ANY, LITERAL, PREFIXED
from controller.machine.decision import Detail
from controller.machine.errors import ErrorCode

CHANGES_MAX: Final = 10_000
"""Metadata records of one request, and partitions among them (QuorumController.MAX_RECORDS_PER_USER_OP)."""
ACLS_SCANNED_MAX: Final = 200_000
"""ACLs that the filters of one request may scan together."""
RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of the descriptions in one response."""
BATCH: Final = Detail(int(ErrorCode.POLICY_VIOLATION), "Unable to perform excessively large batch operation.")
PARTITIONS: Final = Detail(int(ErrorCode.POLICY_VIOLATION), "Excessively large number of partitions per request.")
MORE_PARTITIONS: Final = Detail(
    int(ErrorCode.POLICY_VIOLATION), "Excessively large number of additional partitions per request."
)
T = TypeVar("T")


def slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Slices of `size` items. Callers process each slice within `ControllerApi.turns` and sleep in between, so that the
    event loop does one slice a round, however many clients wait for long responses."""
    return (items[start : start + size] for start in range(0, len(items), size))


async def in_turns(
    api: ControllerApi,
    context: RequestContext,
    items: Sequence[T],
    size: int,
    elements: Callable[[Sequence[T]], Iterable[Any]],
    beyond: Callable[[Sequence[T]], Iterable[Any]] | None = None,
) -> tuple[Any, ...]:
    """The elements of a response array for these items. More than `size` items are encoded, one slice at a time. After
    `RESPONSE_BYTES_MAX` bytes, `beyond` makes the elements of the remaining items."""
    if len(items) <= size:
        return tuple(elements(items))
    encoded: list[bytes] = []
    left = RESPONSE_BYTES_MAX
    for part in slices(items, size):
        of_part = elements if left > 0 or beyond is None else beyond
        async with api.turns:
            more = [encode_element(context.api_key, context.api_version, each) for each in of_part(part)]
        encoded += more
        left -= sum(map(len, more))
        await asyncio.sleep(0)
    return Encoded(encoded)


def bounded(api: ControllerApi, api_key: ApiKey, handle: Handler) -> Handler:
    """The handler of an API that changes things, which rejects requests beyond Kafka's bounds as a whole."""
    check, fail = _CHECKS[api_key], _FAILED[api_key]

    def answer(context: RequestContext, request: Any) -> Any:
        error = check(api, request)
        return handle(context, request) if error is None else fail(request, error)

    return answer


def _topics(api: ControllerApi, request: CreateTopicsRequest) -> Detail | None:
    # The machine itself checks, and records, a request for one topic.
    if len(request.topics) < 2:
        return None
    partitions = sum(len(topic.assignments) or max(0, topic.num_partitions) for topic in request.topics)
    by_default = sum(topic.num_partitions == -1 and not topic.assignments for topic in request.topics)
    if by_default:
        partitions += by_default * api.cluster.settings.num_partitions
    if partitions > CHANGES_MAX:
        return PARTITIONS
    return _batch(partitions + len(request.topics) + sum(len(topic.configs) for topic in request.topics))


def _partitions(api: ControllerApi, request: CreatePartitionsRequest) -> Detail | None:
    if len(request.topics) < 2:
        return None
    if len(request.topics) > CHANGES_MAX:
        return BATCH
    if sum(max(0, topic.count) for topic in request.topics) <= CHANGES_MAX:
        return None
    added = 0
    for one in request.topics:
        topic = api.topic(one.name)
        added += max(0, one.count - len(topic.partitions)) if topic is not None else 0
    return MORE_PARTITIONS if added > CHANGES_MAX else None


def _batch(changes: int) -> Detail | None:
    return BATCH if changes > CHANGES_MAX else None


def _filters(api: ControllerApi, request: DeleteAclsRequest) -> Detail | None:
    # A filter that does not name one pattern scans all ACLs.
    wide = sum(
        each.resource_name_filter is None
        or each.resource_type_filter == ANY
        or each.pattern_type_filter not in (LITERAL, PREFIXED)
        for each in request.filters
    )
    scanned = wide * api.cluster.acls.count
    return BATCH if scanned > ACLS_SCANNED_MAX else _batch(len(request.filters))


def _configs(_: ControllerApi, request: Any) -> Detail | None:
    return _batch(sum(max(1, len(resource.configs)) for resource in request.resources))


_CHECKS: Final[dict[int, Callable[[ControllerApi, Any], Detail | None]]] = {
    ApiKey.CREATE_TOPICS: _topics,
    ApiKey.DELETE_TOPICS: lambda _, r: _batch(len(r.topics) + len(r.topic_names)),
    ApiKey.CREATE_PARTITIONS: _partitions,
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.CREATE_ACLS: lambda _, r: _batch(len(r.creations)),
    ApiKey.DELETE_ACLS: _filters,
    ApiKey.ALTER_CLIENT_QUOTAS: lambda _, r: _batch(sum(max(1, len(entry.ops)) for entry in r.entries)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda _, r: _batch(len(r.deletions) + len(r.upsertions)),
}
"""By API, the error of a request that is too large; None if it is not."""


def _created_topics(request: topics.CreateTopicsRequest, error: Detail) -> topics.CreateTopicsResponse:
    return topics.CreateTopicsResponse(
        topics=tuple(
            topics.CreatableTopicResult(name=name, **errors_of(error))
            for name in dict.fromkeys(topic.name for topic in request.topics)
        )
    )


def _deleted_topics(request: topics.DeleteTopicsRequest, error: Detail) -> topics.DeleteTopicsResponse:
    states = request.topics or tuple(topics.DeleteTopicState(name=name) for name in request.topic_names)
    return topics.DeleteTopicsResponse(
        responses=tuple(
            topics.DeletableTopicResult(name=one.name, topic_id=one.topic_id, **errors_of(error)) for one in states
        )
    )


def _created_partitions(request: topics.CreatePartitionsRequest, error: Detail) -> topics.CreatePartitionsResponse:
    return topics.CreatePartitionsResponse(
        results=tuple(
            topics.CreatePartitionsTopicResult(name=topic.name, **errors_of(error)) for topic in request.topics
        )
    )


def _altered_configs(request: configs.AlterConfigsRequest, error: Detail) -> configs.AlterConfigsResponse:
    return configs.AlterConfigsResponse(
        responses=tuple(
            configs.AlterConfigsResourceResponse(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                **errors_of(error),
            )
            for one in request.resources
        )
    )


def _created_acls(request: access.CreateAclsRequest, error: Detail) -> access.CreateAclsResponse:
    result = Outcome(**errors_of(error))
    return access.CreateAclsResponse(results=(result,) * len(request.creations))


def _deleted_acls(request: access.DeleteAclsRequest, error: Detail) -> access.DeleteAclsResponse:
    result = access.DeleteAclsFilterResult(**errors_of(error))
    return access.DeleteAclsResponse(filter_results=(result,) * len(request.filters))


def _altered_quotas(request: access.AlterClientQuotasRequest, error: Detail) -> access.AlterClientQuotasResponse:
    return access.AlterClientQuotasResponse(
        entries=tuple(access.AlteredEntryData(**errors_of(error), entity=entry.entity) for entry in request.entries)
    )


def _altered_users(
    request: access.AlterUserScramCredentialsRequest, error: Detail
) -> access.AlterUserScramCredentialsResponse:
    users = dict.fromkeys([*(one.name for one in request.deletions), *(one.name for one in request.upsertions)])
    return access.AlterUserScramCredentialsResponse(
        results=tuple(access.AlterUserScramCredentialsResult(user=user, **errors_of(error)) for user in users)
    )


_FAILED: Final[Mapping[int, Callable[[Any, Detail], Message]]] = {
    ApiKey.CREATE_TOPICS: _created_topics,
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.CREATE_PARTITIONS: _created_partitions,
    ApiKey.ALTER_CONFIGS: _altered_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _altered_configs,
    ApiKey.CREATE_ACLS: _created_acls,
    ApiKey.DELETE_ACLS: _deleted_acls,
    ApiKey.ALTER_CLIENT_QUOTAS: _altered_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _altered_users,
}
"""By API, the response with one error for everything that a request names."""

CHANGES: Final = frozenset(_FAILED)
"""The APIs that change things."""


def rejecting(api_key: int, error: Detail) -> Handler:
    """A handler that answers every request with this error."""
    return lambda _, request: _FAILED[api_key](request, error)


NOT_CONTROLLER: Final = Detail(int(ErrorCode.NOT_CONTROLLER), "This is not the correct controller for this cluster.")
NOT_CONTROLLER_HANDLERS: Final[Mapping[int, Handler]] = {
    key: rejecting(key, NOT_CONTROLLER) for key in CHANGES if key != ApiKey.ALTER_USER_SCRAM_CREDENTIALS
}
"""The responses of a simulated broker to requests for the controller."""
