"""The differential table: DeleteTopics, CreatePartitions, and the APIs that only read."""

from collections.abc import Iterator
from typing import Any

from tests.reference.cases import NO_ID, STRANGE_ID, Body, Case, case, topic

BY_NAME = range(1, 6)
BY_ID = (6,)


def delete(name: str, body: Body, **more: Any) -> Case:
    return case("DeleteTopics", name, {"timeout_ms": 30_000, **body}, **more)


def deletes() -> Iterator[Case]:
    def named(*topics: str) -> Body:
        return {"topic_names": list(topics)}

    def listed(*pairs: tuple[str | None, str]) -> Body:
        return {"topics": [{"name": name, "topic_id": topic_id} for name, topic_id in pairs]}

    here = [topic()]
    yield delete("by name", named("{t}"), versions=BY_NAME, before=here)
    yield delete("nothing", named(), versions=BY_NAME, watch=())
    yield delete("unknown name", named("{t}"), versions=BY_NAME)
    yield delete("bad name", named("{t}*"), versions=BY_NAME, watch=())
    yield delete("empty name", named(""), versions=BY_NAME, watch=())
    yield delete("the metadata log", named("__cluster_metadata"), versions=BY_NAME, watch=())
    yield delete("same name twice", named("{t}", "{t}"), versions=BY_NAME, before=here)
    yield delete("unknown name twice", named("{t}", "{t}"), versions=BY_NAME)
    yield delete("one known, one not", named("{t}", "{t}b"), versions=BY_NAME, before=here)
    yield delete("timeout 0", {**named("{t}"), "timeout_ms": 0}, versions=BY_NAME, before=here)
    yield delete("timeout -1, unknown", {**named("{t}"), "timeout_ms": -1}, versions=BY_NAME)
    yield delete("v6 by name", listed(("{t}", NO_ID)), versions=BY_ID, before=here)
    yield delete("v6 by id", listed((None, "{id}")), versions=BY_ID, before=here)
    yield delete("v6 nothing", listed(), versions=BY_ID, watch=())
    yield delete("v6 by both", listed(("{t}", "{id}")), versions=BY_ID, before=here)
    yield delete("v6 by neither", listed((None, NO_ID)), versions=BY_ID, watch=())
    yield delete("v6 unknown name", listed(("{t}", NO_ID)), versions=BY_ID)
    yield delete("v6 empty name", listed(("", NO_ID)), versions=BY_ID)
    yield delete("v6 unknown id", listed((None, STRANGE_ID)), versions=BY_ID, watch=())
    yield delete("v6 name and unknown id", listed(("{t}", STRANGE_ID)), versions=BY_ID, before=here)
    yield delete("v6 same name twice", listed(("{t}", NO_ID), ("{t}", NO_ID)), versions=BY_ID, before=here)
    yield delete("v6 same id twice", listed((None, "{id}"), (None, "{id}")), versions=BY_ID, before=here)
    yield delete("v6 name and its id apart", listed(("{t}", NO_ID), (None, "{id}")), versions=BY_ID, before=here)
    yield delete("v6 unknown id twice", listed((None, STRANGE_ID), (None, STRANGE_ID)), versions=BY_ID, watch=())


def more_partitions() -> Iterator[Case]:
    def partitions(
        name: str, *topics: Body, before: Body | None = None, dry: bool = False, timeout_ms: int = 30_000, **more: Any
    ) -> Case:
        body = {"topics": list(topics), "timeout_ms": timeout_ms, "validate_only": dry}
        return case("CreatePartitions", name, body, before=[before or topic(partitions=2, factor=2)], **more)

    def to(count: int, *replicas: list[int], name: str = "{t}") -> Body:
        return {"name": name, "count": count, "assignments": [{"broker_ids": each} for each in replicas] or None}

    empty: Body = {"name": "{t}", "count": 3, "assignments": []}
    by_hand = topic("{t}", -1, -1, {0: [1, 2], 1: [2, 3]})
    yield partitions("more", to(5))
    yield partitions("more, dry run", to(5), dry=True)
    yield partitions("nothing", watch=())
    yield partitions("equal", to(2))
    yield partitions("equal, dry run", to(2), dry=True)
    yield partitions("fewer", to(1))
    yield partitions("zero", to(0))
    yield partitions("negative", to(-1))
    yield partitions("10000 more, dry run", to(10_002), dry=True)
    yield partitions("10001 more, dry run", to(10_003), dry=True)
    yield partitions("int max, dry run", to(2**31 - 1), dry=True)
    yield partitions("unknown topic", to(3, name="{t}b"))
    yield partitions("bad name", to(3, name="{t}*"))
    yield partitions("same twice", to(3), to(3))
    yield partitions("same twice and another", to(3), to(4), to(3, name="{t}b"))
    yield partitions("assigned", to(4, [3, 1], [1, 2]), before=by_hand, replicas=True)
    yield partitions("assigned too few", to(4, [3, 1]))
    yield partitions("assigned too many", to(3, [3, 1], [1, 2]))
    yield partitions("assigned empty list", empty)
    yield partitions("assigned wrong factor", to(3, [1]))
    yield partitions("assigned wrong factor above", to(3, [1, 2, 3]))
    yield partitions("assigned unequal", to(4, [1, 2], [1]))
    yield partitions("assigned unknown broker", to(3, [1, 9]))
    yield partitions("assigned negative broker", to(3, [1, -1]))
    yield partitions("assigned a replica twice", to(3, [1, 1]))
    yield partitions("assigned nobody", to(3, []))
    yield partitions("assigned and fewer", to(1, [1, 2]))
    yield partitions("assigned and equal", to(2, [1, 2]))
    yield partitions("one good, one bad", to(3), to(3, name="{t}b"))
    yield partitions("timeout 0", to(3), timeout_ms=0)
    yield partitions("timeout 0 with errors", to(1), to(3, name="{t}b"), timeout_ms=0)


def lookers() -> Iterator[Case]:
    yield case("DescribeCluster", "plain", {"include_cluster_authorized_operations": False}, versions=(0,), watch=())
    yield case("DescribeCluster", "brokers", {"endpoint_type": 1}, versions=(1, 2), watch=())
    yield case("DescribeCluster", "controllers", {"endpoint_type": 2}, versions=(1, 2), watch=())
    yield case("DescribeCluster", "strange endpoint", {"endpoint_type": 3}, versions=(1, 2), watch=())
    yield case("DescribeCluster", "operations", {"include_cluster_authorized_operations": True}, watch=())
    yield case("DescribeCluster", "fenced too", {"endpoint_type": 1, "include_fenced_brokers": True}, versions=(2,),
               watch=())  # fmt: skip
    for name, topics in (("all", None), ("known", [{"name": "{t}", "partition_indexes": [0]}]), ("none", []),
                         ("unknown topic", [{"name": "{t}b", "partition_indexes": [0]}]),
                         ("unknown partition", [{"name": "{t}", "partition_indexes": [9]}])):  # fmt: skip
        body = {"timeout_ms": 30_000, "topics": topics}
        yield case("ListPartitionReassignments", name, body, before=[topic(partitions=2)], watch=())


def topic_partitions() -> Iterator[Case]:
    def describe(name: str, *topics: str, limit: int = 2000, at: tuple[str, int] | None = None) -> Case:
        cursor = at and {"topic_name": at[0], "partition_index": at[1]}
        body = {"topics": [{"name": each} for each in topics], "response_partition_limit": limit, "cursor": cursor}
        before = [topic("{t}a", 3, 2), topic("{t}b", 2, 1)]
        return case("DescribeTopicPartitions", name, body, before=before, watch=())

    a, b = "{t}a", "{t}b"
    yield describe("two", a, b)
    yield describe("two, other order", b, a)
    yield describe("same twice", a, a)
    yield describe("unknown", "{t}c")
    yield describe("unknown among", a, "{t}aa", b)
    yield describe("bad name", "{t}*")
    yield describe("limit 1", a, b, limit=1)
    yield describe("limit 3", a, b, limit=3)
    yield describe("limit 4", a, b, limit=4)
    yield describe("limit 5", a, b, limit=5)
    yield describe("limit 0", a, b, limit=0)
    yield describe("limit -1", a, b, limit=-1)
    yield describe("cursor inside", a, b, at=(a, 1))
    yield describe("cursor at second", a, b, at=(b, 0))
    yield describe("cursor between", a, b, at=("{t}aa", 0))
    yield describe("cursor between, past zero", a, b, at=("{t}aa", 1))
    yield describe("cursor past partitions", a, b, at=(a, 3))
    yield describe("cursor past all", a, b, at=("{t}c", 0))
    yield describe("cursor negative", a, b, at=(a, -1))
    yield describe("cursor and limit", a, b, limit=2, at=(a, 2))
    yield describe("all, from a cursor", limit=4, at=(a, 0))
    yield describe("cursor on a topic not asked", a, at=(b, 1))


CASES = (*deletes(), *more_partitions(), *lookers(), *topic_partitions())
