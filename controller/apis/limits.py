"""Limits of one request and one response: Kafka's bounds on changes, and slices for long requests and responses.

A request beyond the bounds is rejected as a whole, with one error for each thing it names. The listeners of simulated
brokers reject changes in the same form, with NOT_CONTROLLER (KIP-4)."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from controller.apis import ApiFunction, Call, errors_of
from controller.controller_api import ControllerApi
from controller.kafka.codec.codec import encode_element
from controller.kafka.handling import Handler
from controller.kafka.messages import APIS, ApiKey, Encoded, Message, configs, topics
from controller.kafka.messages.topics import CreatePartitionsRequest, CreateTopicsRequest
from controller.machine.decision import Detail
from controller.machine.errors import ErrorCode
from controller.machine.rules.judging import most_partitions
from controller.machine.validation import RECORDS_PER_REQUEST_MAX

RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Size of the elements of one response from which `in_turns` describes no further items."""
TOPICS_PER_SLICE: Final = 200
"""Bounds how long one slice of a response blocks the event loop: a few milliseconds with nothing cached."""
BATCH: Final = Detail(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
PARTITIONS: Final = Detail(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
MORE_PARTITIONS: Final = Detail(
    ErrorCode.POLICY_VIOLATION, "Excessively large number of additional partitions per request."
)
T = TypeVar("T")


def slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Slices of `size` items. Callers process each slice within `ControllerApi.turns` and sleep in between, so that the
    event loop does one slice a round, however many clients wait for long responses."""
    return (items[start : start + size] for start in range(0, len(items), size))


async def in_turns(
    call: Call, items: Sequence[T], size: int, element: Callable[[T], Any], beyond: Callable[[T], Any] | None = None
) -> tuple[Any, ...]:
    """Returns the elements of a response array: `element` of each item, without None. More than `size` items are
    encoded in slices. After `RESPONSE_BYTES_MAX` bytes, `beyond` makes the elements of the remaining items."""
    if len(items) <= size:
        return tuple(each for each in map(element, items) if each is not None)
    key, version = call.context.api_key, call.context.api_version
    encoded: list[bytes] = []
    left = RESPONSE_BYTES_MAX
    for part in slices(items, size):
        made = map(element if left > 0 or beyond is None else beyond, part)
        async with call.api.turns:
            more = [encode_element(key, version, each) for each in made if each is not None]
        encoded += more
        left -= sum(map(len, more))
        await asyncio.sleep(0)
    return Encoded(encoded)


def _topics(api: ControllerApi, request: CreateTopicsRequest, principal: str) -> Detail | None:
    # The state machine checks a request for one topic, and records the rejection.
    if len(request.topics) < 2:
        return None
    partitions = sum(len(topic.assignments) or max(0, topic.num_partitions) for topic in request.topics)
    by_default = [topic.name for topic in request.topics if topic.num_partitions == -1 and not topic.assignments]
    partitions += most_partitions(api.cluster, principal, by_default) if by_default else 0
    if partitions > RECORDS_PER_REQUEST_MAX:
        return PARTITIONS
    return batch_error(partitions + len(request.topics) + sum(len(topic.configs) for topic in request.topics))


def _partitions(api: ControllerApi, request: CreatePartitionsRequest, _: str) -> Detail | None:
    if len(request.topics) < 2:
        return None
    if len(request.topics) > RECORDS_PER_REQUEST_MAX:
        return BATCH
    if sum(max(0, topic.count) for topic in request.topics) <= RECORDS_PER_REQUEST_MAX:
        return None
    added = 0
    for one in request.topics:
        topic = api.topic(one.name)
        added += max(0, one.count - len(topic.partitions)) if topic is not None else 0
    return MORE_PARTITIONS if added > RECORDS_PER_REQUEST_MAX else None


def batch_error(changes: int) -> Detail | None:
    """The error of a request with this number of changes, if that is too large."""
    return BATCH if changes > RECORDS_PER_REQUEST_MAX else None


_LIMITS: Final[Mapping[int, Callable[[ControllerApi, Any, str], Detail | None]]] = {
    ApiKey.CREATE_TOPICS: _topics,
    ApiKey.DELETE_TOPICS: lambda _, r, __: batch_error(len(r.topics) + len(r.topic_names)),
    ApiKey.CREATE_PARTITIONS: _partitions,
    **dict.fromkeys(
        (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS),
        lambda _, r, __: batch_error(sum(max(1, len(resource.configs)) for resource in r.resources)),
    ),
}
"""For each API, the error of a principal's request that is too large; None for any other request."""
ACCESS_READS: Final = frozenset({
    ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
})  # fmt: skip
ACCESS_CHANGES: Final = frozenset({
    ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
})  # fmt: skip
CHANGES: Final = frozenset(_LIMITS) | ACCESS_CHANGES
"""The APIs with which clients change topics, configs, ACLs, quotas and SCRAM credentials."""


def bounded(api_key: int, function: ApiFunction) -> ApiFunction:
    """Wraps the function of an API for topics or configs, so that requests beyond Kafka's bounds are rejected as a
    whole. Those of other APIs check this themselves."""

    def answer(call: Call, request: Any) -> Any:
        error = _LIMITS[api_key](call.api, request, call.context.principal)
        return function(call, request) if error is None else _rejected(api_key, request, error)

    return answer


RESULTS: Final[Mapping[int, tuple[str, type[Message]]]] = {
    ApiKey.CREATE_TOPICS: ("topics", topics.CreatableTopicResult),
    ApiKey.DELETE_TOPICS: ("responses", topics.DeletableTopicResult),
    ApiKey.CREATE_PARTITIONS: ("results", topics.CreatePartitionsTopicResult),
    ApiKey.DESCRIBE_CONFIGS: ("results", configs.DescribeConfigsResult),
    ApiKey.ALTER_CONFIGS: ("responses", configs.AlterConfigsResourceResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("responses", configs.AlterConfigsResourceResponse),
}
"""For each API of topics and configs, the field of its response with the results, and the type of a result."""


def failed_results(api_key: int, named: Iterable[Any], error: Detail) -> list[Any]:
    """A result with this error for each topic or resource of a request."""
    _, result = RESULTS[api_key]
    identity = {"name", "topic_id", "resource_type", "resource_name"} & set(result.__struct_fields__)
    return [
        result(**{field: getattr(one, field) for field in identity if hasattr(one, field)}, **errors_of(error))
        for one in named
    ]


def _rejected(api_key: int, request: Any, error: Detail) -> Message:
    """The response with this error for everything that a request names."""
    named = request.resources if hasattr(request, "resources") else request.topics
    if api_key == ApiKey.CREATE_TOPICS:
        named = {one.name: one for one in named}.values()
    elif api_key == ApiKey.DELETE_TOPICS:
        named = named or [topics.DeleteTopicState(name=name) for name in request.topic_names]
    response: Any = APIS[api_key].response
    return response(**{RESULTS[api_key][0]: tuple(failed_results(api_key, named, error))})  # type: ignore[no-any-return]


NOT_CONTROLLER: Final = Detail(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")


NOT_CONTROLLER_HANDLERS: Final[Mapping[int, Handler]] = dict.fromkeys(
    (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS),
    lambda context, request: _rejected(context.api_key, request, NOT_CONTROLLER),
)
"""The handlers of a simulated broker for requests that clients send to the controller. They send other changes to any
broker."""
