"""The differential table: Metadata, with the truth table of automatic creation (KIP-361)."""

from collections.abc import Iterator
from typing import Any

from tests.reference.cases import STRANGE_ID, Body, Case, case, topic

HERE = [topic("{t}a", 2, 3), topic("{t}b", 1, 1)]
WITH_FLAG = range(4, 14)
OLD = range(4)
NULLABLE = range(1, 14)
BY_ID = (12, 13)


def metadata(name: str, *topics: str | Body, auto: bool | None = False, operations: str = "", **more: Any) -> Case:
    body: Body = {"topics": [{"name": each} if isinstance(each, str) else each for each in topics]}
    if auto is not None:
        body["allow_auto_topic_creation"] = auto
    if operations:
        body[f"include_{operations}_authorized_operations"] = True
    more.setdefault("watch", ())
    more.setdefault("versions", WITH_FLAG if auto is not None else OLD)
    return case("Metadata", name, body, **more)


def listings() -> Iterator[Case]:
    yield case("Metadata", "all by null", {"topics": None}, versions=NULLABLE, before=HERE, watch=())
    yield metadata("all by an empty list", auto=None, versions=(0,), before=HERE)
    yield metadata("none by an empty list", auto=None, versions=NULLABLE, before=HERE)
    yield metadata("two", "{t}a", "{t}b", auto=None, versions=range(14), before=HERE)
    yield metadata("same twice", "{t}a", "{t}a", before=HERE)
    yield metadata("known and unknown", "{t}a", "{t}x", before=HERE)
    yield metadata("unknown twice", "{t}", "{t}", auto=True, watch=("{t}",))
    yield metadata("topic operations", "{t}a", operations="topic", versions=range(8, 14), before=HERE)
    yield metadata("cluster operations", operations="cluster", versions=range(8, 11))


def ids() -> Iterator[Case]:
    known: Body = {"topic_id": "{id}", "name": None}
    strange: Body = {"topic_id": STRANGE_ID, "name": None}
    here = [topic(partitions=2)]
    yield metadata("by id", known, versions=BY_ID, before=here)
    yield metadata("by unknown id", strange, versions=BY_ID)
    yield metadata("by unknown id, auto", strange, versions=BY_ID, auto=True)
    yield metadata("by id and name", {"topic_id": "{id}", "name": "{t}"}, versions=BY_ID, before=here)
    yield metadata("by unknown id and name", {"topic_id": STRANGE_ID, "name": "{t}"}, versions=BY_ID, before=here)
    yield metadata("by neither", {"topic_id": None, "name": None}, versions=BY_ID)
    yield metadata("by id and another by name", known, "{t}", versions=BY_ID, before=here)
    yield metadata("by id before ids are allowed", {"topic_id": "{id}", "name": None}, versions=(10, 11), before=here)
    yield metadata("by known and unknown ids", known, strange, versions=BY_ID, before=here)


def truth_table() -> Iterator[Case]:
    own = ("{t}",)
    yield metadata("auto: enabled, allowed", "{t}", auto=True, watch=own)
    yield metadata("auto: enabled, not allowed", "{t}", auto=False, watch=own)
    yield metadata("auto: disabled, allowed", "{t}", auto=True, watch=own, node=3)
    yield metadata("auto: disabled, not allowed", "{t}", auto=False, watch=own, node=3)
    yield metadata("auto: enabled, old version", "{t}", auto=None, watch=own)
    yield metadata("auto: disabled, old version", "{t}", auto=None, watch=own, node=3)


def internal_names() -> Iterator[Case]:
    yield metadata("internal topic", "__consumer_offsets", versions=range(1, 14), auto=None,
                   before=[topic("__consumer_offsets")])  # fmt: skip
    yield metadata("the metadata log", "__cluster_metadata")
    yield metadata("the metadata log, auto", "__cluster_metadata", auto=True)


def bad_names() -> Iterator[Case]:
    for what, name in (("star", "{t}*"), ("empty", ""), ("a dot", "."), ("two dots", ".."), ("250", "{250}")):
        yield metadata(f"name {what}", name)
        yield metadata(f"name {what}, auto", name, auto=True)
        yield metadata(f"name {what}, old version", name, auto=None)
    yield metadata("auto: collision", "{t}.a", auto=True, before=[topic("{t}_a")], watch=("{t}.a", "{t}_a"))
    yield metadata("auto: refused by the policy", "refused-{t}", auto=True, watch=("refused-{t}",))
    yield metadata("auto: policy raises", "boom-{t}", auto=True, watch=("boom-{t}",))
    yield metadata("auto: two, one bad", "{t}", "{t}*", auto=True, watch=("{t}",))


CASES = (*listings(), *ids(), *truth_table(), *internal_names(), *bad_names())
