"""Requests and the answers they wait for; timestamps and ids of commands."""

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from controller.engine.requests import Replies, Stamps
from controller.machine.commands.commands import DeleteTopic
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from events.names import RequestId, TopicName
from tests.simulation.virtual_time import on_virtual_time


@on_virtual_time
async def test_a_request_gets_the_first_answer_of_each_topic_in_its_order() -> None:
    replies, request = Replies(), RequestId("r")
    pending = replies.expect([DeleteTopic(request_id=request, at_ms=0, topic=TopicName(topic)) for topic in "abc"])
    replies.resolve(Answer(RequestId("of a dead process"), TopicName("a"), 9))
    for code, topic in enumerate(("c", "not requested", "a", "a", "c")):
        replies.resolve(Answer(request, TopicName(topic), code))
    assert pending.unanswered() == ["b"]
    replies.fail_all(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
    assert [one.code for one in pending.future.result()] == [2, 56, 0]
    assert len(replies) == 0, "a completed request is forgotten"


BORN_MS = 1_700_000_000_000
YEAR_MS = 365 * 24 * 3_600_000


class Wall:
    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return BORN_MS + self.ahead_ms + int(asyncio.get_running_loop().time() * 1000)


@on_virtual_time
async def test_command_timestamps_follow_the_wall_clock() -> None:
    wall = Wall()
    stamps = Stamps("b", wall)
    for _ in range(3):
        assert stamps.now_ms() == wall()
        await asyncio.sleep(7.5)
    wall.ahead_ms = 60_000
    assert stamps.now_ms() == wall()


@on_virtual_time
async def test_command_timestamps_slow_down_after_a_backward_clock_jump() -> None:
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
    assert seen[-1] == wall(), "it equals the wall clock after twice the jump"


@on_virtual_time
async def test_command_timestamps_advance_although_the_log_is_a_year_ahead() -> None:
    stamps = Stamps("b", Wall(), lambda: BORN_MS + YEAR_MS)
    first = stamps.now_ms()
    await asyncio.sleep(60)
    assert (first, stamps.now_ms()) == (BORN_MS + YEAR_MS, BORN_MS + YEAR_MS + 30_000)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(-(10**9), 10**9), st.integers(-1000, 1000)), max_size=30))
@on_virtual_time
async def test_command_timestamps_never_decrease(steps: list[tuple[float, int, int]]) -> None:
    wall = Wall()
    stamps, last = Stamps("b", wall), 0
    for passes_s, ahead_ms, more_ms in steps:
        wall.ahead_ms = ahead_ms
        await asyncio.sleep(passes_s)
        at_least = BORN_MS + more_ms
        now = stamps.now_ms(at_least)
        assert now >= max(last, at_least, wall()), "timestamps never decrease"
        last = now


def test_request_ids_have_a_number_and_an_unpredictable_code() -> None:
    ours, others = Stamps("abcdef-1", Wall()), Stamps("abcdef-2", Wall())
    ids = [ours.new_request_id(), ours.new_request_id("auto"), others.new_request_id()]
    codes = [each.rpartition("-")[2] for each in ids]
    assert ids == [f"abcdef-1-{codes[0]}", f"auto-abcdef-2-{codes[1]}", f"abcdef-1-{codes[2]}"]
    assert len(set(codes)) == 3
    assert Stamps("abcdef-1", Wall()).new_request_id() == ids[0], "the simulator gets the same ids"
