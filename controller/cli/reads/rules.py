"""`topicwright rules`: print, test, backtest, apply and compare the rules that changes of topics must satisfy.

Exit codes of `test`, `backtest`, `redecide` and `diff`: 0 all examples hold, or no difference; 1 otherwise; 2 error.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

from controller.cli.arguments import DONE, NEGATIVE
from controller.cli.backend import Backend
from controller.cli.output import Marked, Style, harmless, show, show_lines
from controller.cli.reads import common
from controller.policy.loading import checked_file, rules_text
from projections.views.backtests import BacktestView, RedecideView, RulesTestView
from projections.views.brokers import RuleView
from projections.views.events import EventsView, EventView
from projections.views.lines import when
from projections.views.overviews import PoliciesView

VERSIONS_PER_PAGE = 20
"""A page is short, because each version has the whole text of its rules."""


def show_rules(options: argparse.Namespace, backend: Backend) -> int:
    answer = backend.get(PoliciesView, "/policies", at=options.at)
    if options.text:
        show_lines(options, (answer.version.text if answer.version else "").splitlines())
        return DONE
    view = {"version": answer.version, "rules": answer.rules, "as_of": answer.as_of}
    return show(options, view, lambda style: _lines(answer, style), lambda: (one.name for one in answer.rules))


def _lines(answer: PoliciesView, style: Style) -> Iterator[str]:
    version = answer.version
    if version is None:
        yield f"No rules were applied{when(answer.as_of)}."
        return
    yield f"Version {version.number}, applied {version.applied_at} by {version.principal}, sha256 {version.sha256[:12]}"
    if not answer.rules:
        yield "It has no rules."
        return
    yield ""
    yield from style.table(("RULE", "MODE", "ON", "DEFINITION"), map(_row, answer.rules))
    exceptions = [(rule.name, one) for rule in answer.rules for one in rule.exceptions]
    if exceptions:
        yield ""
        rows = (
            (name, one.applies_to, Marked(one.until, "warning" if one.is_expired else ""), one.reason)
            for name, one in exceptions
        )
        yield from style.table(("RULE", "EXCEPTION", "UNTIL", "REASON"), rows)


def _row(rule: RuleView) -> tuple[object, ...]:
    definition = ", ".join(f"{key}={value}" for key, value in rule.definition.items())
    return rule.name, Marked(rule.mode, "good" if rule.mode == "enforce" else "warning"), ",".join(rule.on), definition


def test(options: argparse.Namespace) -> int:
    from controller.machine.rules.reading import read_rules
    from controller.serving.process import wall_ms

    rules = read_rules(checked_file(options.file))
    view = RulesTestView.of(rules, wall_ms())
    for line in (*view.problems, view.summary):
        print(harmless(line))
    return NEGATIVE if view.problems else DONE


def backtest(options: argparse.Namespace, backend: Backend) -> int:
    from controller.http.rules import BacktestBody  # imports the HTTP framework

    body = BacktestBody(text=checked_file(options.file), since=options.since)
    found = backend.send("POST", "/rules/backtest", BacktestView, body=body)
    topics = (each.topic for one in found.groups for each in one.requests)
    show(options, found, lambda style: _effects(found, style), lambda: topics)
    return NEGATIVE if found.groups else DONE


def _effects(found: BacktestView, style: Style) -> Iterator[str]:
    yield found.summary
    for one in found.groups:
        yield ""
        rule = one.rule or one.was_rule
        yield f"{one.change}: {one.count} x {one.principal} over {one.api}, {'now by' if one.rule else 'was by'} {rule}"
        rows = ((each.offset, each.topic, each.message) for each in one.requests)
        yield from style.table(("OFFSET", "TOPIC", "MESSAGE"), rows)
    if found.more:
        yield ""
        yield "… and more"


def redecide(options: argparse.Namespace, backend: Backend) -> int:
    from controller.http.rules import RedecideBody  # imports the HTTP framework

    found = backend.send("POST", "/rules/redecide", RedecideView, body=RedecideBody(since=options.since))
    show(options, found, lambda style: _differences(found, style), lambda: (one.topic for one in found.differences))
    return NEGATIVE if found.otherwise else DONE


def _differences(found: RedecideView, style: Style) -> Iterator[str]:
    yield found.summary
    if found.otherwise:
        yield ""
        rows = ((one.offset, one.topic, one.recorded, one.now, one.why) for one in found.differences)
        yield from style.table(("OFFSET", "TOPIC", "RECORDED", "NOW", "BECAUSE"), rows)
    if found.otherwise > len(found.differences):
        yield "… and more"


def apply(options: argparse.Namespace, backend: Backend) -> int:
    """Replace the effective rules by the rules of a file; without a file, remove all rules."""
    from controller.http.rules import RulesAppliedView, RulesBody  # imports the HTTP framework

    body = RulesBody("" if options.file is None else checked_file(options.file), options.after)
    before = backend.get(PoliciesView, "/policies").version
    applied = backend.send("POST", "/rules", RulesAppliedView, body=body)
    state = "is effective already" if before and before.number == applied.number else "is effective"
    line = f"version {applied.number} of the rules {state}"
    return show(options, applied, lambda _: [line], lambda: [applied.number])


def _versions(backend: Backend) -> Iterator[EventView]:
    kind = {"type": "RulesApplied", "order": "newest", "limit": VERSIONS_PER_PAGE}
    found: dict[int, EventView] = {}  # each partition of a log has its own event about a version
    for page in common.pages(backend, EventsView, "/events", **kind):
        for event in page.events:
            if found.setdefault(event.fields["number"], event) is event:
                yield event


def history(options: argparse.Namespace, backend: Backend) -> int:
    versions = list(_versions(backend))
    header = ("VERSION", "APPLIED", "BY", "SHA256", "OFFSET")
    found = [(one, one.fields) for one in versions]
    rows = [(of["number"], one.at, of["principal"], of["sha256"][:12], one.offset) for one, of in found]
    numbers = (row[0] for row in rows)
    return show(options, {"versions": versions}, lambda style: style.table(header, rows), lambda: numbers)


def diff(options: argparse.Namespace, backend: Backend) -> int:
    given = [options.first] if options.second is None else [options.first, options.second]
    sides = [_side(backend, each) for each in given]
    if options.second is None:
        sides.insert(1 if _is_version(options.first) else 0, _side(backend, None))
    (old, before), (new, after) = sides
    lines = list(unified_diff(before.splitlines(), after.splitlines(), old, new, lineterm=""))
    for line in lines or ["no difference."]:
        print(harmless(line))
    return NEGATIVE if lines else DONE


def _is_version(given: str) -> bool:
    return re.fullmatch("[0-9]{1,18}", given) is not None


def _side(backend: Backend, given: str | None) -> tuple[str, str]:
    """The name and text of one side; None means the effective rules."""
    if given is None:
        version = backend.get(PoliciesView, "/policies").version
        return ("no rules", "") if version is None else (f"version {version.number}", version.text)
    if _is_version(given):
        for event in _versions(backend):
            if event.fields["number"] == int(given):
                return f"version {given}", event.fields["text"]
        raise common.Misuse(f"there is no version {given}; `topicwright rules history` lists them")
    return given, rules_text(Path(given))
