"""`topicwright rules`: print, test, apply and compare the rules that changes of topics must satisfy.

Exit codes of `test` and `diff`: 0 all examples hold, or no difference; 1 otherwise; 2 error.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

from controller.cli.arguments import DONE, NEGATIVE, count
from controller.cli.commands import COMMANDS, Parsers
from controller.cli.output import Marked, Style, harmless, show, show_lines
from controller.cli.reads import common

if TYPE_CHECKING:
    from controller.cli.backend import Backend
    from projections.views.events import EventView
    from projections.views.overviews import PoliciesView
    from projections.views.rules import RuleView

VERSIONS_PER_PAGE = 20
"""A page is short, because each version has the whole text of its rules."""


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("rules", description=COMMANDS["rules"].description)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    shown = verbs.add_parser("show", help="list the rules in force, now or in the past")
    shown.add_argument("--text", action="store_true", help="print the text of the rules")
    common.add_at(shown)
    common.add_backend(shown, _show)
    tested = verbs.add_parser("test", help="check a file of rules, and try its examples, without a server")
    tested.add_argument("file", type=Path, metavar="FILE")
    tested.set_defaults(func=_test)
    applied = verbs.add_parser("apply", help="replace the rules in force by those of a file")
    applied.add_argument("file", type=Path, metavar="FILE")
    applied.add_argument("--after", type=count, metavar="VERSION", help="only if this version is in force; 0 for none")
    common.add_backend(applied, _apply, may_be_stopped=False)
    removed = verbs.add_parser("remove", help="apply a version without rules")
    removed.set_defaults(file=None, after=None)
    common.add_backend(removed, _apply, may_be_stopped=False)
    history = verbs.add_parser("history", help="list all versions, the newest first")
    common.add_backend(history, _history)
    diff = verbs.add_parser("diff", help="compare versions or files; exit code 1 if they differ")
    what = "a version or a file"
    diff.add_argument("first", metavar="VERSION|FILE", help=f"{what}; a file alone is compared with the rules in force")
    diff.add_argument("second", nargs="?", metavar="VERSION|FILE", help=f"{what}; default: the rules in force")
    common.add_backend(diff, _diff, formats=())


def _show(options: argparse.Namespace, backend: Backend) -> int:
    from projections.views.overviews import PoliciesView

    answer = backend.get(PoliciesView, "/policies", at=options.at)
    if options.text:
        show_lines(options, (answer.version.text if answer.version else "").splitlines())
        return DONE
    view = {"version": answer.version, "rules": answer.rules, "as_of": answer.as_of}
    return show(options, view, lambda style: _lines(answer, style), lambda: (one.name for one in answer.rules))


def _lines(answer: PoliciesView, style: Style) -> Iterator[str]:
    from projections.views.lines import when

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


def _test(options: argparse.Namespace) -> int:
    from controller.machine.rules.judging import wrong_examples
    from controller.machine.rules.reading import read_rules
    from controller.policy.rules_file import checked_file
    from controller.serving.process import wall_ms

    rules = read_rules(checked_file(options.file))
    wrong = list(wrong_examples(rules, wall_ms()))
    for line in wrong:
        print(harmless(line))
    print(
        f"{len(rules.rules)} rules, {len(rules.defaults)} defaults; {len(rules.examples) - len(wrong)} of "
        f"{len(rules.examples)} examples hold"
    )
    return NEGATIVE if wrong else DONE


def _apply(options: argparse.Namespace, backend: Backend) -> int:
    """Replace the effective rules by the rules of a file; without a file, remove all rules."""
    from controller.http.paths.writes import RulesAppliedView, RulesBody
    from controller.policy.rules_file import checked_file
    from projections.views.overviews import PoliciesView

    body = RulesBody("" if options.file is None else checked_file(options.file), options.after)
    before = backend.get(PoliciesView, "/policies").version
    applied = backend.send("POST", "/rules", RulesAppliedView, body=body)
    state = "is in force already" if before and before.number == applied.number else "is in force"
    line = f"version {applied.number} of the rules {state}"
    return show(options, applied, lambda _: [line], lambda: [applied.number])


def _versions(backend: Backend) -> Iterator[EventView]:
    from projections.views.events import EventsView

    kind = {"type": "RulesApplied", "order": "newest", "limit": VERSIONS_PER_PAGE}
    found: dict[int, EventView] = {}  # each partition of a log has its own event about a version
    for page in common.pages(backend, EventsView, "/events", **kind):
        for event in page.events:
            if found.setdefault(event.fields["number"], event) is event:
                yield event


def _history(options: argparse.Namespace, backend: Backend) -> int:
    versions = list(_versions(backend))
    rows = [
        (one.fields["number"], one.at, one.fields["principal"], one.fields["sha256"][:12], one.offset)
        for one in versions
    ]
    header = ("VERSION", "APPLIED", "BY", "SHA256", "OFFSET")
    return show(
        options, {"versions": versions}, lambda style: style.table(header, rows), lambda: (row[0] for row in rows)
    )


def _diff(options: argparse.Namespace, backend: Backend) -> int:
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
    from controller.policy.rules_file import rules_text
    from projections.views.overviews import PoliciesView

    if given is None:
        version = backend.get(PoliciesView, "/policies").version
        return ("no rules", "") if version is None else (f"version {version.number}", version.text)
    if _is_version(given):
        for event in _versions(backend):
            if event.fields["number"] == int(given):
                return f"version {given}", event.fields["text"]
        raise common.Misuse(f"there is no version {given}; `topicwright rules history` lists them")
    return given, rules_text(Path(given))
