"""`topicwright plan`, `apply`, `import` and `drift`.

Exit codes of `plan`, `apply` and `import`: 0 done; 1 a change is refused, or the cluster has changed since the plan; 2
error. Exit codes of `drift`: 0 no difference, 1 differences, 2 error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from controller.cli.arguments import DONE, NEGATIVE, Negative
from controller.cli.ascode.desired import FileSet, check
from controller.cli.ascode.planning import (
    Change,
    Plan,
    agent_of,
    counted,
    differences,
    lines,
    repeated,
    topics_by_name,
    with_outcomes,
)
from controller.cli.backend import Backend
from controller.cli.output import Style, show
from controller.cli.reads import common
from events.errors import UserError
from events.files import replacing
from events.logs.log import read_text
from projections.views.events import EventsView
from projections.views.topics import TopicSummary

PLAN_BYTES_MAX: Final = 256 << 20
EXPLAINED_MAX: Final = 100
"""`drift` looks up the last event of this many changes."""
_LAST_EVENT: Final = {"create": "TopicDeleted", "configs": "TopicConfigsChanged", "partitions": "PartitionsAdded"}


def _plan_of(options: argparse.Namespace, backend: Backend) -> Plan:
    files = FileSet(options.files)
    if options.prune and files.name is None:
        raise UserError("--prune deletes only what the same set of files created: name it with `set: NAME` in a file")
    changes = list(differences(backend, files, prune=options.prune))
    check([f"{one.where}: topic '{one.name}' {one.impossible}" for one in changes if one.impossible])
    return Plan(tuple(changes), files.name)


def plan(options: argparse.Namespace, backend: Backend) -> int:
    made = _plan_of(options, backend)
    if options.save is not None:
        with replacing(options.save) as file:
            file.write(msgspec.json.encode(made))
    show(options, made, lambda style: _plan_lines(made, style), lambda: dict.fromkeys(one.name for one in made.changes))
    return NEGATIVE if made.refused else DONE


def _plan_lines(made: Plan, style: Style) -> Iterator[str]:
    yield from lines(made.changes, style)
    if not made.changes:
        yield "No changes: the cluster is as the files describe it."
        return
    refused = f"; {len(made.refused)} would be refused" if made.refused else ""
    yield f"Plan: {counted(made.changes)}{refused}."


def apply(options: argparse.Namespace, backend: Backend) -> int:
    if (options.plan is None) == (not options.files):
        raise common.Misuse("give either FILE… or --plan FILE")
    if options.plan is not None and options.prune:
        raise common.Misuse("a saved plan has its deletions already, so --prune cannot be used with --plan")
    made = _plan_of(options, backend) if options.plan is None else _saved(options.plan)
    if options.plan is not None:
        _check_unchanged(made, tuple(repeated(backend, made)), options.plan)
    if made.refused:
        shown = "\n".join(lines(made.refused, Style()))
        raise Negative(f"nothing is applied, because {len(made.refused)} changes would be refused:\n{shown}")
    backend.agent = agent_of(made.set)
    done = tuple(with_outcomes(backend, made.changes, dry_run=False))
    show(
        options,
        Plan(done, made.set),
        lambda style: _applied_lines(made, done, style),
        lambda: (one.name for one in done),
    )
    return NEGATIVE if any(one.is_refused for one in done) else DONE


def _saved(path: Path) -> Plan:
    try:
        return msgspec.json.decode(read_text(path, PLAN_BYTES_MAX), type=Plan)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a plan that `topicwright plan --save` wrote: {error}") from None


def _check_unchanged(made: Plan, again: tuple[Change, ...], path: Path) -> None:
    """Raise Negative if a plan of now differs from the saved one."""
    pairs = [(one, now) for one, now in zip(made.changes, again, strict=True) if not one.is_same(now)]
    if pairs:
        shown = [
            line for one, now in pairs for line in ("planned:", *lines([one], Style()), "now:", *lines([now], Style()))
        ]
        why = f"{len(pairs)} changes of {path} have another result now, so nothing is applied: make a new plan"
        raise Negative("\n".join([why, *shown]))


def _applied_lines(made: Plan, done: tuple[Change, ...], style: Style) -> Iterator[str]:
    yield from lines(done, style)
    moved = [
        now.name
        for one, now in zip(made.changes, done, strict=True)
        if now.request["type"] == "create" and one.replicas != now.replicas
    ]
    for name in moved:
        yield f"{name} is on other brokers than planned: brokers came or went meanwhile"
    failed = sum(one.is_refused for one in done)
    yield (
        f"Applied {len(done) - failed} of {len(done)} changes."
        if done
        else "No changes: the cluster is as the files describe it."
    )


def write_files(options: argparse.Namespace, backend: Backend) -> int:
    """Print the topics as a file."""
    found = sorted(topics_by_name(backend).values(), key=lambda one: one.name)
    topics = {one.name: _described(one) for one in found if fnmatchcase(one.name, options.pattern)}
    yaml.dump({"topics": topics}, sys.stdout, yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
    return DONE


def _described(topic: TopicSummary) -> dict[str, Any]:
    shape: dict[str, Any] = {"partitions": topic.num_partitions, "factor": topic.replication_factor}
    numbers = {
        key: int(value) if value.isascii() and value.isdigit() and str(int(value)) == value else value
        for key, value in topic.configs.items()
    }
    return {**shape, "configs": numbers} if numbers else shape


def drift(options: argparse.Namespace, backend: Backend) -> int:
    files = FileSet(options.files)
    found = list(differences(backend, files, prune=files.name is not None))
    causes = [_cause(backend, one) for one in islice(found, EXPLAINED_MAX)]

    def text(style: Style) -> Iterator[str]:
        for one, cause in zip(found, [*causes, *[None] * (len(found) - len(causes))], strict=True):
            yield from lines([one], style)
            if cause is not None:
                yield f"    since {cause}"
        yield f"Drift: {counted(found)}." if found else "No drift: the cluster is as the files describe it."

    answer = {"changes": found, "causes": causes}
    show(options, answer, text, lambda: dict.fromkeys(one.name for one in found))
    return NEGATIVE if found else DONE


def _cause(backend: Backend, change: Change) -> str | None:
    """The last event that made a topic differ; None if there is none."""
    request = change.request
    kind = "create" if request["type"] == "create" else "configs" if "configs" in request else "partitions"
    if request["type"] == "delete":
        return None
    answer = backend.get(EventsView, f"/topics/{change.name}/events", type=_LAST_EVENT[kind], order="newest", limit=1)
    return next((f"{one.at}: {one.text}" for one in answer.events), None)
