"""A storm of refused requests: the first is recorded, the others are counted, and the counts are bounded."""

from __future__ import annotations

import itertools

from controller.access.refusals import KINDS_ALTOGETHER_MAX, KINDS_MAX, OTHERS, RECORDED_MAX, RefusalCounts
from controller.machine.commands.commands import CreateTopic
from controller.machine.errors import ErrorCode, Rejection
from events.names import RequestId, TopicId, TopicName

DENIED = Rejection(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.", "authorizer")
POLICY = Rejection(ErrorCode.POLICY_VIOLATION, "no", "policy:rules/naming")


class Looker:
    """Somebody who looks."""

    host = "10.0.0.1"
    client_id = "c"
    api = "Metadata"

    def __init__(self, principal: str = "User:bob") -> None:
        self.principal = principal


def counts() -> RefusalCounts:
    clock = itertools.count(1000)
    return RefusalCounts(lambda: next(clock))


def request(topic: str, principal: str = "User:bob", api: str = "CreateTopics") -> CreateTopic:
    return CreateTopic(
        request_id=RequestId("q"),
        at_ms=1,
        topic=TopicName(topic),
        topic_id=TopicId(bytes(16)),
        principal=principal,
        api=api,
    )


def test_the_first_of_a_kind_is_recorded_and_the_others_counted() -> None:
    some = counts()
    assert [some.is_recorded(request("t"), DENIED) for _ in range(4)] == [True, False, False, False]
    assert some.is_recorded(request("u"), DENIED), "another resource is another kind"
    assert some.is_recorded(request("t", "User:eve"), DENIED), "another principal is another kind"
    (event,) = some.take()
    assert (event.principal, event.resource, event.operation, event.count) == ("User:bob", "Topic:t", "Create", 3)


def test_a_storm_that_goes_on_is_summed_up_again_and_one_that_ended_begins_anew() -> None:
    some = counts()
    assert [some.is_recorded(request("t"), DENIED) for _ in range(3)] == [True, False, False]
    some.take()
    assert not some.is_recorded(request("t"), DENIED), "it goes on"
    assert [event.count for event in some.take()] == [1]
    assert some.take() == ()
    assert some.is_idle
    assert some.is_recorded(request("t"), DENIED), "it was over"


def test_names_without_end_are_counted_together() -> None:
    some = counts()
    recorded = sum(some.is_recorded(request(f"t{number}"), DENIED) for number in range(5 * KINDS_MAX))
    assert recorded == KINDS_MAX
    (event,) = some.take()
    assert (event.resource, event.count) == (OTHERS, 4 * KINDS_MAX)
    assert some.is_recorded(request("t", "User:eve"), DENIED), "nobody else has to bear it"


def test_principals_without_end_are_counted_together() -> None:
    some = counts()
    recorded = sum(some.is_recorded(request("t", f"User:{n}"), DENIED) for n in range(KINDS_ALTOGETHER_MAX + 100))
    assert recorded == KINDS_ALTOGETHER_MAX
    assert {(event.principal, event.count) for event in some.take()} == {(OTHERS, 100)}


def test_refusals_by_rules_are_all_recorded_until_there_are_very_many() -> None:
    some = counts()
    assert sum(some.is_recorded(request("t"), POLICY) for _ in range(RECORDED_MAX + 50)) == RECORDED_MAX
    assert [(event.count, event.rule, event.operation) for event in some.take()] == [(50, POLICY.rule, "")]
    assert some.is_recorded(request("t"), POLICY), "the next interval begins anew"


def test_a_refused_auto_creation_is_recorded_once_however_often_its_client_requests_it() -> None:
    some = counts()
    assert [some.is_recorded(request("t", api="Metadata"), POLICY) for _ in range(3)] == [True, False, False]


def test_a_look_that_is_denied_is_recorded_at_once_and_then_counted() -> None:
    some = counts()
    first = some.is_first_look(Looker(), "Describe", "Topic:t", 29)
    assert first is not None
    assert (first.count, first.host, first.client_id, first.operation) == (1, "10.0.0.1", "c", "Describe")
    assert some.is_first_look(Looker(), "Describe", "Topic:t", 29) is None
    (event,) = some.take()
    assert (event.count, event.host) == (1, "10.0.0.1")
    assert event.since_ms > first.since_ms
