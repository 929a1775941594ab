"""Judging off the loop: in order, one at a time, and never in the way of the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from controller.policy import PolicyViolation, RequestMetadata
from controller.policy.chain import ALLOWED, LoadedPolicy, PolicyChain, PolicyProbe
from controller.policy.runner import PolicyRunner, PolicyRunnerClosed
from tests.policy.requests import request

LONG_S = 30.0


class _Gated:
    """Lets `slow…` topics wait for the test, refuses `bad…`, falls over `exit`, and notes what it sees and where."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.seen: list[str] = []
        self.threads: set[str] = set()
        self.closed_on: list[str] = []

    def validate(self, request: RequestMetadata) -> None:
        self.threads.add(threading.current_thread().name)
        self.seen.append(request.topic)
        self.entered.set()
        if request.topic.startswith("slow"):
            assert self.gate.wait(LONG_S), "the test opens the gate"
        if request.topic.startswith("bad"):
            raise PolicyViolation(f"no {request.topic}")
        if request.topic == "exit":
            raise SystemExit(1)
        if request.topic == "interrupt":
            raise KeyboardInterrupt

    def close(self) -> None:
        self.closed_on.append(threading.current_thread().name)

    def chain(self) -> PolicyChain:
        return PolicyChain([LoadedPolicy(name="my.Gated", policy=self, close=self.close)])


@pytest.fixture
def gated() -> Iterator[_Gated]:
    policy = _Gated()
    yield policy
    policy.gate.set()


async def _entered(policy: _Gated) -> None:
    assert await asyncio.to_thread(policy.entered.wait, LONG_S), "the worker never called the policy"


async def test_a_verdict_for_each_request_in_order(gated: _Gated) -> None:
    runner = PolicyRunner(gated.chain())
    verdicts = await runner.judge([request("a"), request("bad.b"), request("exit"), request("c")])
    assert [verdict.outcome for verdict in verdicts] == ["allowed", "refused", "failed", "allowed"]
    assert await runner.judge([]) == ()
    assert await runner.close(LONG_S) == ()
    with pytest.raises(PolicyRunnerClosed):
        await runner.judge([request("a")])


async def test_the_loop_lives_while_a_policy_is_slow(gated: _Gated) -> None:
    runner = PolicyRunner(gated.chain())
    slow = asyncio.create_task(runner.judge([request("slow")]))
    await _entered(gated)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not slow.done()
    gated.gate.set()
    assert await slow == (ALLOWED,)
    await runner.close(LONG_S)


async def test_requests_are_judged_and_answered_in_their_order_on_one_thread(gated: _Gated) -> None:
    runner = PolicyRunner(gated.chain())
    answered: list[str] = []

    async def judge(topic: str) -> None:
        await runner.judge([request(topic), request(f"{topic}.twin")])
        answered.append(topic)

    topics = ["slow", *(f"t{number}" for number in range(50))]
    tasks = [asyncio.create_task(judge(topic)) for topic in topics]
    await _entered(gated)
    gated.gate.set()
    await asyncio.gather(*tasks)
    assert answered == topics
    assert gated.seen == [name for topic in topics for name in (topic, f"{topic}.twin")]
    assert gated.threads == {"create-topic-policy"}
    await runner.close(LONG_S)
    assert gated.closed_on == ["create-topic-policy"]


async def test_a_policy_that_raises_keyboard_interrupt_costs_its_topic_alone(gated: _Gated) -> None:
    runner = PolicyRunner(gated.chain())
    broken, fine = await runner.judge([request("interrupt"), request("a")])
    assert (broken.outcome, broken.message) == ("failed", "policy my.Gated raised KeyboardInterrupt")
    assert fine == ALLOWED
    await runner.close(LONG_S)


async def test_a_cancelled_wait_leaves_the_runner_well(gated: _Gated) -> None:
    runner = PolicyRunner(gated.chain())
    task = asyncio.create_task(runner.judge([request("slow")]))
    await _entered(gated)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gated.gate.set()
    assert await runner.judge([request("a")]) == (ALLOWED,)
    await runner.close(LONG_S)


async def test_close_finishes_the_current_topic_and_rejects_the_others(gated: _Gated) -> None:
    runner = PolicyRunner(gated.chain())
    in_hand = asyncio.create_task(runner.judge([request("slow")]))
    await _entered(gated)
    waiting = asyncio.create_task(runner.judge([request("late")]))
    await asyncio.sleep(0)
    closing = asyncio.create_task(runner.close(LONG_S))
    await asyncio.sleep(0)
    gated.gate.set()
    assert await closing == ()
    assert await in_hand == (ALLOWED,)
    with pytest.raises(PolicyRunnerClosed):
        await waiting
    assert gated.seen == ["slow"]
    assert gated.closed_on == ["create-topic-policy"]


async def test_a_request_of_many_topics_is_cut_short_by_close(gated: _Gated) -> None:
    runner = PolicyRunner(gated.chain())
    task = asyncio.create_task(runner.judge([request("slow"), request("next")]))
    await _entered(gated)
    closing = asyncio.create_task(runner.close(LONG_S))
    await asyncio.sleep(0)
    gated.gate.set()
    assert await closing == ()
    with pytest.raises(PolicyRunnerClosed):
        await task
    assert gated.seen == ["slow"]


async def test_a_policy_stuck_for_ever_does_not_hold_up_the_end(gated: _Gated) -> None:
    runner = PolicyRunner(gated.chain())
    task = asyncio.create_task(runner.judge([request("slow.for.ever")]))
    await _entered(gated)
    assert await runner.close(0.01) == (
        "policies my.Gated: still judging topic 'slow.for.ever' after 0.01 s, abandoned",
    )
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "create-topic-policy")
    gated.gate.set()
    assert await runner.close(LONG_S) == ()
    assert await task == (ALLOWED,)


async def test_close_without_a_request_closes_the_policies_once(gated: _Gated) -> None:
    runner = PolicyRunner(gated.chain())
    assert await runner.close(LONG_S) == ()
    assert await runner.close(LONG_S) == ()
    assert len(gated.closed_on) == 1


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(1), KeyboardInterrupt()])
async def test_close_says_what_a_policy_raised(gated: _Gated, error: BaseException) -> None:
    def close() -> None:
        raise error

    runner = PolicyRunner(PolicyChain([LoadedPolicy(name="my.P", policy=gated, close=close)]))
    (failure,) = await runner.close(LONG_S)
    assert type(error).__name__ in failure


async def test_the_probe_is_called_on_the_workers_thread(gated: _Gated) -> None:
    heard: list[tuple[str, str, str]] = []
    probe = PolicyProbe(
        on_verdict=lambda policy, outcome, seconds: heard.append((policy, outcome, threading.current_thread().name))
    )
    chain = gated.chain()
    chain.probe = probe
    runner = PolicyRunner(chain)
    await runner.judge([request("bad")])
    await runner.close(LONG_S)
    assert heard == [("my.Gated", "refused", "create-topic-policy")]


def test_a_loop_that_has_ended_is_not_waited_for(gated: _Gated) -> None:
    runner = PolicyRunner(gated.chain())

    async def judge_and_leave() -> None:
        task = asyncio.create_task(runner.judge([request("slow")]))
        await _entered(gated)
        task.cancel()

    asyncio.run(judge_and_leave())
    gated.gate.set()
    assert asyncio.run(runner.close(LONG_S)) == ()
    assert gated.closed_on == ["create-topic-policy"]
