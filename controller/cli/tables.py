"""What the query commands print for people: lines and aligned columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from projections.shown import json_types, lines
from projections.words.wording import many


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Rows under a header, in columns as wide as they need; numbers stand at the right."""
    texts = [tuple(str(cell) for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    right = [all(text[n].lstrip("-").isdigit() for text in texts) and bool(texts) for n in range(len(header))]
    for line in (tuple(header), *texts):
        cells = [
            cell.rjust(width) if to_the_right else cell.ljust(width)
            for cell, width, to_the_right in zip(line, widths, right, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def topics(summaries: Sequence[json_types.TopicSummary], as_of: json_types.AsOfShape) -> Iterator[str]:
    """A list of topics."""
    if not summaries:
        yield f"There are no topics{_when(as_of)}."
        return
    rows = (
        (
            one.name,
            one.num_partitions,
            one.replication_factor,
            _status(one),
            one.created_at,
            one.created_by.principal if one.created_by else "?",
        )
        for one in summaries
    )
    yield from table(("TOPIC", "PARTITIONS", "FACTOR", "STATUS", "CREATED", "BY"), rows)


def topic(one: json_types.TopicShape) -> Iterator[str]:
    """One topic with its partitions."""
    yield f"{one.name}: {_status(one)},{_when(one.as_of)}"
    yield from _facts(_topic_facts(one))
    yield ""
    yield from partitions(one.partitions)


def _topic_facts(one: json_types.TopicShape) -> Iterator[tuple[str, str]]:
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


def dry_run(one: json_types.CreatedShape) -> Iterator[str]:
    """What a create would get."""
    yield f"{one.name} would be created: {many(one.num_partitions, 'partition')}, factor {one.replication_factor}"
    if one.message:
        yield f"  ({one.message})"
    for name, value in sorted(one.configs.items()):
        yield f"  {name}={value}"
    yield ""
    yield from partitions(one.partitions)


def partitions(all_of_them: Sequence[json_types.PartitionShape]) -> Iterator[str]:
    """Partitions, one a line."""
    rows = (
        (one.partition, "none" if one.leader < 0 else one.leader, ids(one.replicas), ids(one.isr), ids(one.offline))
        for one in all_of_them
    )
    yield from table(("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "OFFLINE"), rows)


def event(one: json_types.EventShape) -> str:
    """An event as a line: offset, time, type, words."""
    return f"{lines.place(one.partition, one.offset):>8}  {one.at}  {one.type:<19}  {one.text}"


def ids(numbers: Sequence[int]) -> str:
    """Broker ids, `-` for none."""
    return ",".join(map(str, numbers)) or "-"


def _facts(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, value in pairs:
        yield f"  {name:<11} {value}"


def _status(one: json_types.TopicSummary) -> str:
    counts = []
    if one.status == "offline":
        counts.append(f"{one.offline_partitions} of {one.num_partitions}")
    elif one.status == "under-replicated":
        counts.append(f"{one.under_replicated_partitions} of {one.num_partitions}")
    if one.placeholders:
        counts.append(f"{one.placeholders} placeholders")
    return f"{one.status} ({', '.join(counts)})" if counts else one.status


def _when(as_of: json_types.AsOfShape) -> str:
    if as_of.at is None:
        return " before the first event"
    if as_of.ends:
        return f" as of {as_of.offset + 1} events in {len(as_of.ends)} partitions, {as_of.at}"
    return f" as of offset {lines.place(as_of.partition, as_of.offset)}, {as_of.at}"
