"""`topicwright status`, `whatif`, `brokers`, `settings`, `diff` and `rules`: print the health of the cluster, now or
after a change, its brokers, settings and rules, and differences; test, backtest, apply and compare rules.
"""

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import unified_diff
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec.structs import replace

from controller.cli.arguments import DONE, NEGATIVE, print_error
from controller.cli.backend import Backend, Refusal
from controller.cli.output import Marked, Style, harmless, show, show_lines
from controller.cli.reads import common
from controller.policy.loading import checked_file, rules_text
from projections.text.wording import many
from projections.views import overviews
from projections.views.backtests import RulesTestView, TrialView, effect_lines
from projections.views.brokers import BrokersView, BrokerView, RuleView, SimulatedBrokerView
from projections.views.events import EventsView, EventView, ValueView
from projections.views.lines import mark, when, wrapped
from projections.views.view import IssueView


def status(options: argparse.Namespace, backend: Backend) -> int:
    answer = backend.get(overviews.ClusterHealthView, "/health", at=options.at)
    show(options, answer, lambda style: _health_lines(answer, style), lambda: (one.kind for one in answer.issues))
    return DONE if answer.state == "healthy" else NEGATIVE


def whatif(options: argparse.Namespace, backend: Backend) -> int:
    answer = backend.get(overviews.WhatIfView, "/whatif", change=" ".join(options.change))
    names = (name for one in answer.topics if one.is_worse for name in one.examples)
    show(options, answer, lambda style: _whatif_lines(answer, style), lambda: names)
    return NEGATIVE if answer.creates or any(one.is_worse for one in answer.topics) else DONE


def brokers(options: argparse.Namespace, backend: Backend) -> int:
    answer = backend.get(BrokersView, "/brokers", at=options.at)
    if options.id is not None:
        found = tuple(one for one in answer.brokers if one.broker_id == options.id)
        if not found:
            known = common.ids([one.broker_id for one in answer.brokers])
            return print_error(f"broker {options.id} is not registered; registered are: {known}", NEGATIVE)
        answer = replace(answer, brokers=found)
    view = {"brokers": answer.brokers, "live": answer.live, "as_of": answer.as_of}
    ids = (one.broker_id for one in answer.brokers)
    return show(options, view, lambda style: _broker_lines(answer, style), lambda: ids, when(answer.as_of))


def control(options: argparse.Namespace, backend: Backend) -> int:
    path = "/simulated/brokers" if options.action == "add" else f"/simulated/brokers/{options.id}/{options.action}"
    bodies = {"add": {"rack": getattr(options, "rack", None)}, "delay": {"delay_ms": getattr(options, "delay_ms", 0)}}
    method = "PUT" if options.action == "delay" else "POST"
    answer = backend.send(method, path, SimulatedBrokerView, body=bodies.get(options.action))
    state = "running" if answer.running else "stopped"
    line = f"broker {answer.broker_id} of rack {answer.rack} is {state}"
    if options.action == "delay" or (answer.running and answer.delay_ms):
        line += f"; it applies events after {answer.delay_ms} ms"
    return show(options, answer, lambda _: [line], lambda: [answer.broker_id])


def settings(options: argparse.Namespace, backend: Backend) -> int:
    answer = backend.get(BrokersView, "/brokers", at=options.at)
    chosen = {key: value for key, value in answer.settings.items() if fnmatchcase(key, options.key)}
    if not chosen:
        known = ", ".join(sorted(answer.settings)) or "none"
        return print_error(f"no setting matches {options.key!r}; there are: {known}", NEGATIVE)
    decided = f"Decided by release {answer.release or '-'},{when(answer.as_of)}"

    def lines(style: Style) -> list[str]:
        return [decided, "", *style.table(("SETTING", "VALUE"), sorted(chosen.items()))]

    view = {"settings": chosen, "release": answer.release, "as_of": answer.as_of}
    return show(options, view, lines, lambda: sorted(chosen))


def diff(options: argparse.Namespace, backend: Backend) -> int:
    span = {"from": options.before, "to": options.after, "limit": common.PAGE}
    found = list(common.pages(backend, overviews.DifferenceView, "/diff", **span))
    if (found[0].before.partition, found[0].after.offset) < (found[0].after.partition, found[0].before.offset):
        raise common.Misuse(f"FROM is later than TO: give {options.after} {options.before}")
    first, topics = found[0], [one for page in found for one in page.topics]
    answer = {"topics": topics, "cluster": first.cluster, "before": first.before, "after": first.after}
    show(options, answer, lambda style: _difference_lines(first, topics, style), lambda: (one.name for one in topics))
    return NEGATIVE if topics or _is_different(first.cluster) else DONE


def _is_different(cluster: overviews.ClusterDifferenceView | None) -> bool:
    return cluster is not None and any(
        (cluster.brokers, cluster.settings, cluster.release, cluster.acls_added, cluster.acls_removed, cluster.changes)
    )


def _difference_lines(
    first: overviews.DifferenceView, topics: Sequence[overviews.TopicDifferenceView], style: Style
) -> Iterator[str]:
    yield f"Between the state{when(first.before)} and that{when(first.after)}:"
    header = ("TOPIC", "CHANGE", "PARTITIONS", "OTHER REPLICAS", "OTHER LEADERS", "OTHER IN SYNC", "BY", "CONFIGS")
    yield from style.section(header, map(_topic_row, topics))
    if first.cluster is not None:
        yield from _cluster_lines(first.cluster, style)
    if not topics and not _is_different(first.cluster):
        yield "no difference."


def _topic_row(one: overviews.TopicDifferenceView) -> tuple[object, ...]:
    before, after = ("-" if count is None else str(count) for count in (one.partitions_before, one.partitions_after))
    partitions = before if before == after else f"{before} -> {after}"
    configs = ", ".join(map(_value, one.configs)) or "-"
    change = Marked(one.change, mark(one.change))
    by = ", ".join(dict.fromkeys(each.principal for each in one.changes if each.principal)) or "-"
    return one.name, change, partitions, one.other_replicas, one.other_leaders, one.other_isr, by, configs


def _value(one: ValueView) -> str:
    before, after = ("(none)" if text is None else text for text in (one.before, one.after))
    return f"{one.name}: {before} -> {after}"


def _cluster_lines(cluster: overviews.ClusterDifferenceView, style: Style) -> Iterator[str]:
    rows = ((one.broker_id, one.before or "-", one.after or "-", one.reason) for one in cluster.brokers)
    yield from style.section(("BROKER", "BEFORE", "AFTER", "WHY"), rows)
    values = [*cluster.settings, *([cluster.release] if cluster.release is not None else [])]
    changed = ((one.name, one.before or "-", one.after or "-") for one in values)
    yield from style.section(("SETTING", "BEFORE", "AFTER"), changed)
    more = [
        *(f"added: {acl}" for acl in cluster.acls_added),
        *(f"removed: {acl}" for acl in cluster.acls_removed),
        *(f"offset {event.offset}: {event.text}" for event in cluster.changes),
    ]
    if more:
        yield ""
        yield from more
    if cluster.more:
        yield "… and more changes of the cluster than are listed"


# --- text


def _health_lines(answer: overviews.ClusterHealthView, style: Style) -> Iterator[str]:
    mark = {"healthy": "good", "critical": "bad"}.get(answer.state, "warning")
    counts = [f"{len(answer.live)} of {many(answer.brokers_registered, 'broker')} live"]
    if answer.topics is not None:
        counts += f"{answer.offline_partitions} of {answer.partitions} partitions offline", many(answer.topics, "topic")
    yield f"{style.painted(answer.state, mark)}: {', '.join(counts)}"
    yield f" {when(answer.as_of)}"
    yield from wrapped("", answer.summary, style.width) if not answer.issues else _issue_lines(answer.issues, style)


def _issue_lines(found: Sequence[IssueView], style: Style) -> Iterator[str]:
    for one in found:
        yield ""
        kind = style.painted(one.kind, "bad" if one.severity == "critical" else "warning")
        since = f" {'since' if style.now is None else 'for'} {style.age(one.began_at)}" if one.began_at else ""
        first, *more = wrapped("", f"{one.kind}{since}: {one.text}", style.width)
        yield first.replace(one.kind, kind, 1)
        yield from more
        topics = ", ".join(one.examples) + (", …" if one.topics > len(one.examples) else "")
        facts = {"cause": one.cause, "to do": one.resolution, "topics": topics if one.examples else ""}
        for name, value in facts.items():
            if value:
                yield from wrapped(f"  {name:<7} ", value, style.width)
        if one.examples:
            yield f"  why     topicwright explain {shlex.quote(one.examples[0])}"


def _whatif_lines(answer: overviews.WhatIfView, style: Style) -> Iterator[str]:
    yield from wrapped("", answer.summary, style.width)
    for text in answer.changes:
        yield from wrapped("  if  ", text, style.width)
    yield f"  now{when(answer.as_of)}"
    rows = ((one.before or "healthy", one.then, one.topics, _examples(one)) for one in answer.topics)
    yield from style.section(("NOW", "THEN", "TOPICS", "WHICH"), rows)
    for create in answer.creates:
        yield ""
        refusal = f"{create.error}: {create.message}"
        yield from wrapped(f"factor {create.replication_factor}  ", refusal, style.width)
    if answer.issues:
        yield ""
        yield "The problems would then be:"
        yield from _issue_lines(answer.issues, style)


def _examples(one: overviews.TopicsWhatIfView) -> str:
    return ", ".join(one.examples) + (
        f" and {one.topics - len(one.examples)} more" if one.topics > len(one.examples) else ""
    )


def _broker_lines(answer: BrokersView, style: Style) -> Iterator[str]:
    more = ("EPOCH", "REGISTERED", "INCARNATION") if style.wide else ()
    header = ("BROKER", "STATE", "SINCE", "WHY", "RACK", "LISTENERS", *more)
    return style.table(header, (_broker_row(one, style) for one in answer.brokers), "There are no brokers.")


def _broker_row(one: BrokerView, style: Style) -> tuple[object, ...]:
    cordoned = ", cordoned" if one.cordoned else ""
    state = Marked(f"fenced{cordoned}", "bad") if one.fenced else Marked(f"live{cordoned}", "good")
    listeners = ",".join(f"{each.name}://{each.host}:{each.port}" for each in one.endpoints) or "-"
    row = (one.broker_id, state, style.age(one.changed_at), one.reason, one.rack or "-", listeners)
    return (*row, one.broker_epoch, one.registered_at, one.incarnation) if style.wide else row


# --- rules

VERSIONS_PER_PAGE = 20
"""A page is short, because each version has the whole text of its rules."""


def show_rules(options: argparse.Namespace, backend: Backend) -> int:
    answer = backend.get(overviews.PoliciesView, "/policies", at=options.at)
    if options.text:
        show_lines(options, (answer.version.text if answer.version else "").splitlines())
        return DONE
    return show(
        options,
        answer,
        lambda style: _rule_lines(answer, style),
        lambda: (one.name for one in answer.rules),
        when(answer.as_of),
    )


def _rule_lines(answer: overviews.PoliciesView, style: Style) -> Iterator[str]:
    version = answer.version
    if version is None:
        yield "No rules were applied."
        return
    yield f"Version {version.number}, applied {version.applied_at} by {version.principal}, sha256 {version.sha256[:12]}"
    if not answer.rules:
        yield "It has no rules."
        return
    yield from style.section(("RULE", "MODE", "ON", "DEFINITION"), map(_rule_row, answer.rules))
    rows = (
        (rule.name, one.applies_to, Marked(one.until, "warning" if one.is_expired else ""), one.reason)
        for rule in answer.rules
        for one in rule.exceptions
    )
    yield from style.section(("RULE", "EXCEPTION", "UNTIL", "REASON"), rows)


def _rule_row(rule: RuleView) -> tuple[object, ...]:
    definition = ", ".join(f"{key} = {value}" for key, value in rule.definition.items())
    return rule.name, Marked(rule.mode, "good" if rule.mode == "enforce" else "warning"), ",".join(rule.on), definition


def test_rules(options: argparse.Namespace) -> int:
    from controller.machine.rules.reading import read_rules
    from controller.serving.process import wall_ms

    rules = read_rules(checked_file(options.file))
    view = RulesTestView.of(rules, wall_ms())
    for line in (*view.wrong, view.summary):
        print(harmless(line))
    return NEGATIVE if view.wrong else DONE


def backtest_rules(options: argparse.Namespace, backend: Backend) -> int:
    body = {"text": checked_file(options.file), "since": options.since}
    return _show_trial(options, backend.send("POST", "/rules/backtest", TrialView, body=body))


def redecide(options: argparse.Namespace, backend: Backend) -> int:
    return _show_trial(options, backend.send("POST", "/rules/redecide", TrialView, body={"since": options.since}))


def _show_trial(options: argparse.Namespace, found: TrialView) -> int:
    lines = (found.summary, *effect_lines(found.groups), *(("", "… and more") if found.more else ()))
    topics = (each.topic for one in found.groups for each in one.requests)
    show(options, found, lambda _: lines, lambda: topics)
    return NEGATIVE if found.groups else DONE


def apply_rules(options: argparse.Namespace, backend: Backend) -> int:
    """Replace the effective rules by the rules of a file; without a file, remove all rules."""
    body = {"text": "" if options.file is None else checked_file(options.file), "after": options.after}
    before = None
    with suppress(Refusal):  # the next request names the permission that the command needs
        before = backend.get(overviews.PoliciesView, "/policies").version
    applied = backend.send("POST", "/rules", dict[str, int], body=body)
    state = "is effective already" if before and before.number == applied["number"] else "is effective"
    line = f"version {applied['number']} of the rules {state}"
    return show(options, applied, lambda _: [line], lambda: [applied["number"]])


def _versions(backend: Backend) -> Iterator[EventView]:
    kind = {"type": "RulesApplied", "order": "newest", "limit": VERSIONS_PER_PAGE}
    found: dict[int, EventView] = {}  # each partition of a log has its own event about a version
    for page in common.pages(backend, EventsView, "/events", **kind):
        for event in page.events:
            if found.setdefault(event.fields["number"], event) is event:
                yield event


def list_versions(options: argparse.Namespace, backend: Backend) -> int:
    versions = list(_versions(backend))
    header = ("VERSION", "APPLIED", "BY", "SHA256", "OFFSET")
    found = [(one, one.fields) for one in versions]
    rows = [(of["number"], one.at, of["principal"], of["sha256"][:12], one.offset) for one, of in found]
    numbers = (row[0] for row in rows)
    return show(options, {"versions": versions}, lambda style: style.table(header, rows), lambda: numbers)


def diff_rules(options: argparse.Namespace, backend: Backend) -> int:
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
        version = backend.get(overviews.PoliciesView, "/policies").version
        return ("no rules", "") if version is None else (f"version {version.number}", version.text)
    if _is_version(given):
        for event in _versions(backend):
            if event.fields["number"] == int(given):
                return f"version {given}", event.fields["text"]
        raise common.Misuse(f"there is no version {given}; `topicwright rules history` lists them")
    return given, rules_text(Path(given))
