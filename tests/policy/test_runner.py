"""Policies run outside the event loop: in order, one at a time, and without delaying the shutdown."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from controller.policy import PolicyViolation, RequestMetadata
from controller.policy.chain import ALLOWED, LoadedPolicy, PolicyChain, PolicyRunner, PolicyRunnerClosed
from tests.policy.requests import request

LONG_S = 30.0


class _Gated:
    """Blocks `slow…` topics until the test opens the gate, refuses `bad…`, fails for `exit`, and records topics and
    threads."""

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
        return PolicyChain([LoadedPolicy(name="my.Gated", validate=self.validate, close=self.close)])


@pytest.fixture
def gated_policy() -> Iterator[_Gated]:
    policy = _Gated()
    yield policy
    policy.gate.set()


async def _wait_until_called(policy: _Gated) -> None:
    assert await asyncio.to_thread(policy.entered.wait, LONG_S), "the worker never called the policy"


async def test_policy_verdicts_are_in_request_order(gated_policy: _Gated) -> None:
    runner = PolicyRunner(gated_policy.chain())
    verdicts = await runner.judge([request(topic) for topic in ("a", "bad.b", "exit", "interrupt", "c")])
    assert [verdict.outcome for verdict in verdicts] == ["allowed", "refused", "failed", "failed", "allowed"]
    assert verdicts[3].message == "policy my.Gated raised KeyboardInterrupt"
    assert await runner.judge([]) == ()
    assert await runner.close(LONG_S) == ()
    with pytest.raises(PolicyRunnerClosed):
        await runner.judge([request("a")])


async def test_requests_are_judged_in_order_on_one_thread(gated_policy: _Gated) -> None:
    runner = PolicyRunner(gated_policy.chain())
    answered: list[str] = []

    async def judge(topic: str) -> None:
        await runner.judge([request(topic), request(f"{topic}.twin")])
        answered.append(topic)

    topics = ["slow", *(f"t{number}" for number in range(50))]
    tasks = [asyncio.create_task(judge(topic)) for topic in topics]
    await _wait_until_called(gated_policy)
    gated_policy.gate.set()
    await asyncio.gather(*tasks)
    assert answered == topics
    assert gated_policy.seen == [name for topic in topics for name in (topic, f"{topic}.twin")]
    assert gated_policy.threads == {"create-topic-policy"}
    await runner.close(LONG_S)
    assert gated_policy.closed_on == ["create-topic-policy"]


async def test_a_cancelled_judge_call_does_not_break_the_runner(gated_policy: _Gated) -> None:
    runner = PolicyRunner(gated_policy.chain())
    task = asyncio.create_task(runner.judge([request("slow")]))
    await _wait_until_called(gated_policy)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gated_policy.gate.set()
    assert await runner.judge([request("a")]) == (ALLOWED,)
    await runner.close(LONG_S)


async def test_close_finishes_the_current_topic_and_rejects_the_others(gated_policy: _Gated) -> None:
    runner = PolicyRunner(gated_policy.chain())
    in_hand = asyncio.create_task(runner.judge([request("slow")]))
    await _wait_until_called(gated_policy)
    waiting = asyncio.create_task(runner.judge([request("late")]))
    await asyncio.sleep(0)
    closing = asyncio.create_task(runner.close(LONG_S))
    await asyncio.sleep(0)
    gated_policy.gate.set()
    assert await closing == ()
    assert await in_hand == (ALLOWED,)
    with pytest.raises(PolicyRunnerClosed):
        await waiting
    assert gated_policy.seen == ["slow"]
    assert gated_policy.closed_on == ["create-topic-policy"]


async def test_close_stops_a_request_of_several_topics(gated_policy: _Gated) -> None:
    runner = PolicyRunner(gated_policy.chain())
    task = asyncio.create_task(runner.judge([request("slow"), request("next")]))
    await _wait_until_called(gated_policy)
    closing = asyncio.create_task(runner.close(LONG_S))
    await asyncio.sleep(0)
    gated_policy.gate.set()
    assert await closing == ()
    with pytest.raises(PolicyRunnerClosed):
        await task
    assert gated_policy.seen == ["slow"]


async def test_a_policy_that_never_returns_does_not_block_close(gated_policy: _Gated) -> None:
    runner = PolicyRunner(gated_policy.chain())
    task = asyncio.create_task(runner.judge([request("slow.for.ever")]))
    await _wait_until_called(gated_policy)
    assert await runner.close(0.01) == (
        "policies my.Gated: still judging topic 'slow.for.ever' after 0.01 s, abandoned",
    )
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "create-topic-policy")
    gated_policy.gate.set()
    assert await runner.close(LONG_S) == ()
    assert await task == (ALLOWED,)


async def test_close_without_a_request_closes_policies_once(gated_policy: _Gated) -> None:
    runner = PolicyRunner(gated_policy.chain())
    assert await runner.close(LONG_S) == ()
    assert await runner.close(LONG_S) == ()
    assert len(gated_policy.closed_on) == 1


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(1), KeyboardInterrupt()])
async def test_close_reports_exceptions_of_policies(gated_policy: _Gated, error: BaseException) -> None:
    def close() -> None:
        raise error

    runner = PolicyRunner(PolicyChain([LoadedPolicy(name="my.P", validate=gated_policy.validate, close=close)]))
    (failure,) = await runner.close(LONG_S)
    assert type(error).__name__ in failure


async def test_callbacks_are_called_on_the_policy_thread(gated_policy: _Gated) -> None:
    heard: list[tuple[str, str, str]] = []
    chain = gated_policy.chain()
    chain.on_verdict = lambda policy, outcome, _: heard.append((policy, outcome, threading.current_thread().name))
    runner = PolicyRunner(chain)
    await runner.judge([request("bad")])
    await runner.close(LONG_S)
    assert heard == [("my.Gated", "refused", "create-topic-policy")]


def test_close_works_after_the_event_loop_has_ended(gated_policy: _Gated) -> None:
    runner = PolicyRunner(gated_policy.chain())

    async def judge_and_leave() -> None:
        task = asyncio.create_task(runner.judge([request("slow")]))
        await _wait_until_called(gated_policy)
        task.cancel()

    asyncio.run(judge_and_leave())
    gated_policy.gate.set()
    assert asyncio.run(runner.close(LONG_S)) == ()
    assert gated_policy.closed_on == ["create-topic-policy"]
