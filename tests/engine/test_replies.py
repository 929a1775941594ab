"""Who waits for which answers."""

from __future__ import annotations

import pytest

from controller.engine.requests import PendingRequest, Replies
from controller.machine.commands.commands import DeleteTopic
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from events.names import RequestId, TopicName
from tests.simulation.virtual_time import on_virtual_time, virtual_loop


def expect(replies: Replies, request: str, *topics: str) -> PendingRequest:
    commands = [DeleteTopic(request_id=RequestId(request), at_ms=0, topic=TopicName(topic)) for topic in topics]
    return replies.expect(commands)


def answer(request: str, topic: str, code: int = 0) -> Answer:
    return Answer(RequestId(request), TopicName(topic), code)


@on_virtual_time
async def test_a_request_is_answered_when_every_topic_is_in_the_order_of_the_request() -> None:
    replies = Replies()
    pending = expect(replies, "r", "a", "b", "c")
    replies.resolve(answer("r", "c", 1))
    replies.resolve(answer("r", "a", 2))
    assert pending.unanswered() == ["b"]
    assert not pending.future.done()
    replies.resolve(answer("r", "b", 3))
    assert [one.code for one in pending.future.result()] == [2, 3, 1]
    assert len(replies) == 0, "nothing is kept of it"


@on_virtual_time
async def test_answers_that_nobody_waits_for_are_dropped() -> None:
    replies = Replies()
    pending = expect(replies, "r", "a", "b")
    replies.resolve(answer("of a dead process", "a"))
    replies.resolve(answer("r", "not requested"))
    replies.resolve(answer("r", "a", 1))
    replies.resolve(answer("r", "a", 2))
    replies.resolve(answer("r", "b", 3))
    replies.resolve(answer("r", "b", 4))
    assert [one.code for one in pending.future.result()] == [1, 3], "the first answer counts"


@on_virtual_time
async def test_a_client_that_is_gone_disturbs_nobody() -> None:
    replies = Replies()
    gone, here = expect(replies, "gone", "a"), expect(replies, "here", "a")
    gone.future.cancel()
    replies.resolve(answer("gone", "a"))
    replies.resolve(answer("here", "a"))
    assert here.future.done()
    assert len(replies) == 0


@on_virtual_time
async def test_everything_in_flight_fails_at_once_but_what_is_answered_stays() -> None:
    replies = Replies()
    one, two = expect(replies, "1", "a", "b"), expect(replies, "2", "a")
    replies.resolve(answer("1", "b", 36))
    replies.fail_all(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
    assert [each.code for each in one.future.result()] == [56, 36]
    assert [(each.code, each.message) for each in two.future.result()] == [(56, "no room")]
    assert len(replies) == 0


@on_virtual_time
async def test_timers_end_with_their_requests() -> None:
    replies = Replies()
    answered, abandoned = expect(replies, "1", "a"), expect(replies, "2", "a")
    answered.when_late(9, print)
    abandoned.when_late(9, print)
    assert len(virtual_loop().timers()) == 2
    replies.resolve(answer("1", "a"))
    replies.abandon_all()
    assert virtual_loop().timers() == []
    assert abandoned.future.cancelled()
    assert len(replies) == 0


@on_virtual_time
async def test_a_request_that_names_a_topic_twice_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="puts each topic once"):
        expect(Replies(), "r", "a", "a")
