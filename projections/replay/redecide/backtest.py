"""Tries other policies or other settings (the hypothesis) on every recorded request: `topicwright replay backtest`.

Each request is decided again with the changes, and the result is compared with the recorded one: refused now,
accepted now, refused by another rule, or done differently.
Counts are by change, principal and rule, each with its first examples.

A deliberate limit: each request is decided on the **recorded** state before it, not on the history that would have
followed from the changes. A topic whose creation would have been refused still exists for later requests. So each count
tells the effect on the requests that were really made, one by one.

Policies are loaded in the tasks, once for each bucket of the shards and each set of settings, and closed at the end.
They get the requests by shard, so a policy that counts topics sees a different order. Without a policy in the
hypothesis, recorded verdicts apply; a request that now reaches the policies for the first time has none, and counts as
unjudged.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Literal, NamedTuple

import duckdb
import msgspec
import pyarrow as pa
from msgspec.structs import replace

from controller.machine.commands.commands import AlterResourceConfigs, CreateTopic, TopicCommand
from controller.machine.decide import decide
from controller.machine.decision import Decision
from controller.machine.errors import ErrorCode
from controller.machine.state import State
from controller.policy.chain import request_of
from events import catalog
from events.catalog import ChangeRejected, CreateRejected, Event, Observation, RulesObserved, TopicCreated, Verdict
from projections.replay.log.columns import arrow_schema
from projections.replay.log.log_ref import Ends, Ref, as_of, ends_of, offsets_row
from projections.replay.outcome import Options, Outcome, ReplayError
from projections.replay.redecide.recorded import RecordedRequest, fold_requests, timelines_of
from projections.replay.redecide.whatif import AUTO_CREATE, Policies, WhatIf, check, policy_modules, what_if
from projections.replay.runner import Runner
from projections.replay.shards import AT_FIRST, Beginning, Row, as_batches, cluster_events, rows_of
from projections.text.wording import many
from projections.views.backtests import CHANGES, effect_lines, group_of

EXAMPLES_MAX, EXAMPLES_PRINTED_MAX = 100, 3  # of each count
MORE = "`topicwright replay redecide` shows more"
Change = Literal["refused", "failed", "let-through", "refused-otherwise", "done-otherwise", "unjudged", "observed", ""]
"""A key of `CHANGES`, or "" for no change."""


# The effect on one request.


class Result(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a request for one topic: done (`code` 0), or refused with code, message and rule.

    `noted` are violations of rules that warn or observe. `unjudged` is true if the request reaches the policies and has
    no recorded verdict.
    """

    code: int = 0
    rule: str = ""
    message: str = ""
    verdict: Verdict | None = None
    noted: tuple[Observation, ...] = ()
    unjudged: bool = False


class Effect(NamedTuple):
    """The effect of the changes on one request, as a row of COUNTS; `change` is "" if there is none, and there is then
    no example.

    `was_rule` is the rule that refused the recorded request, "" if none did. `rule` is the rule that would refuse
    the request or, for `observed`, the rules that would object.
    """

    change: Change
    principal: str
    was_rule: str
    rule: str
    api: str
    times: int
    examples: Sequence[Row]


def effects(requests: Iterable[RecordedRequest], tried: WhatIf, policies: Policies) -> Iterator[Effect]:
    """The effect on each request.

    Raises ReplayError if events do not follow from each other or lack their command, and PolicyLoadError if a policy
    cannot be loaded.
    """
    for request in requests:
        if request.command is None:
            raise ReplayError(f"{request.broken or f'no request led to offset {request.first.offset}'}; {MORE}")
        command, events = request.command, [record.event for record in request.records]
        was = _result(Decision(tuple(events)))
        now_events, now = _decided(request.state(tried.over(request.cluster)), command, tried, policies)
        change = _change(was, now, events, now_events)
        rule, message = _wording(change, was, now)
        example = request.log_partition, request.first.offset, _subject(command), message
        yield Effect(change, command.principal, was.rule, rule, command.api, 1, [example] if change else [])


def _subject(command: TopicCommand) -> str:
    if isinstance(command, AlterResourceConfigs):
        return f"configs of broker {command.name}" if command.name else "configs of all brokers"
    return command.topic


def _wording(change: Change, was: Result, now: Result) -> tuple[str, str]:
    """The rule behind a change, and its message: the new one or, if nothing refuses now, the recorded one."""
    if change in ("let-through", "unjudged"):
        return "", was.message
    if change == "failed" and now.verdict is not None:
        return now.rule, now.verdict.message
    if change == "observed":
        return ", ".join(one.rule for one in now.noted), "; ".join(one.message for one in now.noted)
    return now.rule, now.message


def _decided(state: State, command: TopicCommand, tried: WhatIf, policies: Policies) -> tuple[Sequence[Event], Result]:
    """The events and the outcome of a command, decided again under the hypothesis."""
    settings = state.cluster.settings
    if not isinstance(command, CreateTopic):
        decision = decide(state, command)
        return decision.events, _result(decision)
    if command.api == "Metadata" and not settings.auto_create_topics_enable:
        message = f"with {AUTO_CREATE}=false there would have been no request to create it"
        return (), Result(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), AUTO_CREATE, message)
    command = command if tried.policies is None else replace(command, verdict=None)
    decision = decide(state, command)
    if decision.needs_approval:
        if tried.policies is None:
            return (), Result(unjudged=True)
        chain = policies.chain(state.cluster.settings_pairs)
        verdict = chain.validate(request_of(command, state))
        decision = decide(state, replace(command, verdict=verdict))
        return decision.events, replace(_result(decision), verdict=verdict)
    return decision.events, _result(decision)


def _result(decision: Decision) -> Result:
    events, refusal = decision.events, decision.refusal
    refused = next((event for event in events if isinstance(event, CreateRejected | ChangeRejected)), None)
    verdict = next((event.verdict for event in events if isinstance(event, CreateRejected | TopicCreated)), None)
    by_policies = () if verdict is None else verdict.observed
    by_rules = (
        each for event in events if isinstance(event, RulesObserved) for each in (*event.warned, *event.observed)
    )
    result = Result(verdict=verdict, noted=(*by_policies, *by_rules))
    if refused is None and refusal is not None:  # of a change whose refusals are no events
        return replace(result, code=int(refusal.code), rule=refusal.rule, message=refusal.message)
    if refused is None:
        return result
    return replace(result, code=refused.error_code, rule=refused.rule, message=refused.message)


def _change(was: Result, now: Result, recorded: Sequence[Event], events: Sequence[Event]) -> Change:
    if now.unjudged:
        return "unjudged"
    if was.code and not now.code:
        return "let-through"
    if was.code:
        return "" if (was.code, was.rule) == (now.code, now.rule) else "refused-otherwise"
    if now.code:
        return "failed" if now.verdict is not None and now.verdict.outcome == "failed" else "refused"
    if _without_verdict(recorded) != _without_verdict(events):
        return "done-otherwise"
    return "observed" if now.noted and now.noted != was.noted else ""


def _without_verdict(events: Sequence[Event]) -> list[Event]:
    apart = RulesObserved | catalog.ApprovalRequested | catalog.ApprovalDecided
    decided = (event for event in events if not isinstance(event, apart))
    return [replace(event, verdict=None) if isinstance(event, TopicCreated) else event for event in decided]


# Counting.

_EXAMPLES = pa.list_(pa.struct(list(arrow_schema(("log_partition", "offset", "topic", "message")))))
COUNTS = arrow_schema(
    ("change", "principal", "was_rule", "rule", "api", "count", "examples"),
    **dict.fromkeys(("change", "was_rule", "rule"), pa.string()),
    examples=_EXAMPLES,
)
"""The number of requests of a principal through one API with the same change by the same rules (see `Effect`), with the
first of them."""
_TALLY = f"""
select change, principal, was_rule, rule, api, sum(count)::bigint as count,
       list_sort(flatten(list(examples)))[:{EXAMPLES_MAX}] as examples
from counts group by change, principal, was_rule, rule, api
order by list_position({list(CHANGES)}, change), count desc, principal, was_rule, rule, api
"""


def tally(rows: Iterable[Row]) -> pa.Table:
    """Add up rows of COUNTS, from single effects or from buckets; by change in the order of CHANGES, the largest
    first."""
    with duckdb.connect() as database:
        database.register("counts", pa.Table.from_batches(as_batches(rows, COUNTS), COUNTS))
        return database.sql(_TALLY).to_arrow_table().cast(COUNTS)


# The whole log.


def run_backtest(runner: Runner, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay backtest`: try `options.settings` on every request up to
    `options.at`; `found` is true if one changes. Raises ReplayError, and PolicyLoadError as `check_backtest`."""
    tried, ends = what_if(options.settings), ends_of(ref, options.at)
    runner.ship(policy_modules(tried.policies or ""))
    found = count_effects(runner, ref, ends, tried)
    all_counts = tally(rows_of(found)).to_pylist()
    requests = sum(one["count"] for one in all_counts)
    counts = [one for one in all_counts if one["change"]]
    otherwise = sum(one["count"] for one in counts)
    words = f"{many(requests, 'request')} up to {as_of(ends)} tried with {tried.summary()}"
    return Outcome(
        rows=[{**one, "requests": requests} for one in counts],
        found=bool(counts),
        lines=[
            f"{words}: {otherwise} would end otherwise",
            *effect_lines(group_of(one, EXAMPLES_PRINTED_MAX) for one in counts),
        ],
        about={**offsets_row(ends), "requests": requests, "otherwise": otherwise},
    )


def count_effects(
    runner: Runner, ref: Ref, ends: Ends, tried: WhatIf, start: int = 0, begin: Beginning = AT_FIRST
) -> pa.Table:
    """The effects on the requests from offset `start` until before `ends`, as COUNTS that `tally` adds up; `begin` as
    in `fold_requests`. Raises ReplayError."""
    return fold_requests(runner, ref, ends, partial(_of_bucket, tried=tried), COUNTS, tried.rules or "", start, begin)


def check_backtest(ref: Ref, options: Options) -> None:
    """Check, before Spark starts, that the hypothesis can be tested. Raises ReplayError and PolicyLoadError."""
    tried = what_if(options.settings)
    for timeline in timelines_of(cluster_events(ref, ends_of(ref, options.at))).values():
        check(tried, timeline)


def _of_bucket(requests: Iterable[RecordedRequest], tried: WhatIf) -> Iterator[Row]:
    """The counts of one bucket of the shards; requests without a change are counted too."""
    with closing(Policies(tried)) as policies:
        yield from rows_of(tally(effects(requests, tried, policies)))
