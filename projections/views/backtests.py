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
    "redecided": "is decided otherwise than recorded, by the recorded rules",
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


class TrialGroupView(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of a principal through one API with the same change by the same rules, with the first of them.

    `change` is a key of `CHANGES`. `rule` would refuse or note the requests; `was_rule` refused them, "" if none did.
    Of `redecided` requests, `rule` is the most likely cause, and `principal` and `api` are empty.
    """

    change: str
    principal: str
    api: str
    rule: str
    was_rule: str
    count: int
    requests: tuple[TriedRequestView, ...]

    @property
    def text(self) -> str:
        if not self.principal:
            return self.rule
        was = f", was refused by {self.was_rule}" if self.was_rule else ""
        now = f", now by {self.rule}" if self.rule else ""
        return f"{self.principal} over {self.api}{was}{now}"


def group_of(counted: Mapping[str, Any], requests_max: int, *, has_partitions: bool = True) -> TrialGroupView:
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
    return msgspec.convert({**counted, "requests": requests}, TrialGroupView)


def effect_lines(groups: Iterable[TrialGroupView]) -> Iterator[str]:
    """The groups as text, by change."""
    for change, same in groupby(groups, lambda one: one.change):
        of_change = list(same)
        yield ""
        yield f"{change}: {CHANGES[change]} ({sum(one.count for one in of_change)})"
        for one in of_change:
            yield f"  {one.count:>7} x {one.text}"
            for each in one.requests:
                of_log = f" of partition {each.partition}" if each.partition else ""
                message = f": {each.message}" if each.message else ""
                yield f"            such as {each.topic} at offset {each.offset}{of_log}{message}"


class TrialView(msgspec.Struct, frozen=True, kw_only=True):
    """The result of deciding `requests` past requests again, from a point in time on: `otherwise` of them end otherwise
    than recorded. `summary` says this in a sentence.

    `groups` are ordered by change, the largest first; if `more`, there are further groups or requests than listed.
    """

    summary: str
    since: str
    requests: int
    otherwise: int
    groups: tuple[TrialGroupView, ...]
    more: bool
    as_of: AsOfView
