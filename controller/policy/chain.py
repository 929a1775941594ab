"""Several policies in a row, and one verdict of theirs.

The first policy that refuses or fails decides, and those after it are not called. What a policy raises ends here, as
a verdict: no code of an operator's may stop the controller. The chain runs no threads and reads no clock of its own, so
that a replay can use it as the controller does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, Protocol, cast

import msgspec

from controller.machine import validation
from controller.machine.commands.commands import CreateTopic
from controller.machine.state import Settings
from controller.policy.interface import PolicyInForce, PolicyViolation, RequestMetadata, RuleInForce
from events.catalog import Observation, Outcome, Verdict

ALLOWED = Verdict(outcome="allowed")
"""The verdict where no policy is set, and where every policy agrees in silence."""

MESSAGE_CHARS_MAX = 4096
"""Longer messages are cut: an answer's string has 32,767 bytes before CreateTopics v5, and a character up to four."""


class Policy(Protocol):
    """What a loaded policy is known by; its class may be anyone's."""

    def validate(self, request: RequestMetadata, /) -> object:
        """Judge one request, as `CreateTopicPolicy.validate`."""


class LoadedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A configured policy under the class name that settings gave it. `close` is None where it has no such method;
    `rules` are those of its file, if it is of the kind that has one."""

    name: str
    policy: Policy
    close: Callable[[], object] | None = None
    rules: tuple[RuleInForce, ...] = ()


class PolicyProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Where a chain reports what its policies cost and raise; by default nowhere.

    `on_verdict(policy, outcome, seconds)` follows each call of a policy, measured with `clock` (seconds, monotonic).
    `on_exception(policy, topic, error)` comes before it for each exception that is not a PolicyViolation, with its
    traceback, for the operator to see. Both are called where the chain runs.
    """

    clock: Callable[[], float] = lambda: 0.0
    on_verdict: Callable[[str, Outcome, float], None] = lambda policy, outcome, seconds: None
    on_exception: Callable[[str, str, BaseException], None] = lambda policy, topic, error: None


SILENT = PolicyProbe()


class PolicyChain:
    """Configured policies in the order in which settings name them. An empty chain allows everything."""

    def __init__(self, policies: Sequence[LoadedPolicy] = ()) -> None:
        self._policies = tuple(policies)
        self._closed = False

    @property
    def names(self) -> tuple[str, ...]:
        """The policies' class names, in order."""
        return tuple(loaded.name for loaded in self._policies)

    @property
    def in_force(self) -> tuple[PolicyInForce, ...]:
        """The policies in order, with their rules, for people to look at."""
        return tuple(PolicyInForce(one.name, one.rules) for one in self._policies)

    def validate(self, request: RequestMetadata, probe: PolicyProbe = SILENT) -> Verdict:
        """Ask each policy until one refuses or fails.

        Raises nothing that a policy raised, SystemExit included, but for KeyboardInterrupt, which is the operator's.
        """
        if not self._policies:
            return ALLOWED
        sealed = _read_only(request)
        observed: tuple[Observation, ...] = ()
        for loaded in self._policies:
            verdict = _judge(loaded, sealed, probe)
            observed += verdict.observed
            if verdict.outcome != "allowed":
                return msgspec.structs.replace(verdict, observed=observed)
        return Verdict(outcome="allowed", observed=observed) if observed else ALLOWED

    def close(self) -> tuple[str, ...]:
        """Close every policy, the last first, and say which of them raised what. A second call does nothing."""
        if self._closed:
            return ()
        self._closed = True
        return close_all(self._policies)


def close_all(policies: Sequence[LoadedPolicy]) -> tuple[str, ...]:
    """Close `policies`, the last first; one that raises does not keep the others open. Returns what they raised."""
    failures: list[str] = []
    for loaded in reversed(policies):
        try:
            if loaded.close is not None:
                loaded.close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            failures.append(f"policy {loaded.name}: close raised {error_text(error)}")
    return tuple(failures)


def failed_verdict(policy: str, error: BaseException) -> Verdict:
    """The verdict on a topic whose policy broke down instead of answering."""
    return _failed(policy, f"raised {error_text(error)}")


def error_text(error: BaseException) -> str:
    """An exception's class and text, even where its `__str__` raises."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception as unreadable:
        text = f"(its text cannot be read: {type(unreadable).__name__})"
    return f"{name}: {text}" if text else name


def _judge(loaded: LoadedPolicy, request: RequestMetadata, probe: PolicyProbe) -> Verdict:
    began = probe.clock()
    verdict = _answer(loaded, request, probe)
    probe.on_verdict(loaded.name, verdict.outcome, probe.clock() - began)
    return verdict


def _answer(loaded: LoadedPolicy, request: RequestMetadata, probe: PolicyProbe) -> Verdict:
    try:
        returned = loaded.policy.validate(request)
    except PolicyViolation as violation:
        return _refused(loaded.name, violation)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        probe.on_exception(loaded.name, request.topic, error)
        return failed_verdict(loaded.name, error)
    return _returned(loaded.name, returned)


def _returned(policy: str, returned: object) -> Verdict:
    """A policy that answers False means to refuse: what is neither None nor observations must not pass for consent."""
    if returned is None:
        return ALLOWED
    observed = _observations(policy, returned)
    if observed is not None:
        return Verdict(outcome="allowed", observed=observed)
    if inspect.iscoroutine(returned):
        returned.close()
    return _failed(
        policy,
        f"returned a {type(returned).__name__} from validate, "
        "which may return None or a sequence of Observation, and refuses by raising PolicyViolation",
    )


def _refused(policy: str, violation: PolicyViolation) -> Verdict:
    """Reads attributes with care: a subclass may have an `__init__` of its own that never called ours."""
    observed = _observations(policy, getattr(violation, "observed", ()))
    if observed is None:
        return _failed(policy, "raised a PolicyViolation whose `observed` is not a sequence of Observation")
    message = getattr(violation, "message", "") or error_text(violation).partition(": ")[2]
    return Verdict(
        outcome="refused",
        policy=policy,
        rule=_rule(policy, getattr(violation, "rule", "")),
        message=_encodable(str(message) or f"refused by policy {policy}"),
        observed=observed,
    )


def _failed(policy: str, what: str) -> Verdict:
    return Verdict(
        outcome="failed", policy=policy, rule=_rule(policy, ""), message=_encodable(f"policy {policy} {what}")
    )


def _observations(policy: str, given: object) -> tuple[Observation, ...] | None:
    if not isinstance(given, tuple | list):
        return None
    items = cast("Sequence[Any]", given)
    if not all(isinstance(item, Observation) for item in items):
        return None
    return tuple(Observation(rule=_rule(policy, item.rule), message=_encodable(item.message)) for item in items)


def _rule(policy: str, rule: str) -> str:
    return f"policy:{_encodable(str(rule)) or policy}"


def _encodable(text: str) -> str:
    """Text that any answer and any log can hold: bounded, and UTF-8 (a lone surrogate is not)."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= MESSAGE_CHARS_MAX else text[: MESSAGE_CHARS_MAX - 1] + "…"


def _read_only(request: RequestMetadata) -> RequestMetadata:
    """The same request with mappings that no policy can change under the next one."""
    assignments = request.replicas_assignments
    return msgspec.structs.replace(
        request,
        configs=MappingProxyType(dict(request.configs)),
        replicas_assignments=None if assignments is None else MappingProxyType(dict(assignments)),
    )


def request_metadata(command: CreateTopic, settings: Settings) -> RequestMetadata:
    """What KIP-108 shows to a policy: the resolved counts, or the manual assignment, and the configs of the request."""
    manual = {one.partition: tuple(map(int, one.replicas)) for one in command.assignments} or None
    return RequestMetadata(
        topic=command.topic,
        num_partitions=None if manual else validation.resolved_partitions(command, settings),
        replication_factor=None if manual else validation.resolved_factor(command, settings),
        replicas_assignments=manual,
        configs={name: value for name, value in command.configs if value is not None},
        principal=command.principal,
        client_id=command.client_id,
    )
