"""What one row of the differential table is, and the short forms in which rows are written.

A case is one request, sent in each of its versions, with what must exist before it and which topics are looked at
after it. In every text `{t}` stands for a name that is the case's and version's own, so that cases share one cluster
without meeting each other; `{249}` and `{250}` are such names stretched to that many characters, `{id}` is the topic
id of `{t}` as created before.
"""

from __future__ import annotations

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
"""The versions that Kafka 4.4 speaks of each API in the table."""

TOPIC, BROKER, BROKER_LOGGER, UNKNOWN_RESOURCE = 2, 4, 8, 0
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
NO_ID = "00000000-0000-0000-0000-000000000000"
STRANGE_ID = "00000000-0000-0000-0000-0000000000aa"


@dataclass(frozen=True, slots=True)
class Case:
    """One row. `before` holds topics to create, `watch` the topics described after the request (None: `{t}` alone)."""

    api: str
    name: str
    body: Body
    versions: tuple[int, ...]
    before: tuple[Body, ...] = ()
    watch: tuple[str, ...] = ("{t}",)
    replicas: bool = False
    """Whether the rows show the very replicas (manual assignments) rather than counts only."""
    node: int = 1
    """The broker that gets the request; node 3 has auto.create.topics.enable=false."""

    @property
    def id(self) -> str:
        return f"{self.api}: {self.name}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of an answer: of what (a topic, a resource, the whole), the error's name, its message, and the rest."""

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
    """A row with its defaults: every version that Kafka 4.4 speaks."""
    chosen = tuple(VERSIONS[api] if versions is None else versions)
    return Case(api, name, body, chosen, tuple(before), tuple(watch), replicas, node)


def topic(
    name: str = "{t}",
    partitions: int = 1,
    factor: int = 1,
    assignments: Mapping[int, list[int]] | list[tuple[int, list[int]]] | None = None,
    **configs: str | None,
) -> Body:
    """A topic of a CreateTopics request; underscores in config names stand for dots."""
    pairs = list(assignments.items() if isinstance(assignments, Mapping) else assignments or ())
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [{"partition_index": index, "broker_ids": brokers} for index, brokers in pairs],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def assigned(assignments: Mapping[int, list[int]] | list[tuple[int, list[int]]], **configs: str | None) -> Body:
    """A topic with a manual assignment and, as it must be, no counts."""
    return topic("{t}", -1, -1, assignments, **configs)


def slug(each: Case, version: int) -> str:
    """The name that stands for `{t}`; short, legal, free of `.` and `_`, and of one case and version alone."""
    words = re.sub(r"[^a-z0-9]+", "-", each.id.lower()).strip("-")
    return f"{words}-{crc32(each.id.encode()):08x}-v{version:02}"


def fill(value: Any, own: str, topic_id: str = NO_ID) -> Any:
    """The value with its placeholders replaced, in all the texts inside it."""
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
    """The text with the case's own names turned back into placeholders."""
    for size in (250, 249):
        text = text.replace(own.ljust(size, "x"), f"{{{size}}}")
    return text.replace(own, "{t}").replace(own.replace("-", "_"), "{t}")


def in_version(row: Row, version: int) -> Row:
    """The row as a version of the API shows it: facts marked `v5+` only from that version on, and without the mark."""
    facts = []
    for fact in row.facts:
        found = re.match(r"v(\d+)\+ ", fact)
        if found is None:
            facts.append(fact)
        elif int(found[1]) <= version:
            facts.append(fact[found.end() :])
    return Row(row.subject, row.code, row.message, tuple(facts))
