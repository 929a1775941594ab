"""Combines the operator's policies (KIP-108, KIP-133) into one verdict, and runs them in a thread.

`PolicyChain`: the first policy that refuses or fails decides. Every exception becomes a verdict, because the operator's
code must not stop the controller. The chain starts no threads, so that gateways and replay can use it too.

`PolicyRunner`: the group commit of `serve` and the workers call `judge` before deciding on CreateTopics. A policy may
be slow, for example if it calls an HTTP service: only later creates wait. One thread calls the policies in the order of
arrival, never concurrently. Verdicts arrive on the event loop in the order of the calls. The thread is a daemon. A
policy that never returns blocks later creates, which the operator sees in log and metrics, but not the end of the
process.
"""

import asyncio
import inspect
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Protocol, cast

import msgspec

from controller.machine import validation
from controller.machine.commands.commands import AlterResourceConfigs, AlterTopicConfigs, CreateTopic
from controller.machine.configs.changes import OpType, altered, altered_topic_configs
from controller.machine.decision import topic_named
from controller.machine.errors import Rejection
from controller.machine.rules.judging import filled
from controller.machine.state import State
from controller.policy.interface import AlterConfigMetadata, PolicyViolation, Request, RequestMetadata
from events.catalog import MESSAGE_CHARS_MAX, Observation, Outcome, Verdict
from events.errors import shortened

ALLOWED = Verdict(outcome="allowed")
"""The verdict if there are no policies, or if every policy allows the request without observations."""
OBSERVATIONS_MAX = 100
"""Limit for the observations of one policy on one request, which the request's commit writes."""


class LoadedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The methods of a configured policy, and its class name in the settings. `close` is None if it has none."""

    name: str
    validate: Callable[[Any], object]
    close: Callable[[], object] | None = None


class PolicyChain:
    """Configured policies in the order of the settings: for new topics, and for changes of configs. A chain without
    policies allows every request. Its callbacks run in the thread of `validate`."""

    def __init__(self, policies: Sequence[LoadedPolicy] = (), of_configs: Sequence[LoadedPolicy] = ()) -> None:
        self._policies, self._of_configs = tuple(policies), tuple(of_configs)
        self.names = tuple(loaded.name for loaded in (*policies, *of_configs))
        self.clock: Callable[[], float] = lambda: 0.0
        """Seconds, monotonic."""
        self.on_verdict: Callable[[str, Outcome, float], None] = lambda policy, outcome, seconds: None
        """Called after each call of a policy, with its duration."""
        self.on_exception: Callable[[str, str, BaseException], None] = lambda policy, topic, error: None
        """Called before `on_verdict` for an exception other than PolicyViolation."""

    def validate(self, request: Request) -> Verdict:
        """Calls the policies for this kind of request until one refuses or fails. Raises nothing except
        KeyboardInterrupt."""
        policies = self._policies if isinstance(request, RequestMetadata) else self._of_configs
        if not policies:
            return ALLOWED
        sealed = _read_only(request)
        observed: tuple[Observation, ...] = ()
        for loaded in policies:
            verdict = self._judge(loaded, sealed)
            observed += verdict.observed
            if verdict.outcome != "allowed":
                return msgspec.structs.replace(verdict, observed=observed)
        return Verdict(outcome="allowed", observed=observed) if observed else ALLOWED

    def _judge(self, loaded: LoadedPolicy, request: Request) -> Verdict:
        began = self.clock()
        try:
            verdict = _returned(loaded.name, loaded.validate(request))
        except PolicyViolation as violation:
            verdict = _refused(loaded.name, violation)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.on_exception(loaded.name, request.topic, error)
            verdict = _failed(loaded.name, f"raised {error_text(error)}")
        self.on_verdict(loaded.name, verdict.outcome, self.clock() - began)
        return verdict

    def close(self) -> tuple[str, ...]:
        return close_all((*self._policies, *self._of_configs))


def close_all(policies: Sequence[LoadedPolicy]) -> tuple[str, ...]:
    """Closes the policies, the last first, even if one raises. Returns their errors."""
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


def error_text(error: BaseException) -> str:
    """Returns the class and text of an exception, even if its `__str__` raises."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception as unreadable:
        text = f"(its text cannot be read: {type(unreadable).__name__})"
    return f"{name}: {text}" if text else name


def _returned(policy: str, returned: object) -> Verdict:
    """The verdict for the result of `validate`. None and observations allow; False must not count as consent."""
    if returned is None:
        return ALLOWED
    items = cast("Sequence[Any]", returned)
    is_list = isinstance(returned, tuple | list) and len(items) <= OBSERVATIONS_MAX
    if is_list and all(isinstance(item, Observation) for item in items):
        observed = (Observation(rule=_rule(policy, one.rule), message=_encodable(one.message)) for one in items)
        return Verdict(outcome="allowed", observed=tuple(observed))
    if inspect.iscoroutine(returned):
        returned.close()
    return _failed(
        policy,
        f"returned a {type(returned).__name__} from validate, "
        f"which may return None or at most {OBSERVATIONS_MAX} Observation, and refuses by raising PolicyViolation",
    )


def _refused(policy: str, violation: PolicyViolation) -> Verdict:
    """The verdict for a PolicyViolation. A subclass may lack its attributes, if `__init__` does not set them."""
    message = getattr(violation, "message", "") or error_text(violation).partition(": ")[2]
    return Verdict(
        outcome="refused",
        policy=policy,
        rule=_rule(policy, getattr(violation, "rule", "")),
        message=_encodable(str(message) or f"refused by policy {policy}"),
    )


def _failed(policy: str, what: str) -> Verdict:
    return Verdict(
        outcome="failed", policy=policy, rule=_rule(policy, ""), message=_encodable(f"policy {policy} {what}")
    )


def _rule(policy: str, rule: str) -> str:
    return f"policy:{_encodable(str(rule)) or policy}"


def _encodable(text: str) -> str:
    """Returns the text truncated and as valid UTF-8 (no lone surrogates), so that responses and logs can hold it."""
    return shortened(text.encode("utf-8", "replace").decode("utf-8"), MESSAGE_CHARS_MAX)


def _read_only(request: Request) -> Request:
    """Returns the request with read-only mappings, so that a policy cannot change them for the next policy."""
    names = [name for name in ("configs", "replicas_assignments") if getattr(request, name, None) is not None]
    sealed: dict[str, Any] = {name: MappingProxyType(dict(getattr(request, name))) for name in names}
    return msgspec.structs.replace(request, **sealed)


JudgedCommand = CreateTopic | AlterTopicConfigs | AlterResourceConfigs
"""The commands that policies judge."""


def request_of(command: JudgedCommand, state: State) -> Request:
    """Returns the request that policies get before the command is decided on this state, with the defaults that rules
    fill in. Kafka's policies get resolved counts or a manual assignment (KIP-108)."""
    who: Any = {"principal": command.principal, "client_id": command.client_id}
    if isinstance(command, CreateTopic):
        create, settings = filled(state, command)[0], state.cluster.settings
        manual = {one.partition: tuple(map(int, one.replicas)) for one in create.assignments} or None
        return RequestMetadata(
            topic=create.topic,
            num_partitions=None if manual else validation.resolved_partitions(create, settings),
            replication_factor=None if manual else validation.resolved_factor(create, settings),
            replicas_assignments=manual,
            configs={name: value for name, value in create.configs if value is not None},
            **who,
        )
    if isinstance(command, AlterTopicConfigs):
        topic, defaults = topic_named(state, command.topic), state.cluster.settings.effective_defaults
        current = () if topic is None else topic.configs
        after = altered_topic_configs(current, command.ops, defaults, incremental=command.incremental)
        kind, name = "TOPIC", str(command.topic)
    else:
        before = state.cluster.configs_of(command.kind, command.name)
        after = altered(before, command.ops, command.incremental)
        kind, name = "BROKER", command.name
    texts = {} if isinstance(after, Rejection) else dict(after)
    configs = {op.name: texts[op.name] for op in command.ops if op.op != OpType.DELETE and op.name in texts}
    return AlterConfigMetadata(resource_type=kind, name=name, configs=configs, **who)


Verdicts = tuple[Verdict, ...]


class PolicyRunnerClosed(Exception):
    """The runner was closed before the request had a verdict, so the request must not be decided."""


class PolicyJudge(Protocol):
    """Returns the policies' verdicts on requests to create topics; the engine then decides these requests."""

    async def judge(self, requests: Sequence[Request], /) -> Verdicts:
        """Returns a verdict for each request, in order. Raises PolicyRunnerClosed."""

    async def close(self, timeout_s: float, /) -> tuple[str, ...]:
        """Closes the policies within `timeout_s` seconds. Returns the errors of closing, empty on success."""


class PolicyRunner:
    """Runs policies in one daemon thread. Belongs to one event loop."""

    def __init__(self, chain: PolicyChain) -> None:
        self._chain = chain
        self._tasks: queue.SimpleQueue[tuple[tuple[Request, ...], Future[Verdicts]] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._closed: Future[tuple[str, ...]] = Future()
        self._judging = ""
        threading.Thread(target=self._work, name="create-topic-policy", daemon=True).start()

    async def judge(self, requests: Sequence[Request]) -> Verdicts:
        """See `PolicyJudge`. Cancelling the call does not stop the policy."""
        if self._closing.is_set():
            raise PolicyRunnerClosed("the policies are closed")
        answer: Future[Verdicts] = Future()
        self._tasks.put((tuple(requests), answer))
        return await asyncio.wrap_future(answer)

    async def close(self, timeout_s: float) -> tuple[str, ...]:
        """See `PolicyJudge`. The thread finishes the current topic, rejects all others and closes the policies. A busy
        policy is abandoned. A second call waits for the same result."""
        if not self._closing.is_set():
            self._closing.set()
            self._tasks.put(None)
        done, _ = await asyncio.wait({asyncio.wrap_future(self._closed)}, timeout=timeout_s)
        if done:
            return self._closed.result()
        busy = f"still judging topic '{self._judging}'" if self._judging else "still closing"
        return (f"policies {', '.join(self._chain.names)}: {busy} after {timeout_s:g} s, abandoned",)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            requests, answer = task
            verdicts = self._judged(requests)
            with suppress(InvalidStateError):  # cancelled: nobody waits for the verdicts
                if verdicts is None:
                    answer.set_exception(PolicyRunnerClosed("the policies were closed before this request was judged"))
                else:
                    answer.set_result(verdicts)
        try:
            failures = self._chain.close()
        except BaseException as error:
            failures = (f"closing the policies raised {error_text(error)}",)
        self._closed.set_result(failures)

    def _judged(self, requests: Sequence[Request]) -> Verdicts | None:
        """None if closing began before the last topic: there are no partial results."""
        verdicts = []
        for request in requests:
            if self._closing.is_set():
                return None
            self._judging = request.topic
            try:
                verdicts.append(self._chain.validate(request))
            except BaseException as error:  # a KeyboardInterrupt in this thread was raised by the policy
                verdicts.append(_failed(", ".join(self._chain.names), f"raised {error_text(error)}"))
            self._judging = ""
        return tuple(verdicts)
