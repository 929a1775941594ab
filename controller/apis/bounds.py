"""How much one request may change, and how much one answer may hold: Kafka's bounds, and turns for what takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from controller.apis import for_each
from controller.controller_api import ControllerApi
from controller.kafka.codec.codec import encode_element
from controller.kafka.handling import Handler, RequestContext
from controller.kafka.messages import ApiKey, Encoded, Message
from controller.kafka.messages.access import DeleteAclsRequest
from controller.kafka.messages.topics import CreatePartitionsRequest, CreateTopicsRequest
from controller.machine.acls import ANY, LITERAL, PREFIXED
from controller.machine.decision import Detail
from controller.machine.errors import ErrorCode

CHANGES_MAX: Final = 10_000
"""Records that one request may come to, and partitions among them (QuorumController.MAX_RECORDS_PER_USER_OP)."""
ENTRIES_LOOKED_AT_MAX: Final = 200_000
"""Access control entries, by all filters of one request together."""
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of the descriptions in one answer."""
BATCH: Final = Detail(int(ErrorCode.POLICY_VIOLATION), "Unable to perform excessively large batch operation.")
PARTITIONS: Final = Detail(int(ErrorCode.POLICY_VIOLATION), "Excessively large number of partitions per request.")
MORE_PARTITIONS: Final = Detail(
    int(ErrorCode.POLICY_VIOLATION), "Excessively large number of additional partitions per request."
)
"""Kafka's words."""

T = TypeVar("T")


def slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Items by so many. Whoever works on them does so in the turns of `ControllerApi.turns`, and sleeps in between:
    then the loop does one slice of all long answers in a round, however many clients wait for one."""
    return (items[start : start + size] for start in range(0, len(items), size))


async def in_turns(
    api: ControllerApi,
    context: RequestContext,
    items: Sequence[T],
    size: int,
    elements: Callable[[Sequence[T]], Iterable[Any]],
    beyond: Callable[[Sequence[T]], Iterable[Any]] | None = None,
) -> tuple[Any, ...]:
    """The elements that items lead to, for an array of an answer; beyond `size` items encoded, so many in a turn. Once
    the array has `ANSWER_BYTES_MAX` bytes `beyond` gives those of the items that are left."""
    if len(items) <= size:
        return tuple(elements(items))
    encoded: list[bytes] = []
    left = ANSWER_BYTES_MAX
    for part in slices(items, size):
        of_part = elements if left > 0 or beyond is None else beyond
        async with api.turns:
            more = [encode_element(context.api_key, context.api_version, each) for each in of_part(part)]
        encoded += more
        left -= sum(map(len, more))
        await asyncio.sleep(0)
    return Encoded(encoded)


def bounded(api: ControllerApi, api_key: ApiKey, handle: Handler) -> Handler:
    """The handler of what changes things, for requests that come to no more than Kafka allows. What is beyond is
    refused as a whole, before anything is made of it."""
    weigh, refuse = _BOUNDS[api_key]

    def answer(context: RequestContext, request: Any) -> Any:
        wrong = weigh(api, request)
        return handle(context, request) if wrong is None else refuse(request, wrong)

    return answer


def _topics(api: ControllerApi, request: CreateTopicsRequest) -> Detail | None:
    """What is wrong with one topic alone is said of it, and recorded, by the controller."""
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
    for wanted in request.topics:
        topic = api.topic(wanted.name)
        added += max(0, wanted.count - len(topic.partitions)) if topic is not None else 0
    return MORE_PARTITIONS if added > CHANGES_MAX else None


def _batch(changes: int) -> Detail | None:
    return BATCH if changes > CHANGES_MAX else None


def _filters(api: ControllerApi, request: DeleteAclsRequest) -> Detail | None:
    """Each filter that does not name one pattern goes through all entries, and may be answered with them."""
    wide = sum(
        each.resource_name_filter is None
        or each.resource_type_filter == ANY
        or each.pattern_type_filter not in (LITERAL, PREFIXED)
        for each in request.filters
    )
    looked_at = wide * api.cluster.acls.count
    return BATCH if looked_at > ENTRIES_LOOKED_AT_MAX else _batch(len(request.filters))


def _configs(_: ControllerApi, request: Any) -> Detail | None:
    return _batch(sum(max(1, len(resource.configs)) for resource in request.resources))


_Weigh = Callable[[ControllerApi, Any], Detail | None]
_Refuse = Callable[[Any, Detail], Message]

_BOUNDS: Final[dict[ApiKey, tuple[_Weigh, _Refuse]]] = {
    ApiKey.CREATE_TOPICS: (_topics, for_each.created_topic),
    ApiKey.DELETE_TOPICS: (lambda _, r: _batch(len(r.topics) + len(r.topic_names)), for_each.deleted_topic),
    ApiKey.CREATE_PARTITIONS: (_partitions, for_each.grown_topic),
    ApiKey.ALTER_CONFIGS: (_configs, for_each.altered_resource),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (_configs, for_each.incrementally_altered_resource),
    ApiKey.CREATE_ACLS: (lambda _, r: _batch(len(r.creations)), for_each.created_acl),
    ApiKey.DELETE_ACLS: (_filters, for_each.deleted_acl),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        lambda _, r: _batch(sum(max(1, len(entry.ops)) for entry in r.entries)),
        for_each.altered_quota,
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        lambda _, r: _batch(len(r.deletions) + len(r.upsertions)),
        for_each.altered_user,
    ),
}
"""By API: what is wrong with the size of a request, if anything, and the answer that says so."""

CHANGES: Final = frozenset(_BOUNDS)
"""The APIs that change things."""
