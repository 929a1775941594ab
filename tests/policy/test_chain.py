"""Several policies give one verdict, and no error of a policy escapes the chain."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from controller.machine.commands.commands import CreateTopic
from controller.policy import CreateTopicPolicy, Observation, PolicyViolation, RequestMetadata
from controller.policy.chain import ALLOWED, LoadedPolicy, PolicyChain, request_of
from events.catalog import MESSAGE_CHARS_MAX, Outcome, Verdict
from tests.machine.tables import command, given
from tests.policy.requests import request

REQUEST = request("orders")


class _Calling:
    def __init__(self, answer: Callable[[RequestMetadata], object]) -> None:
        self._answer = answer

    def validate(self, request: RequestMetadata) -> object:
        return self._answer(request)


def chain_of(**answers: Callable[[RequestMetadata], object]) -> PolicyChain:
    return PolicyChain(
        [LoadedPolicy(name=f"my.{name}", validate=_Calling(answer).validate) for name, answer in answers.items()]
    )


def raising(error: BaseException) -> Callable[[RequestMetadata], object]:
    def answer(request: RequestMetadata) -> object:
        raise error

    return answer


def allow(request: RequestMetadata) -> None:
    return None


class _Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def observing(*rules: str) -> Callable[[RequestMetadata], Sequence[Observation]]:
    return lambda request: [Observation(rule, f"{rule or 'it'} is broken") for rule in rules]


def never(request: RequestMetadata) -> object:
    raise AssertionError("called after a refusal or a failure")


class _OwnViolation(PolicyViolation):
    def __init__(self, text: str) -> None:  # never calls PolicyViolation's
        Exception.__init__(self, text)


def refused(message: str, policy: str = "my.A", rule: str = "policy:my.A", *observed: Observation) -> Verdict:
    return Verdict("refused", policy, rule, message, observed)


BY_B = raising(PolicyViolation("no"))
VERDICTS: list[tuple[dict[str, Callable[[RequestMetadata], object]], Verdict]] = [
    ({}, ALLOWED),
    ({"A": allow, "B": allow}, ALLOWED),
    ({"A": lambda _: []}, ALLOWED),
    ({"A": raising(PolicyViolation("first")), "B": never}, refused("first")),
    ({"A": allow, "B": raising(PolicyViolation("too wide"))}, refused("too wide", "my.B", "policy:my.B")),
    ({"A": raising(PolicyViolation("no", rule="rules/naming"))}, refused("no", rule="policy:rules/naming")),
    ({"A": raising(PolicyViolation())}, refused("refused by policy my.A")),
    ({"A": raising(_OwnViolation("mine: no"))}, refused("mine: no")),
    (
        {"A": observing("rules/a", "rules/b"), "B": allow, "C": observing("")},
        Verdict(
            "allowed",
            observed=(
                Observation("policy:rules/a", "rules/a is broken"),
                Observation("policy:rules/b", "rules/b is broken"),
                Observation("policy:my.C", "it is broken"),
            ),
        ),
    ),
    ({"A": observing("a"), "B": BY_B}, refused("no", "my.B", "policy:my.B", Observation("policy:a", "a is broken"))),
    *(
        ({"A": raising(error), "B": never}, Verdict("failed", "my.A", "policy:my.A", f"policy my.A raised {message}"))
        for error, message in (
            (ValueError("boom"), "ValueError: boom"),
            (ValueError(), "ValueError"),
            (SystemExit(3), "SystemExit: 3"),
            (GeneratorExit(), "GeneratorExit"),
            (asyncio.CancelledError(), "CancelledError"),
            (MemoryError(), "MemoryError"),
            (NotImplementedError("later"), "NotImplementedError: later"),
            (_Unreadable(), "_Unreadable: (its text cannot be read: RuntimeError)"),
        )
    ),
]


@pytest.mark.parametrize(("policies", "verdict"), VERDICTS)
def test_policies_have_one_verdict(policies: dict[str, Callable[[RequestMetadata], object]], verdict: Verdict) -> None:
    assert chain_of(**policies).validate(REQUEST) == verdict


def test_infinite_recursion_of_a_policy_is_a_failed_verdict() -> None:
    def deeper(request: RequestMetadata) -> object:
        return deeper(request)

    assert chain_of(A=deeper).validate(REQUEST).message.startswith("policy my.A raised RecursionError")


def test_keyboard_interrupt_of_the_operator_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        chain_of(A=raising(KeyboardInterrupt())).validate(REQUEST)


INVALID: tuple[object, ...] = (False, True, "no", 0, {}, ["no"], {Observation("a", "b")}, [Observation("a", "b")] * 101)


@pytest.mark.parametrize("returned", INVALID, ids=lambda returned: repr(returned)[:40])
def test_an_invalid_return_value_of_a_policy_is_a_failed_verdict(returned: object) -> None:
    verdict = chain_of(A=lambda request: returned).validate(REQUEST)
    assert verdict.outcome == "failed"
    assert f"returned a {type(returned).__name__}" in verdict.message
    assert "refuses by raising PolicyViolation" in verdict.message


def test_a_coroutine_of_a_policy_is_closed_and_a_failed_verdict() -> None:
    async def later() -> None: ...

    assert "returned a coroutine" in chain_of(A=lambda request: later()).validate(REQUEST).message


def test_a_policy_message_is_truncated_and_encodable() -> None:
    verdict = chain_of(A=raising(PolicyViolation("\ud800" + "é" * 100_000))).validate(REQUEST)
    assert len(verdict.message) == MESSAGE_CHARS_MAX
    assert verdict.message.endswith("é…")
    assert len(verdict.message.encode()) < 32_767


def test_policies_cannot_modify_the_request() -> None:
    def meddling(request: RequestMetadata) -> None:
        request.configs["retention.ms"] = "1"  # type: ignore[index]

    configs = {"retention.ms": "5"}
    requested = RequestMetadata(topic="a", num_partitions=1, replication_factor=1, configs=configs)
    verdict = chain_of(A=meddling).validate(requested)
    assert (verdict.outcome, configs) == ("failed", {"retention.ms": "5"})


def test_the_callbacks_are_called_for_each_policy() -> None:
    ticks = iter(range(100))
    judged: list[tuple[str, Outcome, float]] = []
    raised: list[tuple[str, str, BaseException]] = []
    error = OSError("disk")
    for chain in (chain_of(A=allow, B=raising(PolicyViolation("no")), C=allow), chain_of(D=raising(error), E=allow)):
        chain.clock = lambda: float(next(ticks))
        chain.on_verdict = lambda policy, outcome, seconds: judged.append((policy, outcome, seconds))
        chain.on_exception = lambda policy, topic, error: raised.append((policy, topic, error))
        chain.validate(REQUEST)
    assert judged == [("my.A", "allowed", 1.0), ("my.B", "refused", 1.0), ("my.D", "failed", 1.0)]
    assert raised == [("my.D", "orders", error)]


def test_close_closes_every_policy_and_collects_exceptions() -> None:
    closed: list[str] = []

    def fails(error: BaseException) -> Callable[[], object]:
        def close() -> None:
            closed.append(type(error).__name__)
            raise error

        return close

    policies = [
        LoadedPolicy(name="my.A", validate=_Calling(allow).validate, close=lambda: closed.append("A")),
        LoadedPolicy(name="my.B", validate=_Calling(allow).validate, close=fails(OSError("gone"))),
        LoadedPolicy(name="my.C", validate=_Calling(allow).validate),
        LoadedPolicy(name="my.D", validate=_Calling(allow).validate, close=fails(SystemExit(1))),
    ]
    chain = PolicyChain(policies)
    assert chain.names == ("my.A", "my.B", "my.C", "my.D")
    assert chain.close() == ("policy my.D: close raised SystemExit: 1", "policy my.B: close raised OSError: gone")
    assert closed == ["SystemExit", "OSError", "A"]


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
def test_request_metadata_has_kafkas_fields(
    line: str, counts: tuple[int | None, int | None], assigned: Assigned, configs: Configs
) -> None:
    rig = given(GIVEN)
    create = command(rig, line)
    assert isinstance(create, CreateTopic)
    assert request_of(create, rig.state) == RequestMetadata(
        topic="a",
        num_partitions=counts[0],
        replication_factor=counts[1],
        replicas_assignments=assigned,
        configs=configs,
        principal=create.principal,
        client_id=create.client_id,
    )


def test_create_topic_policy_requires_only_validate() -> None:
    with pytest.raises(TypeError, match="validate"):
        CreateTopicPolicy()  # type: ignore[abstract]

    class Mute(CreateTopicPolicy):
        def validate(self, request: RequestMetadata) -> None:
            return

    policy = Mute()
    policy.configure({})
    policy.close()
