"""The text and tables for people that the commands in `reads` print, from the views of the JSON API."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from controller.cli.output import Marked, Style, painted
from projections.text.wording import client_text, many
from projections.views import lines
from projections.views.brokers import BrokersView, BrokerView
from projections.views.overviews import ClusterHealthView, IssueView, TopicsWhatIfView, WhatIfView
from projections.views.requests import RequestSummary, RequestView
from projections.views.topics import CreatedView, PartitionView, TopicSummary, TopicView
from projections.views.view import AsOfView


def topics(summaries: Sequence[TopicSummary], as_of: AsOfView, style: Style, which: str = "") -> Iterator[str]:
    """A list of topics; `which` completes the sentence that is printed if there are none."""
    if not summaries:
        yield f"There are no topics{which}{lines.when(as_of)}."
        return
    header = ("TOPIC", "PARTITIONS", "FACTOR", "STATUS", "CREATED", "BY")
    if style.wide:
        yield from style.table((*header, "TOPIC ID", "READY", "REQUEST", "CONFIGS"), map(_wide_topic, summaries))
        return
    yield from style.table(header, map(_topic_row, summaries))


def _topic_row(one: TopicSummary) -> tuple[object, ...]:
    return (
        one.name,
        one.num_partitions,
        one.replication_factor,
        Marked(lines.status(one), lines.mark(one.status)),
        one.created_at,
        one.created_by.principal if one.created_by else "?",
    )


def _wide_topic(one: TopicSummary) -> tuple[object, ...]:
    configs = ",".join(f"{name}={value}" for name, value in sorted(one.configs.items())) or "-"
    request = one.created_by.request_id if one.created_by else "?"
    return (*_topic_row(one), one.topic_id, one.ready_at or "-", request, configs)


def topic(one: TopicView, style: Style) -> Iterator[str]:
    """One topic with its partitions."""
    yield f"{one.name}: {lines.status(one)},{lines.when(one.as_of)}"
    for name, value in _topic_facts(one):
        yield f"  {name:<11} {value}"
    yield ""
    yield from partitions(one.partitions, style)


def _topic_facts(one: TopicView) -> Iterator[tuple[str, str]]:
    yield "topic id", one.topic_id
    yield "partitions", f"{one.num_partitions}, factor {one.replication_factor}"
    by = one.created_by
    if by is not None:
        who = client_text(by.principal, by.client_id)
        yield "created", f"{one.created_at} by {who} over {lines.api(by)}, in request {by.request_id}"
    else:
        yield "created", one.created_at
    if one.ready_at_ms is not None:
        yield "complete", f"{one.ready_at}, {lines.span(one.ready_at_ms - one.created_at_ms)} later"
    if one.policy is not None:
        observed = "".join(f"; observed {seen.rule}: {seen.message}" for seen in one.policy.observed)
        yield "policy", one.policy.outcome + observed
    for number, (name, value) in enumerate(sorted(one.configs.items())):
        yield "" if number else "configs", f"{name}={value}"


def created(one: CreatedView, style: Style) -> Iterator[str]:
    """The topic of a create or a dry run."""
    what = "would be created" if one.validate_only else "is created"
    yield f"{one.name} {what}: {many(one.num_partitions, 'partition')}, factor {one.replication_factor}"
    if one.message:
        yield f"  ({one.message})"
    for name, value in sorted(one.configs.items()):
        yield f"  {name}={value}"
    yield ""
    yield from partitions(one.partitions, style)


def partitions(all_partitions: Sequence[PartitionView], style: Style) -> Iterator[str]:
    rows = (
        (one.partition, "none" if one.leader < 0 else one.leader, ids(one.replicas), ids(one.isr), ids(one.offline))
        for one in all_partitions
    )
    yield from style.table(("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "OFFLINE"), rows)


def health(answer: ClusterHealthView, style: Style) -> Iterator[str]:
    """The state of the cluster, and its problems."""
    mark = {"healthy": "good", "critical": "bad"}.get(answer.state, "warning")
    state = painted(answer.state, mark) if style.colour else answer.state
    yield (
        f"{state},{lines.when(answer.as_of)}: {len(answer.live)} of {many(answer.brokers_registered, 'broker')} live"
        + (
            f", {many(answer.topics, 'topic')}, {many(answer.partitions or 0, 'partition')}"
            if answer.topics is not None
            else ""
        )
    )
    yield from lines.wrapped("", answer.summary, style.width) if not answer.issues else issues(answer.issues, style)


def issues(found: Sequence[IssueView], style: Style) -> Iterator[str]:
    """Problems with their causes, each as a paragraph."""
    for one in found:
        yield ""
        kind = painted(one.kind, "bad" if one.severity == "critical" else "warning") if style.colour else one.kind
        since = f" since {one.began_at}" if one.began_at else ""
        yield from lines.wrapped("", f"{kind}{since}: {one.text}", style.width)
        topics = ", ".join(one.examples) + (", …" if one.topics > len(one.examples) else "")
        facts = {"cause": one.cause, "to do": one.resolution, "topics": topics if one.examples else ""}
        for name, value in facts.items():
            if value:
                yield from lines.wrapped(f"  {name:<7} ", value, style.width)
        if one.examples:
            yield f"  why     topicwright explain {shlex.quote(one.examples[0])}"


def whatif(answer: WhatIfView, style: Style) -> Iterator[str]:
    """The health after a change."""
    yield from lines.wrapped("", answer.summary, style.width)
    for text in answer.changes:
        yield from lines.wrapped("  if  ", text, style.width)
    yield f"  now{lines.when(answer.as_of)}"
    if answer.topics:
        yield ""
        rows = ((one.before or "healthy", one.after or "healthy", one.topics, _examples(one)) for one in answer.topics)
        yield from style.table(("NOW", "THEN", "TOPICS", "WHICH"), rows)
    for create in answer.creates:
        yield ""
        refusal = f"{create.error}: {create.message}"
        yield from lines.wrapped(f"factor {create.replication_factor}  ", refusal, style.width)
    if answer.issues:
        yield ""
        yield "The problems would then be:"
        yield from issues(answer.issues, style)


def _examples(one: TopicsWhatIfView) -> str:
    return ", ".join(one.examples) + (
        f" and {one.topics - len(one.examples)} more" if one.topics > len(one.examples) else ""
    )


def brokers(answer: BrokersView, style: Style) -> Iterator[str]:
    if not answer.brokers:
        yield f"There are no brokers{lines.when(answer.as_of)}."
        return
    more = ("EPOCH", "REGISTERED", "INCARNATION") if style.wide else ()
    header = ("BROKER", "STATE", "SINCE", "WHY", "RACK", "LISTENERS", *more)
    yield from style.table(header, (_broker_row(one, style.wide) for one in answer.brokers))


def _broker_row(one: BrokerView, wide: bool) -> tuple[object, ...]:
    cordoned = ", cordoned" if one.cordoned else ""
    state = Marked(f"fenced{cordoned}", "bad") if one.fenced else Marked(f"live{cordoned}", "good")
    listeners = ",".join(f"{each.name}://{each.host}:{each.port}" for each in one.endpoints) or "-"
    row = (one.broker_id, state, one.changed_at, one.reason, one.rack or "-", listeners)
    return (*row, one.broker_epoch, one.registered_at, one.incarnation) if wide else row


def settings(answer: BrokersView, matching: dict[str, str], style: Style) -> Iterator[str]:
    yield f"Decided by release {answer.release or '-'},{lines.when(answer.as_of)}"
    yield ""
    yield from style.table(("SETTING", "VALUE"), sorted(matching.items()))


def ids(numbers: Sequence[int]) -> str:
    """Broker ids, `-` for none."""
    return ",".join(map(str, numbers)) or "-"


TOPICS_MAX = 3


def requests(found: Sequence[RequestSummary], as_of: AsOfView, style: Style, more: bool) -> Iterator[str]:
    """A list of requests; `more` means that older ones exist."""
    if not found:
        yield f"No request matches{lines.when(as_of)}."
        return
    rows = (
        (
            "-" if one.counted else one.request_id,
            one.requested_at,
            client_text(one.principal, one.client_id),
            one.api,
            _topics(one, style.wide),
            Marked(lines.outcomes(one), lines.outcome_mark(one.outcomes)),
            ",".join(one.rules) or "-",
            *((one.host or "-", one.requested_offset) if style.wide else ()),
        )
        for one in found
    )
    more_columns = ("HOST", "OFFSET") if style.wide else ()
    yield from style.table(("REQUEST", "TIME", "BY", "API", "TOPICS", "OUTCOME", "REFUSED BY", *more_columns), rows)
    if more and style.width is not None:
        yield f"… older requests exist: use --limit {2 * len(found)} or --until {found[-1].requested_at}"


def _topics(one: RequestSummary, whole: bool) -> str:
    names = one.topics if whole else one.topics[:TOPICS_MAX]
    more = one.num_topics - len(names)
    return (",".join(names) + (f" and {more} more" if more else "")) or "-"


def request(one: RequestView, style: Style) -> Iterator[str]:
    """One request with the outcome of each topic."""
    who = client_text(one.principal, one.client_id)
    yield f"request {one.request_id}: {lines.api(one)} by {who} at {one.requested_at}, offset {one.requested_offset}"
    if one.timeout_ms is not None:
        yield f"  timeout {lines.span(one.timeout_ms)}, at {one.deadline_at}"
    yield ""
    rows = (
        (
            each.topic,
            Marked(each.status, lines.outcome_mark((each.status,))),
            "-" if each.error is None else each.error,
            each.rule or "-",
            "-" if each.waited_ms is None else lines.span(each.waited_ms),
            each.change,
            each.message or "-",
        )
        for each in one.topics
    )
    yield from style.table(("TOPIC", "OUTCOME", "ERROR", "RULE", "WAITED", "CHANGE", "MESSAGE"), rows)
    yield ""
    yield f"`topicwright explain {one.request_id}` shows its events."
