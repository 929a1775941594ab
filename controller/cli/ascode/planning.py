"""`topicwright plan`, `apply`, `import` and `drift`: the changes that bring topics to what files describe.

A change is an item of `POST /v1/changes`. The service decides a dry run with the same rules as the change itself, and
places replicas by name and live brokers. So the plan has the very replicas, and a plan that is made again shows whether
anything has changed since.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, Literal

import msgspec
import yaml
from msgspec.structs import replace

from controller.cli.arguments import DONE, NEGATIVE, Negative
from controller.cli.ascode.desired import FileSet, Wanted
from controller.cli.backend import Backend
from controller.cli.output import Style, show
from controller.cli.reads import common
from controller.machine.configs.topic_configs import without_labels
from events.errors import UserError, shortened
from events.files import replacing
from events.logs.log import read_text
from projections.text.wording import many
from projections.views.events import EventsView
from projections.views.topics import ChangesView, ChangeView, TopicSummary, TopicsView, TopicView

PLAN_BYTES_MAX: Final = 256 << 20
EXPLAINED_MAX: Final = 100
"""`drift` looks up the last event of this many changes; a notification has them alone."""
NAMES_CHARS_MAX: Final = 1000
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,18}")
_VERBS: Final = {"create": "create", "alter": "change", "delete": "delete"}
_REQUEST_SIZE: Final = 10_000
"""`POST /v1/changes` takes 100 changes, 10,000 partitions and 1 MB: a change is 1 % of this, or more if it is large."""
_TOO_LARGE: Final = "too large: allowed are replicas of 10000 partitions, 1000 configs, and 500 kB in all"
_MOVE: Final = "kafka-reassign-partitions does this, because it copies records"
_WIDTH: Final = 120


class Request(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An item of `POST /v1/changes`."""

    type: Literal["create", "alter", "delete"]
    name: str
    configs: dict[str, str | None] = {}
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, ...], ...] = ()

    @property
    def size(self) -> int:
        """The part of `_REQUEST_SIZE` that the change needs."""
        of_bytes = len(msgspec.json.encode(self)) // 50
        return max(100, self.num_partitions, len(self.assignments), 10 * len(self.configs), of_bytes)


class Change(msgspec.Struct, frozen=True):
    """A change, the line that wants it, the topic before, and the outcome of the dry run."""

    request: Request
    where: str
    before: TopicSummary | None
    outcome: ChangeView = ChangeView(name="")
    since: str = ""
    """The event that made the topic differ from the files."""

    @property
    def name(self) -> str:
        return self.request.name

    @property
    def is_refused(self) -> bool:
        return self.outcome.is_refused

    @property
    def replicas(self) -> list[tuple[int, tuple[int, ...]]]:
        """The new partitions with their replicas."""
        return [(one.partition, one.replicas) for one in self.outcome.partitions]

    def is_same(self, other: Change) -> bool:
        """True if the dry runs of two equal requests had the same outcome, from the same topic."""
        mine, others = (
            (one.before and (one.before.topic_id, one.before.num_partitions, one.before.configs), one.replicas)
            for one in (self, other)
        )
        return mine == others and self.is_refused == other.is_refused


class Plan(msgspec.Struct, frozen=True):
    """Changes in the order in which they are applied, and the name of the set of files."""

    changes: tuple[Change, ...]
    set: str | None = None


def topics_by_name(backend: Backend) -> dict[str, TopicSummary]:
    pages = common.pages(backend, TopicsView, "/topics", limit=common.PAGE)
    return {one.name: one for page in pages for one in page.topics}


def agent_of(set_name: str | None) -> str:
    """The client id under which a set creates topics, by which `--prune` finds them."""
    return f"topicwright apply {set_name or ''}".strip()


def differences(backend: Backend, files: FileSet, *, prune: bool) -> Iterator[Change]:
    """The changes with their dry runs, but without those that change nothing, such as `0.5` to `0.50`. Changes that no
    request can make come first."""
    wanted = list(_wanted_changes(backend, files, prune=prune))
    yield from (one for one in wanted if one.is_refused)
    for one in with_outcomes(backend, (one for one in wanted if not one.is_refused)):
        is_same = one.request.configs and one.before is not None and one.outcome.configs == one.before.configs
        if one.is_refused or not is_same:
            yield one


def _wanted_changes(backend: Backend, files: FileSet, *, prune: bool) -> Iterator[Change]:
    current = topics_by_name(backend)
    for wanted in files.topics.values():
        now = current.get(wanted.name)
        for request in _requests(wanted, now):
            too_large = _TOO_LARGE if request.size > max(_REQUEST_SIZE, request.num_partitions) else ""
            yield _change(request, wanted, now, too_large)
        if now is not None:
            yield from _moves(wanted, now, backend)
    for now in current.values() if prune else ():
        by = now.created_by
        if now.name not in files.topics and by is not None and by.client_id == agent_of(files.name):
            yield Change(Request("delete", now.name), f"no file of set {files.name} has it", now)


def _requests(wanted: Wanted, now: TopicSummary | None) -> Iterator[Request]:
    """A creation, or at most two alterations: one has either configs or partitions."""
    if now is None:
        counts = (wanted.partitions or -1, wanted.factor or -1) if wanted.replicas is None else (-1, -1)
        yield Request("create", wanted.name, dict(wanted.configs), *counts, wanted.replicas or ())
        return
    given = {**dict.fromkeys(now.configs), **wanted.configs}
    configs = {key: value for key, value in given.items() if value != now.configs.get(key)}
    if configs:
        yield Request("alter", wanted.name, configs)
    if wanted.partitions not in (None, now.num_partitions):
        rows = (wanted.replicas or ())[now.num_partitions :]
        yield Request("alter", wanted.name, num_partitions=wanted.partitions, assignments=rows)


def _moves(wanted: Wanted, now: TopicSummary, backend: Backend) -> Iterator[Change]:
    """A refused change of existing replicas, if the file has others."""
    if wanted.factor is not None and wanted.factor != now.replication_factor:
        yield _change(Request("alter", wanted.name, replication_factor=wanted.factor), wanted, now, _MOVE)
    elif wanted.replicas is not None:
        existing = backend.get(TopicView, "/topics", wanted.name).partitions
        pairs = [(one, row) for one, row in zip(existing, wanted.replicas, strict=False) if one.replicas != row]
        for one, row in pairs[:1]:
            why = f"partition {one.partition} is on {list(one.replicas)}, and in the file on {list(row)}: {_MOVE}"
            yield _change(Request("alter", wanted.name, assignments=wanted.replicas), wanted, now, why)


def _change(request: Request, wanted: Wanted, now: TopicSummary | None, refused: str) -> Change:
    error = ChangeView(name=wanted.name, error="INVALID_REQUEST", code=42, message=refused)
    return Change(request, str(wanted.node), now, error if refused else ChangeView(name=wanted.name))


def with_outcomes(backend: Backend, changes: Iterable[Change], *, dry_run: bool = True) -> Iterator[Change]:
    """Submit changes, or their dry runs, in as few requests as possible; yields each with its outcome."""
    for batch in _batches(changes):
        body = {"changes": [one.request for one in batch]}
        results = backend.send("POST", "/changes", ChangesView, body=body, validate_only=dry_run).results
        for one, outcome in zip(batch, results, strict=True):
            yield replace(one, outcome=outcome)


def _batches(changes: Iterable[Change]) -> Iterator[list[Change]]:
    batch: list[Change] = []
    size = 0
    for one in changes:
        size += one.request.size
        if batch and size > _REQUEST_SIZE:
            yield batch
            batch, size = [], one.request.size
        batch.append(one)
    if batch:
        yield batch


# --- commands


def plan(options: argparse.Namespace, backend: Backend) -> int:
    made = _plan_of(options, backend)
    if options.save is not None:
        with replacing(options.save) as file:
            file.write(msgspec.json.encode(made))
    return _show(options, made)


def _plan_of(options: argparse.Namespace, backend: Backend) -> Plan:
    files = FileSet(options.files)
    if options.prune and files.name is None:
        raise UserError("--prune deletes only what the same set of files created: name it with `set: NAME` in a file")
    return Plan(tuple(differences(backend, files, prune=options.prune)), files.name)


def _show(options: argparse.Namespace, made: Plan, what: str = "Plan") -> int:
    refused = [one for one in made.changes if one.is_refused]

    def text(style: Style) -> Iterator[str]:
        yield from lines(made.changes, style)
        topics = {(one.request.type, one.name) for one in made.changes if not one.is_refused}
        verbs = {kind: f"{verb}d" if what == "Applied" else f"to {verb}" for kind, verb in _VERBS.items()}
        counts = [f"{sum(kind == each for each, _ in topics)} {verb}" for kind, verb in verbs.items()]
        ending = f"; {len(refused)} rejected" if refused else ""
        nothing = "No changes: the cluster is as the files describe it."
        yield f"{what}: {', '.join(counts)}{ending}." if made.changes else nothing

    show(options, made, text, lambda: dict.fromkeys(one.name for one in made.changes))
    return NEGATIVE if refused else DONE


def drift(options: argparse.Namespace, backend: Backend) -> int:
    files = FileSet(options.files)
    found = list(differences(backend, files, prune=files.name is not None))
    explained = [replace(one, since=_cause(backend, one)) for one in found[:EXPLAINED_MAX]]
    _show(options, Plan((*explained, *found[EXPLAINED_MAX:]), files.name), "Drift")
    if options.to is not None and found:
        from controller.cli.work.notify import notify_drift

        names = shortened(", ".join(dict.fromkeys(one.name for one in found)), NAMES_CHARS_MAX)
        text = f"{many(len(found), 'difference')} from the files of {files.name or 'topics'}: {names}"
        notify_drift(options, backend, text, {"set": files.name, "changes": explained})
    return NEGATIVE if found else DONE


def _cause(backend: Backend, change: Change) -> str:
    """The last event that made a topic differ from the files; empty if there is none."""
    of_topic = "TopicConfigsChanged" if change.request.configs else "PartitionsAdded"
    if change.before is not None and not (change.request.configs or change.request.num_partitions > 0):
        return ""
    kind = "TopicDeleted" if change.before is None else of_topic
    which = {"topic": change.name, "type": kind, "order": "newest", "limit": 1}
    answer = backend.get(EventsView, "/events", **which)
    return "".join(f"{one.at}: {one.text}" for one in answer.events)


def apply(options: argparse.Namespace, backend: Backend) -> int:
    if (options.plan is None) == (not options.files):
        raise common.Misuse("give either FILE… or --plan FILE")
    if options.plan is not None and options.prune:
        raise common.Misuse("a saved plan has its deletions already, so --prune cannot be used with --plan")
    made = _plan_of(options, backend) if options.plan is None else _saved(options.plan, backend)
    if any(one.is_refused for one in made.changes):
        return _show(options, made, "Nothing is applied")
    backend.agent = agent_of(made.set)
    return _show(options, Plan(tuple(with_outcomes(backend, made.changes, dry_run=False)), made.set), "Applied")


def _saved(path: Path, backend: Backend) -> Plan:
    """A saved plan. Raises Negative if a plan of now would differ from it."""
    try:
        made = msgspec.json.decode(read_text(path, PLAN_BYTES_MAX), type=Plan)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a plan that `topicwright plan --save` wrote: {error}") from None
    if any(one.is_refused for one in made.changes):
        return made
    current = topics_by_name(backend)
    repeated = with_outcomes(backend, (replace(one, before=current.get(one.name)) for one in made.changes))
    pairs = [pair for pair in zip(made.changes, repeated, strict=True) if not pair[0].is_same(pair[1])]
    if pairs:
        shown = [line for one in pairs for line in ("planned, and now:", *lines(one, Style()))]
        why = f"nothing is applied: {many(len(pairs), 'change')} of {path} would have another result; make a new plan"
        raise Negative("\n".join([why, *shown]))
    return made


def write_files(options: argparse.Namespace, backend: Backend) -> None:
    found = sorted(topics_by_name(backend).values(), key=lambda one: one.name)
    topics = {one.name: _described(one) for one in found if fnmatchcase(one.name, options.pattern)}
    yaml.dump({"topics": topics}, sys.stdout, yaml.CSafeDumper, sort_keys=False, allow_unicode=True)


def _described(topic: TopicSummary) -> dict[str, Any]:
    shape: dict[str, Any] = {"partitions": topic.num_partitions, "factor": topic.replication_factor}
    for name, given in (("configs", without_labels(topic.configs.items())), ("labels", topic.labels.items())):
        if given:
            shape[name] = {key: int(value) if _NUMBER.fullmatch(value) else value for key, value in given}
    return shape


# --- text


def lines(changes: Iterable[Change], style: Style) -> Iterator[str]:
    """Each change with its replicas, and why it would be rejected."""
    for one in changes:
        sign, mark, what = _summary(one)
        yield style.painted(f"{sign} {one.name}: {what}  ({one.where})", mark)
        placed = [f"{partition}:{','.join(map(str, replicas))}" for partition, replicas in one.replicas]
        yield from wrap("; ".join(placed), style.width or _WIDTH, initial_indent="    ", subsequent_indent="    ")
        if one.since:
            yield f"    since {one.since}"
        answer = one.outcome
        if one.is_refused:
            by = f", by {answer.rule}" if answer.rule else ""
            yield style.painted(f"    rejected: {answer.message} ({answer.error}{by})", "bad")
        elif answer.message:
            yield f"    {answer.message}"


def _summary(change: Change) -> tuple[str, str, str]:
    """The sign of a change, its mark, and what it does."""
    request, before = change.request, change.before
    if request.type == "create":
        rows = [replicas for _, replicas in change.replicas] or request.assignments
        count = len(rows) or max(request.num_partitions, 0)
        factor = len(rows[0]) if rows else max(request.replication_factor, 0) or "default"
        counts = f"{many(count, 'partition') if count else 'default partitions'}, factor {factor}"
        return "+", "good", ", ".join([counts, *(f"{key}={value}" for key, value in request.configs.items())])
    if request.type == "delete":
        return "-", "bad", "deleted"
    if before is None:
        return "~", "warning", "the topic does not exist any more"
    edits = [f"partitions {before.num_partitions} → {request.num_partitions}"] if request.num_partitions > 0 else []
    if request.replication_factor > 0:
        edits.append(f"factor {before.replication_factor} → {request.replication_factor}")
    elif not (edits or request.configs):
        edits.append("other replicas")
    for key, value in request.configs.items():
        old, new_value = ("default" if one is None else one for one in (before.configs.get(key), value))
        edits.append(f"{key} {old} → {new_value}")
    return "~", "warning", ", ".join(edits)
