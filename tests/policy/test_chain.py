"""Several policies, one verdict; and nothing that a policy does gets out of the chain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from controller.machine.commands.commands import CreateTopic
from controller.policy import CreateTopicPolicy, Observation, PolicyViolation, RequestMetadata
from controller.policy.chain import ALLOWED, MESSAGE_CHARS_MAX, LoadedPolicy, PolicyChain, PolicyProbe, request_metadata
from events.catalog import Outcome, Verdict
from tests.machine.tables import command, given
from tests.policy.requests import request

REQUEST = request("orders")


class _Calling:
    def __init__(self, answer: Callable[[RequestMetadata], object]) -> None:
        self._answer = answer

    def validate(self, request: RequestMetadata) -> object:
        return self._answer(request)


def chain_of(**answers: Callable[[RequestMetadata], object]) -> PolicyChain:
    return PolicyChain([LoadedPolicy(name=f"my.{name}", policy=_Calling(answer)) for name, answer in answers.items()])


def raising(error: BaseException) -> Callable[[RequestMetadata], object]:
    def answer(request: RequestMetadata) -> object:
        raise error

    return answer


def allow(request: RequestMetadata) -> None:
    return None


def test_an_empty_chain_allows() -> None:
    assert PolicyChain().validate(REQUEST) is ALLOWED


def test_all_policies_allow() -> None:
    assert chain_of(A=allow, B=allow).validate(REQUEST) == Verdict(outcome="allowed")


def test_a_refusal_names_policy_rule_and_message() -> None:
    verdict = chain_of(A=allow, B=raising(PolicyViolation("too wide"))).validate(REQUEST)
    assert verdict == Verdict(outcome="refused", policy="my.B", rule="policy:my.B", message="too wide")


def test_a_refusal_may_name_its_rule() -> None:
    verdict = chain_of(A=raising(PolicyViolation("no", rule="rules/naming"))).validate(REQUEST)
    assert (verdict.policy, verdict.rule) == ("my.A", "policy:rules/naming")


def test_the_first_refusal_wins_and_later_policies_are_not_called() -> None:
    judged: list[str] = []
    chain = chain_of(A=raising(PolicyViolation("first")), B=lambda request: judged.append(request.topic))
    assert chain.validate(REQUEST).message == "first"
    assert judged == []


def test_a_failure_ends_the_chain_too() -> None:
    judged: list[str] = []
    chain = chain_of(A=raising(OSError("disk")), B=lambda request: judged.append(request.topic))
    assert chain.validate(REQUEST).outcome == "failed"
    assert judged == []


class _Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("boom"), "policy my.A raised ValueError: boom"),
        (ValueError(), "policy my.A raised ValueError"),
        (SystemExit(3), "policy my.A raised SystemExit: 3"),
        (GeneratorExit(), "policy my.A raised GeneratorExit"),
        (asyncio.CancelledError(), "policy my.A raised CancelledError"),
        (MemoryError(), "policy my.A raised MemoryError"),
        (NotImplementedError("later"), "policy my.A raised NotImplementedError: later"),
        (_Unreadable(), "policy my.A raised _Unreadable: (its text cannot be read: RuntimeError)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_anything_else_raised_fails_the_topic_alone(error: BaseException, message: str) -> None:
    verdict = chain_of(A=raising(error)).validate(REQUEST)
    assert verdict == Verdict(outcome="failed", policy="my.A", rule="policy:my.A", message=message)


def test_endless_recursion_fails_the_topic_alone() -> None:
    def deeper(request: RequestMetadata) -> object:
        return deeper(request)

    assert chain_of(A=deeper).validate(REQUEST).message.startswith("policy my.A raised RecursionError")


def test_the_operator_may_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        chain_of(A=raising(KeyboardInterrupt())).validate(REQUEST)


@pytest.mark.parametrize("returned", [False, True, "no", 0, {}, ["no"], {Observation("a", "b")}], ids=repr)
def test_an_invalid_return_value_of_a_policy_is_no_consent(returned: object) -> None:
    verdict = chain_of(A=lambda request: returned).validate(REQUEST)
    assert verdict.outcome == "failed"
    assert f"returned a {type(returned).__name__}" in verdict.message
    assert "refuses by raising PolicyViolation" in verdict.message


def test_a_coroutine_is_no_answer_and_is_closed() -> None:
    async def later() -> None: ...

    assert "returned a coroutine" in chain_of(A=lambda request: later()).validate(REQUEST).message


def test_observations_of_all_policies_come_back() -> None:
    def observing(*rules: str) -> Callable[[RequestMetadata], Sequence[Observation]]:
        return lambda request: [Observation(rule, f"{rule or 'it'} is broken") for rule in rules]

    verdict = chain_of(A=observing("rules/a", "rules/b"), B=allow, C=observing("")).validate(REQUEST)
    assert verdict.outcome == "allowed"
    assert verdict.observed == (
        Observation("policy:rules/a", "rules/a is broken"),
        Observation("policy:rules/b", "rules/b is broken"),
        Observation("policy:my.C", "it is broken"),
    )


def test_a_refusal_keeps_what_was_observed_before_and_beside_it() -> None:
    chain = chain_of(
        A=lambda request: (Observation("a", "before"),),
        B=raising(PolicyViolation("no", observed=[Observation("b", "beside")])),
    )
    verdict = chain.validate(REQUEST)
    assert (verdict.outcome, verdict.policy, verdict.message) == ("refused", "my.B", "no")
    assert verdict.observed == (Observation("policy:a", "before"), Observation("policy:b", "beside"))


def test_an_empty_list_of_observations_is_none() -> None:
    assert chain_of(A=lambda request: []).validate(REQUEST) == ALLOWED


@pytest.mark.parametrize("observed", [[1], "ab", 5])
def test_a_violation_with_other_observations_fails(observed: Any) -> None:
    violation = PolicyViolation("no")
    violation.observed = observed
    verdict = chain_of(A=raising(violation)).validate(REQUEST)
    assert verdict.outcome == "failed"
    assert "not a sequence of Observation" in verdict.message


class _OwnViolation(PolicyViolation):
    def __init__(self, text: str) -> None:  # never calls PolicyViolation's
        Exception.__init__(self, text)


def test_a_violation_with_a_constructor_of_its_own_refuses() -> None:
    verdict = chain_of(A=raising(_OwnViolation("mine: no"))).validate(REQUEST)
    assert (verdict.outcome, verdict.rule, verdict.message) == ("refused", "policy:my.A", "mine: no")


def test_a_refusal_without_a_message_names_the_policy() -> None:
    assert chain_of(A=raising(PolicyViolation())).validate(REQUEST).message == "refused by policy my.A"


def test_a_message_is_bounded_and_can_be_encoded() -> None:
    verdict = chain_of(A=raising(PolicyViolation("\ud800" + "é" * 100_000))).validate(REQUEST)
    assert len(verdict.message) == MESSAGE_CHARS_MAX
    assert verdict.message.endswith("é…")
    assert len(verdict.message.encode()) < 32_767


def test_policies_cannot_change_the_request_under_each_other() -> None:
    def meddling(request: RequestMetadata) -> None:
        request.configs["retention.ms"] = "1"  # type: ignore[index]

    configs = {"retention.ms": "5"}
    requested = RequestMetadata(topic="a", num_partitions=1, replication_factor=1, configs=configs)
    verdict = chain_of(A=meddling).validate(requested)
    assert (verdict.outcome, configs) == ("failed", {"retention.ms": "5"})


def test_a_policy_sees_the_request_as_it_is() -> None:
    seen: list[RequestMetadata] = []
    for text in ("orders by=User:bob partitions=7 retention.ms=5", "orders replicas=1,2/2,3"):
        assert chain_of(A=seen.append).validate(request(text)) == ALLOWED
        assert seen.pop() == request(text)


def test_the_probe_is_called_for_each_policy() -> None:
    ticks = iter(range(100))
    judged: list[tuple[str, Outcome, float]] = []
    raised: list[tuple[str, str, BaseException]] = []
    error = OSError("disk")
    probe = PolicyProbe(
        clock=lambda: float(next(ticks)),
        on_verdict=lambda policy, outcome, seconds: judged.append((policy, outcome, seconds)),
        on_exception=lambda policy, topic, error: raised.append((policy, topic, error)),
    )
    chain_of(A=allow, B=raising(PolicyViolation("no")), C=allow).validate(REQUEST, probe)
    chain_of(D=raising(error), E=allow).validate(REQUEST, probe)
    assert judged == [("my.A", "allowed", 1.0), ("my.B", "refused", 1.0), ("my.D", "failed", 1.0)]
    assert raised == [("my.D", "orders", error)]


def test_close_reaches_every_policy_and_collects_what_they_raise() -> None:
    closed: list[str] = []

    def fails(error: BaseException) -> Callable[[], object]:
        def close() -> None:
            closed.append(type(error).__name__)
            raise error

        return close

    policies = [
        LoadedPolicy(name="my.A", policy=_Calling(allow), close=lambda: closed.append("A")),
        LoadedPolicy(name="my.B", policy=_Calling(allow), close=fails(OSError("gone"))),
        LoadedPolicy(name="my.C", policy=_Calling(allow)),
        LoadedPolicy(name="my.D", policy=_Calling(allow), close=fails(SystemExit(1))),
    ]
    chain = PolicyChain(policies)
    assert chain.names == ("my.A", "my.B", "my.C", "my.D")
    assert chain.close() == (
        "policy my.D: close raised SystemExit: 1",
        "policy my.B: close raised OSError: gone",
    )
    assert closed == ["SystemExit", "OSError", "A"]
    assert chain.close() == ()
    assert len(closed) == 3


Assigned = dict[int, tuple[int, ...]] | None
Configs = dict[str, str]
GIVEN = "1@x 2@y 3@z count=2 factor=3"


@pytest.mark.parametrize(
    ("line", "counts", "assigned", "configs"),
    [
        ("create a -1x-1", (2, 3), None, {}),
        ("create a 5x1 conf=retention.ms=5", (5, 1), None, {"retention.ms": "5"}),
        ("create a on=0:1.2,1:2.1", (None, None), {0: (1, 2), 1: (2, 1)}, {}),
    ],
)
def test_request_metadata(
    line: str, counts: tuple[int | None, int | None], assigned: Assigned, configs: Configs
) -> None:
    rig = given(GIVEN)
    create = command(rig, line)
    assert isinstance(create, CreateTopic)
    assert request_metadata(create, rig.state.cluster.settings) == RequestMetadata(
        topic="a",
        num_partitions=counts[0],
        replication_factor=counts[1],
        replicas_assignments=assigned,
        configs=configs,
        principal=create.principal,
        client_id=create.client_id,
    )


def test_counts_without_an_assignment() -> None:
    request = RequestMetadata(topic="a", num_partitions=1, replication_factor=2)
    assert request.replicas_assignments is None
    assert request.configs == {}


def test_an_assignment_without_counts() -> None:
    request = RequestMetadata(topic="a", replicas_assignments={0: (1, 2)})
    assert request.num_partitions is None
    assert request.replication_factor is None


@pytest.mark.parametrize(
    ("partitions", "factor", "assignments"),
    [
        (None, None, None),
        (1, None, None),
        (None, 1, None),
        (1, 1, {0: (1,)}),
        (1, None, {0: (1,)}),
        (None, 1, {0: (1,)}),
    ],
)
def test_counts_and_assignment_are_one_or_the_other(
    partitions: int | None, factor: int | None, assignments: dict[int, tuple[int, ...]] | None
) -> None:
    with pytest.raises(ValueError, match="both counts or an assignment"):
        RequestMetadata(
            topic="a", num_partitions=partitions, replication_factor=factor, replicas_assignments=assignments
        )


def test_a_request_cannot_be_changed() -> None:
    request = RequestMetadata(topic="a", num_partitions=1, replication_factor=1)
    with pytest.raises(AttributeError):
        request.topic = "b"  # type: ignore[misc]


def test_a_violation_carries_message_rule_and_observations() -> None:
    observation = Observation("rules/soon", "not yet")
    violation = PolicyViolation("no", rule="mine", observed=[observation])
    assert (str(violation), violation.message, violation.rule) == ("no", "no", "mine")
    assert violation.observed == (observation,)


def test_the_base_class_requires_validate_alone() -> None:
    with pytest.raises(TypeError, match="validate"):
        CreateTopicPolicy()  # type: ignore[abstract]

    class Mute(CreateTopicPolicy):
        def validate(self, request: RequestMetadata) -> None:
            return

    policy = Mute()
    policy.configure({})
    policy.close()
