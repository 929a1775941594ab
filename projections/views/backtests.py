"""Trials of rules on examples or past requests, as JSON: the task for the process that runs them, and the answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import msgspec

from controller.machine.rules.judging import wrong_examples
from controller.machine.rules.reading import Rules
from events.errors import shortened
from projections.text.wording import many
from projections.views.view import AsOfView

CHANGES = {
    "refused": "was done, would be refused",
    "failed": "was done, would be refused because the policy itself fails",
    "let-through": "was refused, would be done",
    "refused-otherwise": "was refused, would be refused by another rule",
    "done-otherwise": "was done, would be done otherwise",
    "unjudged": "was refused, would now reach the policies, which have no recorded verdict on it",
    "observed": "was done, would be done with a rule's objection recorded",
}
"""The possible changes of a request, in the order of the output."""
MESSAGE_CHARS_MAX = 500
LIMIT_S = 50
"""The process ends after this: before the command line, which waits a minute for an answer."""


class LogRange(msgspec.Struct, frozen=True):
    """Requests of a log from offset `start` until before `end`; `partition` is None for a log without partitions."""

    path: str
    partition: int | None
    start: int
    end: int


class Past(msgspec.Struct, frozen=True):
    """The requests to try; `since` and `as_of` are copied to the answer."""

    logs: tuple[LogRange, ...]
    since: str
    as_of: AsOfView


class Task(msgspec.Struct, frozen=True):
    """Rules to try on the requests of `past`, or if it is None on their examples. Without a text, the requests are
    decided again by the recorded rules."""

    text: str | None
    at_ms: int
    past: Past | None = None


class RulesTestView(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of rules, defaults and examples in a text, and a message for each example that does not hold."""

    rules: int
    defaults: int
    examples: int
    wrong: tuple[str, ...]

    @classmethod
    def of(cls, read: Rules, at_ms: int) -> RulesTestView:
        counts = {name: len(getattr(read, name)) for name in ("rules", "defaults", "examples")}
        return cls(**counts, wrong=tuple(wrong_examples(read, at_ms)))

    @property
    def summary(self) -> str:
        held = self.examples - len(self.wrong)
        counts = f"{many(self.rules, 'rule')}, {many(self.defaults, 'default')}"
        return f"{counts}; {held} of {self.examples} examples hold"


class TriedRequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A request that other rules would decide differently: the offset of its first event, and its topic. `message` is
    the new refusal or violation, shortened."""

    offset: int
    partition: int | None
    topic: str
    message: str


class BacktestGroupView(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of a principal through one API with the same change by the same rules, with the first of them.

    `change` is a key of `CHANGES`. `rule` would refuse or note the requests; `was_rule` refused them, "" if none did.
    """

    change: str
    principal: str
    api: str
    rule: str
    was_rule: str
    count: int
    requests: tuple[TriedRequestView, ...]


def group_of(counted: Mapping[str, Any], requests_max: int, *, has_partitions: bool = True) -> BacktestGroupView:
    """The group of a row of `projections.replay.redecide.backtest.COUNTS`, with its first requests."""
    requests = tuple(
        TriedRequestView(
            offset=one["offset"],
            partition=one["log_partition"] if has_partitions else None,
            topic=one["topic"],
            message=shortened(one["message"], MESSAGE_CHARS_MAX),
        )
        for one in counted["examples"][:requests_max]
    )
    return msgspec.convert({**counted, "requests": requests}, BacktestGroupView)


def effect_lines(groups: Iterable[BacktestGroupView]) -> Iterator[str]:
    """The groups as text, by change."""
    for change, same in groupby(groups, lambda one: one.change):
        of_change = list(same)
        yield ""
        yield f"{change}: {CHANGES[change]} ({sum(one.count for one in of_change)})"
        for one in of_change:
            was = f", was refused by {one.was_rule}" if one.was_rule else ""
            now = f", now by {one.rule}" if one.rule else ""
            yield f"  {one.count:>7} x {one.principal} over {one.api}{was}{now}"
            for each in one.requests:
                of_log = f" of partition {each.partition}" if each.partition else ""
                message = f": {each.message}" if each.message else ""
                yield f"            such as {each.topic} at offset {each.offset}{of_log}{message}"


class BacktestView(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a text of rules on `requests` requests from a point in time on: it would have rejected `refused` of
    those that were done, from `principals` principals.

    `groups` are ordered by change, the largest first; if `more`, there are further groups or requests than listed.
    """

    since: str
    requests: int
    refused: int
    principals: int
    groups: tuple[BacktestGroupView, ...]
    more: bool
    as_of: AsOfView

    @property
    def summary(self) -> str:
        """One sentence about the refused requests."""
        requests, principals = many(self.refused, "request"), many(self.principals, "principal")
        of = f" of {principals}" if self.refused else ""
        return f"would have rejected {requests}{of}; tried {many(self.requests, 'request')} since {self.since}"


class RedecidedRequestView(msgspec.Struct, frozen=True):
    """A request that is decided otherwise than recorded: the first events that differ, and the most likely cause."""

    partition: int | None
    offset: int
    topic: str
    request_id: str
    recorded: str
    now: str
    why: str


class RedecideView(msgspec.Struct, frozen=True, kw_only=True):
    """The result of deciding `requests` requests again: `release` decides `otherwise` of them otherwise than recorded.
    `differences` are the first ones."""

    since: str
    release: str
    requests: int
    otherwise: int
    differences: tuple[RedecidedRequestView, ...]
    as_of: AsOfView

    @property
    def summary(self) -> str:
        requests = many(self.requests, "request")
        return f"{requests} since {self.since} decided again by release {self.release}: {self.otherwise} otherwise"
