"""Converts responses to rows that can be compared: sorted, without random values (ids, ports, the controller's id)."""

from collections.abc import Callable, Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from controller.stream.gateway.members import NODE_IDS_FROM
from tests.reference.cases import NO_ID, STRANGE_ID, Body, Row

SOURCES = {
    0: "unknown",
    1: "topic",
    2: "broker",
    3: "default-broker",
    4: "static",
    5: "default",
    6: "logger",
    8: "group",
}
OWN_NODE = "us"
"""Stands for the id of a deciding node that is no broker of the cluster."""
RESOURCES = {2: "topic", 4: "broker", 8: "logger", 16: "client-metrics", 32: "group"}


def rows_of(api: str, body: Body, version: int) -> tuple[Row, ...]:
    """Returns the rows of one response."""
    return tuple(_READERS[api](body, version))


def code_name(code: int) -> str:
    """Kafka's name of an error code, e.g. 36: TOPIC_ALREADY_EXISTS."""
    return ErrorCode(code).name.upper()


def _node(node_id: int) -> str:
    return OWN_NODE if node_id >= NODE_IDS_FROM else str(node_id)


def _sorted(rows: Iterator[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.subject, row.code, row.message or "", row.facts))


def _identity(topic_id: str | None) -> str:
    return {None: "none", NO_ID: "none", STRANGE_ID: "strange"}.get(topic_id, "some")


def _config(entry: Body) -> str:
    words = [f"{entry['name']}={entry['value']!r}"]
    source = entry.get("config_source")
    if source is not None:
        words.append(SOURCES.get(source, str(source)))
    elif entry["is_default"]:
        words.append("default")
    words += [mark for mark in ("read_only", "is_sensitive") if entry.get(mark)]
    if "config_type" in entry:
        words.append(f"type={entry['config_type']}")
    if "documentation" in entry:
        words.append("undocumented" if entry["documentation"] is None else "documented")
    for synonym in entry.get("synonyms") or ():
        words.append(f"<- {synonym['name']}={synonym['value']!r} {SOURCES.get(synonym['source'], '?')}")
    return " ".join(words)


def _create_topics(body: Body, version: int) -> Iterator[Row]:
    for each in body["topics"]:
        yield Row(
            each["name"],
            code_name(each["error_code"]),
            each.get("error_message"),
            tuple(_creation_facts(each, version)),
        )


def _creation_facts(each: Body, version: int) -> Iterator[str]:
    """Yields the fields of a response in addition to the error, unless they have their empty value."""
    if version < 5:
        return
    configs, topic_id = each["configs"], _identity(each.get("topic_id"))
    if each["error_code"] == 0 or (each["num_partitions"], each["replication_factor"], configs) != (-1, -1, []):
        yield f"partitions={each['num_partitions']}"
        yield f"factor={each['replication_factor']}"
        yield f"configs={'null' if configs is None else len(configs)}"
        yield from sorted(_config(entry) for entry in configs or () if entry["config_source"] != 5)
    if version >= 7 and (each["error_code"] == 0 or topic_id != "none"):
        yield f"id={topic_id}"
    if each.get("topic_config_error_code"):
        yield f"config error {code_name(each['topic_config_error_code'])}"


def _delete_topics(body: Body, version: int) -> Iterator[Row]:
    for each in body["responses"]:
        facts = (f"id={_identity(each['topic_id'])}",) if version >= 6 else ()
        subject = "(no name)" if each["name"] is None else each["name"]
        yield Row(subject, code_name(each["error_code"]), each.get("error_message"), facts)


def _create_partitions(body: Body, version: int) -> Iterator[Row]:
    for each in body["results"]:
        yield Row(each["name"], code_name(each["error_code"]), each["error_message"])


def _resource(each: Body) -> str:
    kind = each["resource_type"]
    return f"{RESOURCES.get(kind, kind)} {each['resource_name']}"


def _describe_configs(body: Body, version: int) -> Iterator[Row]:
    for each in body["results"]:
        facts = tuple(sorted(_config(entry) for entry in each["configs"]))
        yield Row(_resource(each), code_name(each["error_code"]), each["error_message"], facts)


def _alter_configs(body: Body, version: int) -> Iterator[Row]:
    for each in body["responses"]:
        yield Row(_resource(each), code_name(each["error_code"]), each["error_message"])


def _operations(each: Body) -> list[str]:
    allowed = each["authorized_operations"]
    return [] if allowed is None else [f"operations={allowed}"]


def _partition(each: Body) -> str:
    leader = "led" if each["leader_id"] >= 0 else "leaderless"
    error = "" if each["error_code"] == 0 else f" {code_name(each['error_code'])}"
    return (
        f"{each['partition_index']}: {leader} replicas={len(each['replica_nodes'])} isr={len(each['isr_nodes'])}"
        f" offline={len(each.get('offline_replicas') or ())}{error}"
    )


def _metadata(body: Body, version: int) -> Iterator[Row]:
    brokers = sorted(body["brokers"], key=lambda broker: int(broker["node_id"]))
    facts = ["brokers " + " ".join(f"{_node(each['node_id'])}:{each.get('rack')}" for each in brokers)]
    if version >= 1:
        facts += [
            "controller known" if body["controller_id"] in {each["node_id"] for each in brokers} else "no controller"
        ]
    if version >= 2:
        facts += ["cluster id" if body["cluster_id"] else "no cluster id"]
    if 8 <= version <= 10:
        facts += _operations(body)
    yield Row("cluster", code_name(body.get("error_code") or 0), None, tuple(facts))
    yield from _sorted(_metadata_topic(each, version) for each in body["topics"])


def _metadata_topic(each: Body, version: int) -> Row:
    facts = [_partition(partition) for partition in sorted(each["partitions"], key=lambda p: int(p["partition_index"]))]
    if version >= 1 and each["is_internal"]:
        facts += ["internal"]
    if version >= 8:
        facts += _operations(each)
    if version >= 10:
        facts += [f"id={_identity(each['topic_id'])}"]
    return Row("(no name)" if each["name"] is None else each["name"], code_name(each["error_code"]), None, tuple(facts))


def _describe_cluster(body: Body, version: int) -> Iterator[Row]:
    brokers = sorted(body["brokers"], key=lambda broker: int(broker["broker_id"]))
    facts = [f"broker {_node(each['broker_id'])}:{each['rack']} fenced={each.get('is_fenced')}" for each in brokers]
    ids = {each["broker_id"] for each in body["brokers"]}
    facts += [f"endpoint_type={body.get('endpoint_type')}", "cluster id" if body["cluster_id"] else "no cluster id"]
    facts += ["controller known" if body["controller_id"] in ids else f"controller={body['controller_id']}"]
    facts += _operations(body)
    yield Row("cluster", code_name(body["error_code"]), body["error_message"], tuple(facts))


def _describe_topic_partitions(body: Body, version: int) -> Iterator[Row]:
    for each in body["topics"]:
        facts = [
            _partition(partition) + f" elr={partition['eligible_leader_replicas']}"
            f" last={partition['last_known_elr']}" for partition in each["partitions"]
        ]  # fmt: skip
        facts += ["internal"] if each["is_internal"] else []
        facts += [f"operations={each['topic_authorized_operations']}", f"id={_identity(each['topic_id'])}"]
        yield Row(each["name"], code_name(each["error_code"]), None, tuple(facts))
    cursor = body["next_cursor"]
    yield Row("cursor", "NONE", None, (f"{cursor['topic_name']}:{cursor['partition_index']}",) if cursor else ("end",))


def _list_reassignments(body: Body, version: int) -> Iterator[Row]:
    facts = tuple(str(each) for each in body["topics"])
    yield Row("reassignments", code_name(body["error_code"]), body["error_message"], facts)


_READERS: dict[str, Callable[[Any, int], Any]] = {
    "CreateTopics": lambda *args: _sorted(_create_topics(*args)),
    "DeleteTopics": lambda *args: _sorted(_delete_topics(*args)),
    "CreatePartitions": lambda *args: _sorted(_create_partitions(*args)),
    "DescribeConfigs": lambda *args: _sorted(_describe_configs(*args)),
    "AlterConfigs": lambda *args: _sorted(_alter_configs(*args)),
    "IncrementalAlterConfigs": lambda *args: _sorted(_alter_configs(*args)),
    "Metadata": _metadata,
    "DescribeCluster": _describe_cluster,
    "DescribeTopicPartitions": _describe_topic_partitions,
    "ListPartitionReassignments": _list_reassignments,
}
