"""Policies run concurrently with the group commit: slow, failing and late verdicts, and their order."""

import asyncio
import random
from collections.abc import Sequence

from controller.policy.chain import Verdicts
from controller.policy.interface import Request
from events.access import RequestsRefused
from events.catalog import CreateRequested, TopicCreated
from tests.engine.stage import POLICY, Stage, codes, on_stage
from tests.simulation.slow_policies import SlowPolicies
from tests.simulation.virtual_time import on_virtual_time


def slow(seconds: float) -> SlowPolicies:
    return SlowPolicies(random.Random(0), (seconds, seconds))


@on_stage(policies=slow(10))
async def test_a_slow_policy_does_not_block_other_requests(stage: Stage) -> None:
    waits = stage.create("slow")
    stage.change_settings(**{POLICY.replace(".", "_"): ""})
    await stage.settle(0.1)
    assert codes(await stage.create("other")) == [0], "the settings no longer have a policy"
    assert codes(await stage.delete("other")) == [0]
    assert codes(await stage.create("no/name")) == [17], "rejected without a policy"
    assert not waits.done()
    assert codes(await waits) == [0]


@on_virtual_time
async def test_policies_judge_in_request_order() -> None:
    policies = slow(0.01)
    stage = await Stage(policies=policies).start()
    names = [f"t{number}" for number in range(8)]
    replies = [stage.create(name) for name in names[:4]]
    await stage.settle(0.005)
    replies += [stage.create(*names[4:6]), stage.create(*names[6:])]
    await asyncio.gather(*replies)
    assert policies.judged == names
    assert [event.topic for event in stage.events(TopicCreated)] == names


@on_stage(policies=slow(1))
async def test_a_request_waits_only_for_its_own_policy_verdicts(stage: Stage) -> None:
    first, second = stage.create("a"), stage.create("b", "c", "d")
    await stage.settle(1.1)
    assert first.done(), "its commit has a slower request"
    assert not second.done()
    await second


@on_stage(policies=slow(0))
async def test_policy_refusals_and_failures_affect_only_their_topics(stage: Stage) -> None:
    answers = (await stage.create("good", "bad", "odd", "fine")).answers
    assert codes(answers) == [0, 44, -1, 0]
    assert answers[1].message == "bad is bad"
    assert stage.answers_in_log("odd") == [-1]
    assert stage.controller.failure is None, "the controller continues"
    assert codes(await stage.create("more")) == [0]


@on_stage(policies=slow(0.1))
async def test_policies_judge_dry_runs_without_writing(stage: Stage) -> None:
    end = stage.log.next_offset
    assert codes(await stage.create("good", "bad", validate_only=True)) == [0, 44]
    assert stage.log.next_offset == end


@on_stage(policies=slow(1))
async def test_creates_are_validated_again_after_policy_verdicts(stage: Stage) -> None:
    one, two = stage.create("same"), stage.create("same")
    assert codes(await one) == [0]
    assert codes(await two) == [36], "both were allowed; validation rejects the second"
    waits = stage.create("wide", replication_factor=3)
    await stage.settle(0.5)
    stage.brokers.stop_broker(1)
    assert codes(await waits) == [38], "a broker stopped during the policy call"


@on_stage(policies=slow(5))
async def test_a_create_times_out_while_policies_judge(stage: Stage) -> None:
    begun = asyncio.get_running_loop().time()
    [answer] = await stage.create("late", timeout_ms=1_000)
    assert answer.code == 7
    assert "not returned a verdict in time" in answer.message
    assert asyncio.get_running_loop().time() - begun < 1.1, "the client is answered in time"
    assert stage.answers_in_log("late") == [], "not decided yet"
    await stage.settle(5)
    assert stage.shows("late"), "the topic is created later"
    assert stage.answers_in_log("late") == [7], "the log has one answer"
    [requested] = stage.events(CreateRequested)
    assert requested.timeout_ms == 0, "policies used up the timeout"


@on_stage(policies=slow(0.4))
async def test_policy_time_reduces_the_create_timeout(stage: Stage) -> None:
    stage.brokers.set_delay(1, 60_000)
    reply = stage.create("late", timeout_ms=1_000)
    await stage.settle(0.5)
    [requested] = stage.events(CreateRequested)
    assert requested.timeout_ms == 600
    begun = [record.at_ms for record in stage.records() if record.event == requested]
    assert requested.deadline_ms - begun[0] == 600
    assert codes(await reply) == [7]
    assert stage.records()[-1].at_ms == requested.deadline_ms


@on_stage(policies=slow(0))
async def test_commit_time_before_policies_reduces_the_create_timeout(stage: Stage) -> None:
    stage.brokers.set_delay(1, 60_000)
    stage.held.clear()
    earlier, late = stage.delete("gone"), stage.create("late", timeout_ms=100)
    await stage.settle(0.2)
    stage.held.set()
    assert codes(await late) == [7]
    await stage.settle(1)
    assert stage.shows("late")
    assert stage.answers_in_log("late") == [7], "it is decided with no timeout left"
    await earlier


class Breaking:
    """A policy runner that raises."""

    async def judge(self, requests: Sequence[Request]) -> Verdicts:
        raise RuntimeError("a bug")

    async def close(self, timeout_s: float) -> tuple[str, ...]:
        return ("closing raised something",)


@on_stage(policies=Breaking())
async def test_an_exception_in_the_policy_runner_fails_only_its_requests(stage: Stage) -> None:
    assert [codes(await stage.create(*names)) for names in ("a", "bc")] == [[-1], [-1, -1]]
    assert stage.heard.failed == ["CreateTopic"] * 3
    assert codes(await stage.delete("none")) == [3], "other commands are decided"
    await stage.settle()
    refused = [(event.resource, event.rule) for event in stage.events(RequestsRefused)]
    assert refused == [(f"Topic:{name}", "fault:RuntimeError") for name in "abc"]
    assert stage.controller.failure is None
    await stage.controller.stop()
    assert stage.heard.lines[-1]["why"] == "closing raised something"
