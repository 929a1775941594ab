"""What the commands that read print for people: lines and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from controller.cli.terminal.printing import Look
from controller.cli.terminal.tables import Marked
from projections.text.wording import many
from projections.views import json_types, lines

PLAIN = Look()


def topics(
    summaries: Sequence[json_types.TopicSummary], as_of: json_types.AsOfView, look: Look = PLAIN, such: str = ""
) -> Iterator[str]:
    """A list of topics; `such` says which, where there are none."""
    if not summaries:
        yield f"There are no topics{such}{lines.when(as_of)}."
        return
    header = ("TOPIC", "PARTITIONS", "FACTOR", "STATUS", "CREATED", "BY")
    if look.wide:
        yield from look.table((*header, "TOPIC ID", "READY", "REQUEST", "CONFIGS"), map(_wide_topic, summaries))
        return
    yield from look.table(header, map(_topic_row, summaries))


def _topic_row(one: json_types.TopicSummary) -> tuple[object, ...]:
    return (
        one.name,
        one.num_partitions,
        one.replication_factor,
        Marked(lines.status(one), _MARKS.get(one.status, "warning")),
        one.created_at,
        one.created_by.principal if one.created_by else "?",
    )


_MARKS = {"ready": "good", "offline": "bad"}


def _wide_topic(one: json_types.TopicSummary) -> tuple[object, ...]:
    configs = ",".join(f"{name}={value}" for name, value in sorted(one.configs.items())) or "-"
    request = one.created_by.request_id if one.created_by else "?"
    return (*_topic_row(one), one.topic_id, one.ready_at or "-", request, configs)


def topic(one: json_types.TopicView, look: Look = PLAIN) -> Iterator[str]:
    """One topic with its partitions."""
    yield f"{one.name}: {lines.status(one)},{lines.when(one.as_of)}"
    yield from _facts(_topic_facts(one))
    yield ""
    yield from partitions(one.partitions, look)


def _topic_facts(one: json_types.TopicView) -> Iterator[tuple[str, str]]:
    yield "topic id", one.topic_id
    yield "partitions", f"{one.num_partitions}, factor {one.replication_factor}"
    by = one.created_by
    if by is not None:
        client = f" ({by.client_id})" if by.client_id else ""
        how = by.api if by.api == "HTTP" else f"{by.api} v{by.api_version}"
        yield "created", f"{one.created_at} by {by.principal}{client} over {how}, in request {by.request_id}"
    else:
        yield "created", one.created_at
    if one.ready_at_ms is not None:
        yield "complete", f"{one.ready_at}, {lines.span(one.ready_at_ms - one.created_at_ms)} later"
    if one.policy is not None:
        noted = "".join(f"; noted {seen.rule}: {seen.message}" for seen in one.policy.observed)
        yield "policy", one.policy.outcome + noted
    for number, (name, value) in enumerate(sorted(one.configs.items())):
        yield "" if number else "configs", f"{name}={value}"


def created(one: json_types.CreatedView, look: Look = PLAIN) -> Iterator[str]:
    """What a create has got, or would get."""
    what = "would be created" if one.validate_only else "is created"
    yield f"{one.name} {what}: {many(one.num_partitions, 'partition')}, factor {one.replication_factor}"
    if one.message:
        yield f"  ({one.message})"
    for name, value in sorted(one.configs.items()):
        yield f"  {name}={value}"
    yield ""
    yield from partitions(one.partitions, look)


def partitions(all_of_them: Sequence[json_types.PartitionView], look: Look = PLAIN) -> Iterator[str]:
    """Partitions, one a line."""
    rows = (
        (one.partition, "none" if one.leader < 0 else one.leader, ids(one.replicas), ids(one.isr), ids(one.offline))
        for one in all_of_them
    )
    yield from look.table(("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "OFFLINE"), rows)


def brokers(answer: json_types.BrokersView, look: Look = PLAIN) -> Iterator[str]:
    """The brokers, live and fenced."""
    if not answer.brokers:
        yield f"There are no brokers{lines.when(answer.as_of)}."
        return
    more = ("EPOCH", "REGISTERED", "INCARNATION") if look.wide else ()
    header = ("BROKER", "STATE", "SINCE", "WHY", "RACK", "LISTENERS", *more)
    yield from look.table(header, (_broker_row(one, look.wide) for one in answer.brokers))


def _broker_row(one: json_types.BrokerView, wide: bool) -> tuple[object, ...]:
    cordoned = ", cordoned" if one.cordoned else ""
    state = Marked(f"fenced{cordoned}", "bad") if one.fenced else Marked(f"live{cordoned}", "good")
    listeners = ",".join(f"{each.name}://{each.host}:{each.port}" for each in one.endpoints) or "-"
    row = (one.broker_id, state, one.changed_at, one.reason, one.rack or "-", listeners)
    return (*row, one.broker_epoch, one.registered_at, one.incarnation) if wide else row


def settings(answer: json_types.BrokersView, chosen: dict[str, str], look: Look = PLAIN) -> Iterator[str]:
    """The settings that decide."""
    yield f"Decided by release {answer.release or '-'},{lines.when(answer.as_of)}"
    yield ""
    yield from look.table(("SETTING", "VALUE"), sorted(chosen.items()))


def ids(numbers: Sequence[int]) -> str:
    """Broker ids, `-` for none."""
    return ",".join(map(str, numbers)) or "-"


def _facts(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, value in pairs:
        yield f"  {name:<11} {value}"
