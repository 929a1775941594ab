"""Answers to the table of permissions as rows: of what, which error, and what the answer lists as authorized."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.reference.answers import code_name

Body = dict[str, Any]
Row = tuple[str, str, str]
"""Of what (a topic, a resource, the whole), the error's name, and what else must be the same."""


def rows_of(api: str, body: Body, names: dict[str, str]) -> tuple[Row, ...]:
    """The rows of one answer, sorted; `names` gives the names of topic ids."""
    return tuple(sorted(_READERS[api](body, names)))


def _listed(key: str, name: str = "name") -> Callable[[Body, dict[str, str]], Iterator[Row]]:
    def read(body: Body, names: dict[str, str]) -> Iterator[Row]:
        for each in body[key]:
            yield str(each[name]), code_name(each["error_code"]), ""

    return read


def _operations(value: object) -> str:
    """The operations that an answer lists, None and the lowest number standing for none requested."""
    if isinstance(value, Iterable):
        return f"operations={sorted(int(each) for each in value)}"
    return "" if value is None or value == -(2**31) else f"operations={value}"


def _create_topics(body: Body, names: dict[str, str]) -> Iterator[Row]:
    for each in body["topics"]:
        shown = {None: "null", 0: ""}.get(_count(each.get("configs", [])), "configs")
        denied = each.get("topic_config_error_code") or 0
        yield each["name"], code_name(each["error_code"]), f"{shown} {code_name(denied) if denied else ''}".strip()


def _count(listed: list[Any] | None) -> int | None:
    return None if listed is None else len(listed)


def _users(body: Body, names: dict[str, str]) -> Iterator[Row]:
    yield "all", code_name(body["error_code"]), body["error_message"] or ""
    for number, each in enumerate(body["results"]):
        yield f"row {number} {each['user']!r}", code_name(each["error_code"]), each["error_message"] or ""


def _delete_topics(body: Body, names: dict[str, str]) -> Iterator[Row]:
    for each in body["responses"]:
        by_id = names.get(each.get("topic_id") or "", "")
        yield str(each["name"]), code_name(each["error_code"]), f"id of {by_id}" if by_id and not each["name"] else ""


def _resources(key: str) -> Callable[[Body, dict[str, str]], Iterator[Row]]:
    def read(body: Body, names: dict[str, str]) -> Iterator[Row]:
        for each in body[key]:
            shown = "configs" if each.get("configs") else ""
            yield f"{each['resource_type']} {each['resource_name']}", code_name(each["error_code"]), shown

    return read


def _metadata(body: Body, names: dict[str, str]) -> Iterator[Row]:
    yield "cluster", "NONE", _operations(body.get("authorized_operations", body.get("cluster_authorized_operations")))
    for each in body["topics"]:
        name = each["name"] if each["name"] else f"id of {names.get(each.get('topic_id') or '', '?')}"
        wanted = _operations(each.get("authorized_operations", each.get("topic_authorized_operations")))
        yield name, code_name(each["error_code"]), f"{len(each['partitions'])} partitions {wanted}".strip()


def _pages(body: Body, names: dict[str, str]) -> Iterator[Row]:
    for each in body["topics"]:
        wanted = _operations(each.get("topic_authorized_operations", each.get("authorized_operations")))
        yield each["name"], code_name(each["error_code"]), f"{len(each['partitions'])} partitions {wanted}".strip()


def _cluster(body: Body, names: dict[str, str]) -> Iterator[Row]:
    wanted = body.get("cluster_authorized_operations", body.get("authorized_operations"))
    yield "cluster", code_name(body["error_code"]), _operations(wanted)


def _whole(body: Body, names: dict[str, str]) -> Iterator[Row]:
    yield "all", code_name(body["error_code"]), ""


def _created_acls(body: Body, names: dict[str, str]) -> Iterator[Row]:
    for number, each in enumerate(body["results"]):
        yield f"entry {number}", code_name(each["error_code"]), ""


def _described_acls(body: Body, names: dict[str, str]) -> Iterator[Row]:
    yield "all", code_name(body["error_code"]), f"{len(body['resources'])} found"


def _deleted_acls(body: Body, names: dict[str, str]) -> Iterator[Row]:
    for number, each in enumerate(body["filter_results"]):
        yield f"filter {number}", code_name(each["error_code"]), f"{len(each['matching_acls'])} found"


def _altered_quotas(body: Body, names: dict[str, str]) -> Iterator[Row]:
    for each in body["entries"]:
        entity = " ".join(f"{part['entity_type']}={part['entity_name']}" for part in each["entity"])
        yield entity, code_name(each["error_code"]), ""


_READERS: dict[str, Callable[[Body, dict[str, str]], Iterator[Row]]] = {
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "CreatePartitions": _listed("results"),
    "AlterConfigs": _resources("responses"),
    "IncrementalAlterConfigs": _resources("responses"),
    "DescribeConfigs": _resources("results"),
    "Metadata": _metadata,
    "DescribeTopicPartitions": _pages,
    "DescribeCluster": _cluster,
    "ListPartitionReassignments": _whole,
    "CreateAcls": _created_acls,
    "DescribeAcls": _described_acls,
    "DeleteAcls": _deleted_acls,
    "DescribeClientQuotas": _whole,
    "AlterClientQuotas": _altered_quotas,
    "DescribeUserScramCredentials": _users,
}
