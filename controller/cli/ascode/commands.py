"""`topicwright plan`, `apply`, `import` and `drift`.

Exit codes of `plan`, `apply` and `import`: 0 done; 1 a change is refused, or the cluster has changed since the plan; 2
error. Exit codes of `drift`: 0 no difference, 1 differences, 2 error.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec.structs import replace

from controller.cli.arguments import DONE, NEGATIVE, Negative
from controller.cli.ascode.desired import FileSet, check
from controller.cli.ascode.planning import (
    Change,
    Plan,
    agent_of,
    differences,
    lines,
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
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,18}")
_TO_DO: Final = {"create": "to create", "alter": "to change", "delete": "to delete"}
_DONE: Final = {"create": "created", "alter": "changed", "delete": "deleted"}
_LAST_EVENT: Final = {"create": "TopicDeleted", "configs": "TopicConfigsChanged", "partitions": "PartitionsAdded"}


def plan(options: argparse.Namespace, backend: Backend) -> int:
    made = _plan_of(options, backend)
    if options.save is not None:
        with replacing(options.save) as file:
            file.write(msgspec.json.encode(made))
    _show(options, made)
    return NEGATIVE if made.refused else DONE


def _plan_of(options: argparse.Namespace, backend: Backend) -> Plan:
    files = FileSet(options.files)
    if options.prune and files.name is None:
        raise UserError("--prune deletes only what the same set of files created: name it with `set: NAME` in a file")
    changes = list(differences(backend, files, prune=options.prune))
    check([f"{one.where}: topic '{one.name}' {one.impossible}" for one in changes if one.impossible])
    return Plan(tuple(changes), files.name)


def _show(options: argparse.Namespace, made: Plan, what: str = "Plan") -> None:
    def text(style: Style) -> Iterator[str]:
        yield from lines(made.changes, style)
        refused = f"; {len(made.refused)} refused" if made.refused else ""
        topics = {(one.request.type, one.name) for one in made.changes if not one.is_refused}
        verbs = _DONE if what == "Applied" else _TO_DO
        counts = ", ".join(f"{sum(kind == each for each, _ in topics)} {verb}" for kind, verb in verbs.items())
        nothing = "No changes: the cluster is as the files describe it."
        yield f"{what}: {counts}{refused}." if made.changes else nothing

    show(options, made, text, lambda: dict.fromkeys(one.name for one in made.changes))


def drift(options: argparse.Namespace, backend: Backend) -> int:
    files = FileSet(options.files)
    found = list(differences(backend, files, prune=files.name is not None))
    explained = [replace(one, since=_cause(backend, one)) for one in found[:EXPLAINED_MAX]]
    _show(options, Plan((*explained, *found[EXPLAINED_MAX:]), files.name), "Drift")
    return NEGATIVE if found else DONE


def _cause(backend: Backend, change: Change) -> str:
    """The last event that made a topic differ from the files; empty if there is none."""
    if change.request.type == "delete":
        return ""
    kind = "create" if change.before is None else "configs" if change.request.configs else "partitions"
    answer = backend.get(EventsView, f"/topics/{change.name}/events", type=_LAST_EVENT[kind], order="newest", limit=1)
    return "".join(f"{one.at}: {one.text}" for one in answer.events)


def apply(options: argparse.Namespace, backend: Backend) -> int:
    if (options.plan is None) == (not options.files):
        raise common.Misuse("give either FILE… or --plan FILE")
    if options.plan is not None and options.prune:
        raise common.Misuse("a saved plan has its deletions already, so --prune cannot be used with --plan")
    made = _plan_of(options, backend) if options.plan is None else _saved(options.plan, backend)
    if made.refused:
        shown = "\n".join(lines(made.refused, Style()))
        raise Negative(f"nothing is applied, because {len(made.refused)} changes would be refused:\n{shown}")
    backend.agent = agent_of(made.set)
    done = Plan(tuple(with_outcomes(backend, made.changes, dry_run=False)), made.set)
    _show(options, done, "Applied")
    return NEGATIVE if done.refused else DONE


def _saved(path: Path, backend: Backend) -> Plan:
    """A saved plan. Raises Negative if a plan of now would differ from it."""
    try:
        made = msgspec.json.decode(read_text(path, PLAN_BYTES_MAX), type=Plan)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a plan that `topicwright plan --save` wrote: {error}") from None
    current = topics_by_name(backend)
    repeated = with_outcomes(backend, (replace(one, before=current.get(one.name)) for one in made.changes))
    pairs = [pair for pair in zip(made.changes, repeated, strict=True) if not pair[0].is_same(pair[1])]
    if pairs:
        shown = [line for one in pairs for line in ("planned, and now:", *lines(one, Style()))]
        why = f"{len(pairs)} changes of {path} have another result now, so nothing is applied: make a new plan"
        raise Negative("\n".join([why, *shown]))
    return made


def write_files(options: argparse.Namespace, backend: Backend) -> int:
    """Print the topics as a file."""
    found = sorted(topics_by_name(backend).values(), key=lambda one: one.name)
    topics = {one.name: _described(one) for one in found if fnmatchcase(one.name, options.pattern)}
    yaml.dump({"topics": topics}, sys.stdout, yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
    return DONE


def _described(topic: TopicSummary) -> dict[str, Any]:
    shape = {"partitions": topic.num_partitions, "factor": topic.replication_factor}
    configs = {key: int(value) if _NUMBER.fullmatch(value) else value for key, value in topic.configs.items()}
    return {**shape, "configs": configs} if configs else shape
