"""Many refused requests: the first is recorded, similar ones are counted, and the counters are bounded."""

import itertools

from controller.access.refusals import (
    EVENTS_BYTES_MAX,
    KINDS_ALTOGETHER_MAX,
    KINDS_MAX,
    OTHERS,
    RECORDED_BYTES_MAX,
    RefusalRecords,
)
from controller.engine.requests import Stamps
from controller.machine.commands.commands import CreateTopic
from controller.machine.decision import Decision
from controller.machine.errors import ErrorCode, Rejection
from events.access import RequestsRefused
from events.catalog import CreateRejected
from events.names import RequestId, TopicId, TopicName


def refused(code: ErrorCode, rule: str, message: str = "no") -> Decision:
    rejected = CreateRejected(RequestId("q"), TopicName("t"), int(code), message, rule)
    return Decision((rejected,), refusal=Rejection(code, message, rule))


DENIED = refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "authorizer")
POLICY = refused(ErrorCode.POLICY_VIOLATION, "policy:rules/naming")
TWICE = refused(ErrorCode.INVALID_REQUEST, "validation:duplicate")


class Looker:
    host = "10.0.0.1"
    client_id = "c"
    api = "Metadata"
    roles = frozenset[str]()

    def __init__(self, principal: str = "User:bob") -> None:
        self.principal = principal


def counts(recorded: list[RequestsRefused] | None = None) -> RefusalRecords:
    clock = itertools.count(1000)
    events = [] if recorded is None else recorded
    return RefusalRecords(Stamps("b", lambda: next(clock)), lambda command: events.extend(command.refusals))


def request(topic: str, principal: str = "User:bob", api: str = "CreateTopics", denied: int = 0) -> CreateTopic:
    return CreateTopic(
        request_id=RequestId("q"),
        at_ms=1,
        topic=TopicName(topic),
        topic_id=TopicId(bytes(16)),
        principal=principal,
        api=api,
        denied=denied,
    )


async def test_the_first_similar_refusal_is_recorded_and_the_others_counted() -> None:
    some = counts()
    assert [some.is_recorded(request("t"), DENIED) for _ in range(4)] == [True, False, False, False]
    assert some.is_recorded(request("u"), DENIED), "another resource is recorded separately"
    assert some.is_recorded(request("t", "User:eve"), DENIED), "another principal is recorded separately"
    (event,) = some.take()
    assert (event.principal, event.resource, event.operation, event.count) == ("User:bob", "Topic:t", "Create", 3)


async def test_repeated_refusals_are_counted_per_interval_until_an_idle_one() -> None:
    some = counts()
    assert [some.is_recorded(request("t"), DENIED) for _ in range(3)] == [True, False, False]
    some.take()
    assert not some.is_recorded(request("t"), DENIED), "similar refusals continue"
    assert [event.count for event in some.take()] == [1]
    assert some.take() == ()
    assert some.is_recorded(request("t"), DENIED), "an idle interval ended the counting"


async def test_refusals_of_many_resources_are_counted_together() -> None:
    some = counts()
    recorded = sum(some.is_recorded(request(f"t{number}"), DENIED) for number in range(5 * KINDS_MAX))
    assert recorded == KINDS_MAX
    (event,) = some.take()
    assert (event.resource, event.count) == (OTHERS, 4 * KINDS_MAX)
    assert some.is_recorded(request("t", "User:eve"), DENIED), "other principals are not affected"


async def test_refusals_of_many_principals_are_counted_together() -> None:
    some = counts()
    recorded = sum(some.is_recorded(request("t", f"User:{n}"), DENIED) for n in range(KINDS_ALTOGETHER_MAX + 100))
    assert recorded == KINDS_ALTOGETHER_MAX
    assert {(event.principal, event.count) for event in some.take()} == {(OTHERS, 100)}


async def test_repeated_refused_auto_creations_are_recorded_once() -> None:
    some = counts()
    assert [some.is_recorded(request("t", api="Metadata"), POLICY) for _ in range(3)] == [True, False, False]


async def test_a_denied_describe_is_recorded_once_and_then_counted() -> None:
    recorded: list[RequestsRefused] = []
    some = counts(recorded)
    some.record_denial(Looker(), "Describe", "Topic:t", 29)
    (first,) = recorded
    assert (first.count, first.host, first.client_id, first.operation) == (1, "10.0.0.1", "c", "Describe")
    some.record_denial(Looker(), "Describe", "Topic:t", 29)
    assert recorded == [first]
    (event,) = some.take()
    assert (event.count, event.host) == (1, "10.0.0.1")
    assert event.since_ms > first.since_ms


async def test_a_denied_request_counts_as_denied_even_if_another_rule_answers() -> None:
    some = counts()
    twice = [some.is_recorded(request(f"t{number}", denied=29), TWICE) for number in range(3 * KINDS_MAX)]
    assert sum(twice) == KINDS_MAX, "a repeated name does not hide the denial"
    (event,) = some.take()
    assert (event.operation, event.resource, event.count) == ("Create", OTHERS, 2 * KINDS_MAX)


async def test_recorded_refusal_bytes_are_limited_per_principal_and_interval() -> None:
    some = counts()
    long = refused(ErrorCode.POLICY_VIOLATION, "policy:rules/naming", "x" * 30_000)
    recorded = sum(some.is_recorded(request("t"), long) for _ in range(100))
    assert recorded == RECORDED_BYTES_MAX // 30_100
    assert some.is_recorded(request("t", "User:eve"), long), "other principals are not affected"
    assert [event.count for event in some.take()] == [100 - recorded]
    assert some.is_recorded(request("t"), long), "the next interval has a new limit"


async def test_a_large_refused_request_is_counted() -> None:
    some = counts()
    large = refused(ErrorCode.INVALID_CONFIG, "validation:configs", "x" * EVENTS_BYTES_MAX)
    assert not some.is_recorded(request("t" * 1_000_000), large)
    (event,) = some.take()
    assert (event.count, event.resource) == (1, f"Topic:{'t' * 249}…")


async def test_refusals_without_events_are_counted() -> None:
    some = counts()
    nothing_to_keep = Decision(refusal=TWICE.refusal)
    assert [some.is_recorded(request("t"), nothing_to_keep) for _ in range(3)] == [False] * 3
    assert [event.count for event in some.take()] == [3]


async def test_a_counted_refusal_has_truncated_texts() -> None:
    recorded: list[RequestsRefused] = []
    some = counts(recorded)
    looker = Looker("User:" + "p" * 30_000)
    looker.host, looker.client_id = "h" * 30_000, "c" * 30_000
    for _ in range(2):
        some.record_denial(looker, "Describe", "Topic:" + "t" * 30_000, 29)
    (first,) = recorded
    assert first.resource.startswith("Topic:ttt")
    assert first.resource.endswith("t…")
    for event in (first, *some.take()):
        assert max(map(len, (event.principal, event.host, event.client_id or "", event.resource))) <= 256
