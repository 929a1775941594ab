"""The cases of the differential table, and functions that write them briefly.

A case is one request, sent in each of its versions. It names the topics that must exist before, and the topics that are
described after it. In every text `{t}` stands for a name unique to case and version, so that cases share one cluster
without conflicts. `{249}` and `{250}` are such names with that many characters, `{id}` is the topic id of the existing
`{t}`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

Body = dict[str, Any]

VERSIONS: Mapping[str, range] = {
    "CreateTopics": range(2, 8),
    "DeleteTopics": range(1, 7),
    "CreatePartitions": range(4),
    "DescribeConfigs": range(1, 5),
    "AlterConfigs": range(3),
    "IncrementalAlterConfigs": range(2),
    "Metadata": range(14),
    "DescribeCluster": range(3),
    "DescribeTopicPartitions": range(1),
    "ListPartitionReassignments": range(1),
}
"""The versions of each API in the table that Kafka 4.4 supports."""

TOPIC, BROKER, BROKER_LOGGER, UNKNOWN_RESOURCE = 2, 4, 8, 0
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
NO_ID = "00000000-0000-0000-0000-000000000000"
STRANGE_ID = "00000000-0000-0000-0000-0000000000aa"


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `before` has topics to create; `watch` has the topics described after the request."""

    api: str
    name: str
    body: Body
    versions: tuple[int, ...]
    before: tuple[Body, ...] = ()
    watch: tuple[str, ...] = ("{t}",)
    replicas: bool = False
    """True if rows have replica ids (for manual assignments) instead of counts."""
    node: int = 1
    """The broker that gets the request; node 3 has auto.create.topics.enable=false."""

    @property
    def id(self) -> str:
        return f"{self.api}: {self.name}"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a response: the subject (a topic, a resource, or the whole), the error's name, its message, further
    facts."""

    subject: str
    code: str
    message: str | None = None
    facts: tuple[str, ...] = field(default=())


def case(
    api: str,
    name: str,
    body: Body,
    *,
    versions: Iterable[int] | None = None,
    before: Iterable[Body] = (),
    watch: Iterable[str] = ("{t}",),
    replicas: bool = False,
    node: int = 1,
) -> Case:
    """A case with defaults: all versions of Kafka 4.4."""
    chosen = tuple(VERSIONS[api] if versions is None else versions)
    return Case(api, name, body, chosen, tuple(before), tuple(watch), replicas, node)


def topic(
    name: str = "{t}",
    partitions: int = 1,
    factor: int = 1,
    assignments: Mapping[int, list[int]] | list[tuple[int, list[int]]] | None = None,
    **configs: str | None,
) -> Body:
    """A topic of a CreateTopics request. Underscores in config names stand for dots."""
    pairs = list(assignments.items() if isinstance(assignments, Mapping) else assignments or ())
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [{"partition_index": index, "broker_ids": brokers} for index, brokers in pairs],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def assigned(assignments: Mapping[int, list[int]] | list[tuple[int, list[int]]], **configs: str | None) -> Body:
    """A topic with a manual assignment and, as required, without counts."""
    return topic("{t}", -1, -1, assignments, **configs)


def slug(each: Case, version: int) -> str:
    """The name for `{t}`: short, valid, without `.` and `_`, and unique to the case and version."""
    words = re.sub(r"[^a-z0-9]+", "-", each.id.lower()).strip("-")
    return f"{words}-{crc32(each.id.encode()):08x}-v{version:02}"


def fill(value: Any, own: str, topic_id: str = NO_ID) -> Any:
    """Replaces the placeholders in all texts of a value."""
    if isinstance(value, str):
        for size in (249, 250):
            value = value.replace(f"{{{size}}}", own.ljust(size, "x"))
        return value.replace("{t}", own).replace("{id}", topic_id)
    if isinstance(value, Mapping):
        return {key: fill(each, own, topic_id) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [fill(each, own, topic_id) for each in value]
    return value


def unfill(text: str, own: str) -> str:
    """Replaces the case's own names by placeholders."""
    for size in (250, 249):
        text = text.replace(own.ljust(size, "x"), f"{{{size}}}")
    return text.replace(own, "{t}").replace(own.replace("-", "_"), "{t}")


def in_version(row: Row, version: int) -> Row:
    """The row in one API version: facts marked `v5+` only from that version on, without the mark."""
    facts = []
    for fact in row.facts:
        found = re.match(r"v(\d+)\+ ", fact)
        if found is None:
            facts.append(fact)
        elif int(found[1]) <= version:
            facts.append(fact[found.end() :])
    return Row(row.subject, row.code, row.message, tuple(facts))
