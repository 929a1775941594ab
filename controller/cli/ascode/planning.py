"""Plans: the changes that bring topics to what files describe, each with its dry run.

A change is an item of `POST /v1/changes`. The service decides a dry run with the same rules as the change itself, and
places replicas by name and live brokers. So the plan has the very replicas, and a plan that is made again shows whether
anything has changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Any, Final

import msgspec

from controller.cli.ascode.desired import FileSet, check
from controller.cli.ascode.formats import Wanted
from controller.cli.backend import Backend
from controller.cli.output import Style, painted
from controller.cli.reads import common
from projections.views.topics import TopicSummary, TopicsView, TopicView

CHANGES_PER_REQUEST, PARTITIONS_PER_REQUEST = 100, 10_000
"""The limits of `POST /v1/changes`."""
THROTTLED: Final = "THROTTLING_QUOTA_EXCEEDED"
_AGENT: Final = "topicwright apply "
_WIDTH: Final = 120


class Before(msgspec.Struct, frozen=True):
    """A topic before a change."""

    topic_id: str
    num_partitions: int
    replication_factor: int
    configs: dict[str, str]


class Placed(msgspec.Struct, frozen=True):
    """The replicas of a new partition."""

    partition: int
    replicas: tuple[int, ...]


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a change, or to its dry run; code 0 means success."""

    code: int = 0
    error: str = "NONE"
    message: str = ""
    rule: str = ""
    status: str = ""
    partitions: tuple[Placed, ...] = ()

    @property
    def is_refused(self) -> bool:
        """True for an error. A topic that was created, but is not ready yet, is none."""
        return self.code != 0 and self.status != "pending"

    @property
    def reason(self) -> str:
        return f"{self.message} ({self.error}{f', by {self.rule}' if self.rule else ''})"


class Change(msgspec.Struct, frozen=True):
    """A change, the line that wants it, the topic before, and the outcome of the dry run."""

    request: dict[str, Any]
    where: str
    before: Before | None
    outcome: Outcome = Outcome()

    @property
    def name(self) -> str:
        return str(self.request["name"])

    def is_same(self, other: Change) -> bool:
        """True if the dry runs of two equal requests had the same outcome, from the same topic."""
        mine, others = self.outcome, other.outcome
        return (self.before, mine.code, mine.partitions) == (other.before, others.code, others.partitions)


class Plan(msgspec.Struct, frozen=True):
    """Changes in the order in which they are applied, and the name of the set of files."""

    changes: tuple[Change, ...]
    set: str | None = None

    @property
    def refused(self) -> list[Change]:
        return [one for one in self.changes if one.outcome.is_refused]


class _Results(msgspec.Struct, frozen=True):
    results: tuple[Outcome, ...]


def topics_by_name(backend: Backend) -> dict[str, TopicSummary]:
    pages = common.pages(backend, TopicsView, "/topics", limit=common.PAGE)
    return {one.name: one for page in pages for one in page.topics}


def agent_of(set_name: str | None) -> str:
    """The client id under which a set creates topics. The log has it for each topic, so `--prune` finds them."""
    return _AGENT + (set_name or "").strip()


def differences(backend: Backend, files: FileSet, *, prune: bool) -> Iterator[Change]:
    """The changes without dry runs. Raises FileError for those that are impossible, before it yields any."""
    current, errors = topics_by_name(backend), list[str]()
    changes: list[Change] = []
    for wanted in files.topics.values():
        now = current.get(wanted.name)
        before = None if now is None else _before(now)
        problem = None if now is None else _impossible(wanted, now, backend)
        if problem is not None:
            errors.append(str(wanted.node.error(f"topic '{wanted.name}' {problem}")))
            continue
        requests = [_creation(wanted)] if now is None else _alterations(wanted, now)
        changes += [Change(one, str(wanted.node), before) for one in requests]
    check(errors)
    yield from changes
    for now in current.values() if prune else ():
        by = now.created_by
        if now.name not in files.topics and by is not None and by.client_id == agent_of(files.name):
            yield Change({"type": "delete", "name": now.name}, f"no file of set {files.name}", _before(now))


def _before(topic: TopicSummary) -> Before:
    return Before(topic.topic_id, topic.num_partitions, topic.replication_factor, topic.configs)


def _creation(wanted: Wanted) -> dict[str, Any]:
    request: dict[str, Any] = {"type": "create", "name": wanted.name, "configs": wanted.configs}
    if wanted.replicas is not None:
        return {**request, "assignments": wanted.replicas}
    counts = {"num_partitions": wanted.partitions, "replication_factor": wanted.factor}
    return {**request, **{key: count for key, count in counts.items() if count is not None}}


def _alterations(wanted: Wanted, now: TopicSummary) -> Iterator[dict[str, Any]]:
    """At most two: an alteration has either configs or partitions."""
    given = {**dict.fromkeys(now.configs), **wanted.configs}
    configs = {key: value for key, value in given.items() if value != now.configs.get(key)}
    request = {"type": "alter", "name": wanted.name}
    if configs:
        yield {**request, "configs": configs}
    if wanted.partitions is not None and wanted.partitions > now.num_partitions:
        rows = {} if wanted.replicas is None else {"assignments": wanted.replicas[now.num_partitions :]}
        yield {**request, "num_partitions": wanted.partitions, **rows}


def _impossible(wanted: Wanted, now: TopicSummary, backend: Backend) -> str | None:
    """Why Kafka cannot make this change, or why it needs another tool; None if it is possible."""
    if wanted.partitions is not None and wanted.partitions < now.num_partitions:
        return f"has {now.num_partitions} partitions: Kafka cannot reduce them to {wanted.partitions}"
    tool = "kafka-reassign-partitions does this, because it copies records"
    if wanted.factor not in (None, now.replication_factor):
        return f"has the factor {now.replication_factor}, and the file {wanted.factor}: {tool}"
    if wanted.replicas is not None:
        existing = backend.get(TopicView, "/topics", wanted.name).partitions
        for one, row in zip(existing, wanted.replicas, strict=False):
            if one.replicas != row:
                return f"has partition {one.partition} on {list(one.replicas)}, and the file on {list(row)}: {tool}"
    return None


def with_outcomes(backend: Backend, changes: Iterable[Change], *, dry_run: bool = True) -> Iterator[Change]:
    """Submit changes, or their dry runs, in as few requests as possible; yields each with its outcome."""
    for batch in _batches(changes):
        body = {"changes": [one.request for one in batch]}
        dry = "true" if dry_run else None
        results = backend.send("POST", "/changes", _Results, body=body, validate_only=dry).results
        for one, outcome in zip(batch, results, strict=True):
            yield msgspec.structs.replace(one, outcome=outcome)


def _batches(changes: Iterable[Change]) -> Iterator[list[Change]]:
    batch: list[Change] = []
    room = PARTITIONS_PER_REQUEST
    for one in changes:
        size = max(one.request.get("num_partitions", 0), len(one.request.get("assignments", ())))
        if batch and (len(batch) == CHANGES_PER_REQUEST or size > room):
            yield batch
            batch, room = [], PARTITIONS_PER_REQUEST
        batch.append(one)
        room -= size
    if batch:
        yield batch


def repeated(backend: Backend, plan: Plan) -> Iterator[Change]:
    """The changes of a plan as a plan of now would have them."""
    current = topics_by_name(backend)
    now = ((one, current.get(one.name)) for one in plan.changes)
    again = (msgspec.structs.replace(one, before=None if found is None else _before(found)) for one, found in now)
    return with_outcomes(backend, again)


# --- text


def lines(changes: Iterable[Change], style: Style) -> Iterator[str]:
    """Each change with its replicas, and why it would be refused."""
    for one in changes:
        sign, mark, what = _summary(one)
        line = f"{sign} {one.name}: {what}  ({one.where})"
        yield painted(line, mark) if style.colour else line
        placed = [f"{each.partition}: {','.join(map(str, each.replicas))}" for each in one.outcome.partitions]
        yield from wrap("; ".join(placed), style.width or _WIDTH, initial_indent="    ", subsequent_indent="    ")
        if one.outcome.is_refused:
            line = f"    refused: {one.outcome.reason}"
            yield painted(line, "bad") if style.colour else line
        elif one.outcome.message:
            yield f"    {one.outcome.message}"


def _summary(change: Change) -> tuple[str, str, str]:
    """The sign of a change, its mark, and what it does."""
    request, before, new = change.request, change.before, change.outcome.partitions
    configs: Mapping[str, str | None] = request.get("configs", {})
    if request["type"] == "create":
        partitions = len(new) or request.get("num_partitions") or len(request.get("assignments", ())) or "default"
        factor = len(new[0].replicas) if new else request.get("replication_factor", "default")
        counts = f"{partitions} partitions, factor {factor}"
        return "+", "good", ", ".join([counts, *(f"{key}={value}" for key, value in configs.items())])
    if request["type"] == "delete":
        return "-", "bad", "deleted"
    if before is None:
        return "~", "warning", "the topic does not exist any more"
    if not configs:
        return "~", "warning", f"partitions {before.num_partitions} → {request['num_partitions']}"
    unset = "default"
    edits = (f"{key} {before.configs.get(key, unset)} → {unset if to is None else to}" for key, to in configs.items())
    return "~", "warning", ", ".join(edits)


def counted(changes: Iterable[Change]) -> str:
    """How many topics are created, changed and deleted."""
    names: dict[str, set[str]] = {"create": set(), "alter": set(), "delete": set()}
    for one in changes:
        names[one.request["type"]].add(one.name)
    return f"{len(names['create'])} to create, {len(names['alter'])} to change, {len(names['delete'])} to delete"
