"""Formats views as text, the same for the command line and for the HTML pages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from textwrap import wrap

from controller.machine.configs.topic_configs import without_labels
from projections.text.wording import api_text, client_text
from projections.views.events import STEPS_BEFORE_GAP, ExplanationView, StepView
from projections.views.requests import RequestSummary, RequestView
from projections.views.rows import CreatedBy
from projections.views.topics import TopicSummary, TopicView
from projections.views.view import AsOfView


def when(as_of: AsOfView) -> str:
    """The point in time of a response."""
    if as_of.at is None:
        return " before the first event"
    if as_of.ends:
        return f" as of {as_of.offset + 1} events in {len(as_of.ends)} partitions, {as_of.at}"
    return f" as of offset {place(as_of.partition, as_of.offset)}, {as_of.at}"


def status(one: TopicSummary) -> str:
    """The status of a topic, with the number of partitions that cause it."""
    counts = []
    if one.status == "offline":
        counts.append(f"{one.offline_partitions} of {one.num_partitions}")
    elif one.status == "under-replicated":
        counts.append(f"{one.under_replicated_partitions} of {one.num_partitions}")
    if one.placeholders:
        counts.append(f"{one.placeholders} placeholders")
    return f"{one.status} ({', '.join(counts)})" if counts else one.status


def outcomes(one: RequestSummary) -> str:
    """The number of topics by outcome."""
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in one.outcomes.items())


TOPICS_MAX = 3


def topic_facts(one: TopicView) -> Iterator[tuple[str, str]]:
    """The properties of a topic, with their names."""
    yield "topic id", one.topic_id
    yield "partitions", f"{one.num_partitions}, factor {one.replication_factor}"
    by = one.created_by
    if by is not None:
        who = client_text(by.principal, by.client_id)
        yield "created", f"{one.created_at} by {who} over {api(by)}, in request {by.request_id}"
    else:
        yield "created", one.created_at
    if one.ready_at_ms is not None:
        yield "complete", f"{one.ready_at}, {span(one.ready_at_ms - one.created_at_ms)} later"
    if one.policy is not None:
        observed = "".join(f"; observed {seen.rule}: {seen.message}" for seen in one.policy.observed)
        yield "policy", one.policy.outcome + observed
    yield from one.labels.items()
    for number, (name, value) in enumerate(sorted(without_labels(one.configs.items()))):
        yield "" if number else "configs", f"{name}={value}"


def topics_of(one: RequestSummary, *, whole: bool) -> str:
    """The topics of a request; without `whole` only the first."""
    names = one.topics if whole else one.topics[:TOPICS_MAX]
    more = one.num_topics - len(names)
    return (",".join(names) + (f" and {more} more" if more else "")) or "-"


MARKS = {"ready": "good", "created": "good", "offline": "bad", "deleted": "bad"}
GOOD_OUTCOMES = frozenset(("created", "done", "deleted", "partitions-added", "configs-changed"))
BAD_OUTCOMES = frozenset(("rejected", "failed"))


def mark(status: str) -> str:
    """The mark of a topic's status or change: good, bad or warning."""
    return MARKS.get(status, "warning")


def outcome_mark(outcomes: Iterable[str]) -> str:
    """The mark of the worst outcome of a request."""
    each = set(outcomes)
    return "bad" if each & BAD_OUTCOMES else "good" if each <= GOOD_OUTCOMES else "warning"


def api(one: CreatedBy | RequestView) -> str:
    """The API of a request, with its version."""
    return api_text(one.api, one.api_version)


_CAUSES = {
    "ReconcileTopics": "brokers changed",
    "ConfirmMetadata": "brokers applied metadata",
    "AlterPartition": "in-sync replicas changed",
    "AssignDirectories": "log directories assigned",
    "RegisterBroker": "broker registered",
    "UnregisterBroker": "broker unregistered",
    "FenceBroker": "broker stopped",
    "UnfenceBroker": "broker caught up",
    "BeginShutdown": "broker shut down",
    "ChangeLogDirs": "log directories changed",
    "ExpireRequest": "deadline passed",
    "BalanceLeaders": "leaders balanced",
    "ChangeSettings": "settings changed",
    "BeginQuorumEpoch": "quorum leader elected",
    "DiscoverTopic": "found in the cluster",
    "DiscoverDeletion": "missing in the cluster",
    "RefuseCreation": "refused by the cluster",
    "FinishChange": "applied by the cluster",
    "FollowController": "decided by another controller",
}


def cause(command: str) -> str:
    """The occurrence behind an internal command; the name of a client's command."""
    return _CAUSES.get(command, command)


def place(partition: int | None, offset: int) -> str:
    """The offset of an event; PARTITION:OFFSET in a partitioned log."""
    return str(offset) if partition is None else f"{partition}:{offset}"


def explanation(chain: ExplanationView, terminal: int | None = None, age: Callable[[str], str] = str) -> Iterator[str]:
    """An explanation as a table, wrapped at the width of a terminal if one is given. `age` is the text of a time."""
    yield from wrapped("", chain.summary, terminal)
    yield ""
    width = max(len("OFFSET"), *(len(place(step.partition, step.offset)) for step in chain.steps))
    ages = max(len("TIME"), *(len(age(step.at)) for step in chain.steps))
    indent = " " * (width + 2 + ages + 2 + 8 + 2)
    yield f"{'OFFSET':>{width}}  {'TIME':<{ages}}  {'AFTER':>8}  WHAT"
    for number, fold in folds(chain):
        if chain.omitted and number == STEPS_BEFORE_GAP:
            yield f"{indent}… {chain.omitted} steps are left out; `topicwright events` shows all …"
        step = fold[0]
        start = f"{place(step.partition, step.offset):>{width}}  {age(step.at):<{ages}}  {span(step.after_ms):>8}  "
        yield from wrapped(start, step.text, terminal)
        for other in fold[1:FOLD_SHOWN_MAX]:
            yield from wrapped(indent, other.text, terminal)
        if len(fold) > FOLD_SHOWN_MAX:
            last = place(fold[-1].partition, fold[-1].offset)
            yield f"{indent}… and {len(fold) - FOLD_SHOWN_MAX} more, up to offset {last}"
        if step.because:
            yield from wrapped(indent, f"because {step.because}", terminal)


FOLD_SHOWN_MAX = 3


def folds(chain: ExplanationView) -> Iterator[tuple[int, Sequence[StepView]]]:
    """Consecutive steps of one type with the same cause, with the number of steps before them. None spans the gap."""

    def key(one: tuple[int, StepView]) -> tuple[object, ...]:
        return one[1].event, one[1].because or one[1].cause, bool(chain.omitted) and one[0] < STEPS_BEFORE_GAP

    for _, some in groupby(enumerate(chain.steps), key):
        fold = tuple(some)
        yield fold[0][0], tuple(step for _, step in fold)


_SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def value(name: str, given: str | None) -> str | None:
    """The value of a config, with its size in a readable unit."""
    unit, number = "", int(given) if given is not None and given.isdecimal() and len(given) < 19 else 0
    if given == "-1" and name.startswith("retention."):
        unit = "unlimited"
    elif number >= 1000 and name.endswith(".ms"):
        unit = span(number)
    elif name.endswith(".bytes"):
        unit = next((f"{number / size:.3g} {each}" for each, size in _SIZES if number >= size), "")
    return f"{given} ({unit})" if unit else given


TEXT_MIN = 30
"""The least width of wrapped text."""


def wrapped(start: str, text: str, terminal: int | None) -> Iterator[str]:
    """Text after `start`, wrapped at the width of a terminal if one is given."""
    if terminal is None:
        yield start + text
        return
    for number, part in enumerate(wrap(text, max(TEXT_MIN, terminal - len(start)), break_on_hyphens=False) or [""]):
        yield (" " * len(start) if number else start) + part


def span(milliseconds: int) -> str:
    """A duration in a readable unit."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= size:
            return f"{round(milliseconds / size, 1):g} {unit}"
    return f"{milliseconds} ms"
