"""Requests: which answers they wait for, and the times and ids of commands."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.requests import PendingRequest, Replies, Stamps
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


BORN_MS = 1_700_000_000_000
YEAR_MS = 365 * 24 * 3_600_000


class Wall:
    """A wall clock that can be set."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return BORN_MS + self.ahead_ms + int(asyncio.get_running_loop().time() * 1000)


@on_virtual_time
async def test_stamps_are_the_wall_clocks() -> None:
    wall = Wall()
    stamps = Stamps("b", wall)
    for _ in range(3):
        assert stamps.now_ms() == wall()
        await asyncio.sleep(7.5)
    wall.ahead_ms = 60_000
    assert stamps.now_ms() == wall()


@on_virtual_time
async def test_after_a_clock_that_was_ahead_stamps_go_on_slowly_until_it_has_caught_up() -> None:
    wall = Wall()
    stamps = Stamps("b", wall)
    wall.ahead_ms = 10_000
    assert stamps.now_ms() == BORN_MS + 10_000
    wall.ahead_ms = 0
    seen = [stamps.now_ms()]
    for _ in range(200):
        await asyncio.sleep(0.1)
        seen.append(stamps.now_ms())
    assert {later - earlier for earlier, later in pairwise(seen[:190])} <= {49, 50, 51}
    assert seen[-1] == wall(), "twice the jump later it is the wall clock's again"


@on_virtual_time
async def test_time_passes_for_stamps_though_the_log_is_a_year_ahead() -> None:
    stamps = Stamps("b", Wall(), BORN_MS + YEAR_MS)
    first = stamps.now_ms()
    await asyncio.sleep(60)
    assert (first, stamps.now_ms()) == (BORN_MS + YEAR_MS, BORN_MS + YEAR_MS + 30_000)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(-(10**9), 10**9), st.integers(-1000, 1000)), max_size=30))
@on_virtual_time
async def test_stamps_never_go_back_nor_behind_what_they_are_not_to_be_before(
    steps: list[tuple[float, int, int]],
) -> None:
    wall = Wall()
    stamps, last = Stamps("b", wall), 0
    for passes_s, ahead_ms, more_ms in steps:
        wall.ahead_ms = ahead_ms
        await asyncio.sleep(passes_s)
        at_least = BORN_MS + more_ms
        now = stamps.now_ms(at_least)
        assert now >= max(last, at_least, wall()), "never back"
        last = now


def test_a_request_id_has_a_number_and_a_code_that_another_process_cannot_compute() -> None:
    ours, others = Stamps("abcdef-1", Wall()), Stamps("abcdef-2", Wall())
    ids = [ours.new_request_id(), ours.new_request_id("auto"), others.new_request_id()]
    codes = [each.rpartition("-")[2] for each in ids]
    assert ids == [f"abcdef-1-{codes[0]}", f"auto-abcdef-2-{codes[1]}", f"abcdef-1-{codes[2]}"]
    assert len(set(codes)) == 3
    assert Stamps("abcdef-1", Wall()).new_request_id() == ids[0], "the simulator repeats them"
