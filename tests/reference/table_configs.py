"""The differential table: DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from collections.abc import Iterator
from typing import Any

from tests.reference.cases import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    UNKNOWN_RESOURCE,
    Body,
    Case,
    case,
    topic,
)


def describes() -> Iterator[Case]:
    def describe(name: str, *resources: Body, synonyms: bool = False, docs: bool | None = None, **more: Any) -> Case:
        body: Body = {"resources": list(resources), "include_synonyms": synonyms}
        if docs is not None:
            body["include_documentation"] = docs
            more.setdefault("versions", (3, 4))
        more.setdefault("before", [topic(retention_ms="5", cleanup_policy="compact")])
        return case("DescribeConfigs", name, body, watch=(), **more)

    def of(name: str = "{t}", kind: int = TOPIC, keys: list[str] | None = None) -> Body:
        return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}

    yield describe("topic", of())
    yield describe("topic with synonyms", of(), synonyms=True)
    yield describe("topic with docs", of(keys=["retention.ms"]), docs=True)
    yield describe("topic, two keys", of(keys=["retention.ms", "segment.ms"]))
    yield describe("topic, no keys", of(keys=[]))
    yield describe("topic, unknown key", of(keys=["nonsense"]))
    yield describe("topic, same key twice", of(keys=["retention.ms", "retention.ms"]))
    yield describe("unknown topic", of("{t}b"))
    yield describe("bad topic name", of("{t}*"))
    yield describe("empty topic name", of(""))
    yield describe("same topic twice", of(keys=["retention.ms"]), of(keys=["segment.ms"]))
    yield describe("nothing")
    yield describe("one known, one not", of(keys=["retention.ms"]), of("{t}b"))
    yield describe("broker, some keys", of("1", BROKER, ["node.id", "num.partitions", "min.insync.replicas",
                   "default.replication.factor", "log.retention.ms", "auto.create.topics.enable"]))  # fmt: skip
    yield describe("broker, some keys with synonyms", of("1", BROKER, ["num.partitions", "log.retention.ms"]),
                   synonyms=True)  # fmt: skip
    yield describe("all brokers", of("", BROKER, ["min.insync.replicas", "num.partitions"]))
    yield describe("broker that is another", of("2", BROKER, ["node.id"]))
    yield describe("broker unknown", of("9", BROKER, ["node.id"]))
    yield describe("broker not a number", of("one", BROKER, ["node.id"]))
    yield describe("broker logger unknown", of("9", BROKER_LOGGER, ["root"]))
    yield describe("type unknown", of("{t}", UNKNOWN_RESOURCE))
    yield describe("type strange", of("{t}", 99))
    yield describe("client metrics", of("{t}", 16))
    yield describe("group", of("{t}", 32, ["consumer.session.timeout.ms"]))


HERE = [topic(retention_ms="5", cleanup_policy="compact", segment_ms="7")]


def alter(name: str, *resources: Body, dry: bool = False, **more: Any) -> Case:
    return case("AlterConfigs", name, {"resources": list(resources), "validate_only": dry}, before=HERE, **more)


def alters() -> Iterator[Case]:
    def of(*pairs: tuple[str, str | None], name: str = "{t}", kind: int = TOPIC) -> Body:
        configs = [{"name": key, "value": value} for key, value in pairs]
        return {"resource_type": kind, "resource_name": name, "configs": configs}

    yield alter("set one, drop the rest", of(("retention.ms", "9")))
    yield alter("set none, drop all", of())
    yield alter("dry run", of(("retention.ms", "9")), dry=True)
    yield alter("nothing")
    yield alter("bad value", of(("retention.ms", "x")))
    yield alter("bad value, dry run", of(("retention.ms", "x")), dry=True)
    yield alter("unknown key", of(("nonsense", "1")))
    yield alter("null value", of(("retention.ms", None)))
    yield alter("same key twice", of(("retention.ms", "8"), ("retention.ms", "9")))
    yield alter("unknown topic", of(("retention.ms", "9"), name="{t}b"))
    yield alter("unknown topic, dry run", of(("retention.ms", "9"), name="{t}b"), dry=True)
    yield alter("bad topic name", of(("retention.ms", "9"), name="{t}*"))
    yield alter("empty topic name", of(("retention.ms", "9"), name=""))
    yield alter("same topic twice", of(("retention.ms", "8")), of(("retention.ms", "9")), versions=(2,))
    yield alter("one good, one bad", of(("retention.ms", "9")), of(("retention.ms", "9"), name="{t}b"))
    yield alter("type unknown", of(("retention.ms", "9"), kind=UNKNOWN_RESOURCE))
    yield alter("type strange", of(("retention.ms", "9"), kind=99))
    yield alter("broker unknown", of(("log.cleaner.threads", "1"), name="9", kind=BROKER))
    yield alter("broker not a number", of(("log.cleaner.threads", "1"), name="one", kind=BROKER))


def incremental(name: str, *resources: Body, dry: bool = False, before: list[Body] = HERE) -> Case:
    return case("IncrementalAlterConfigs", name, {"resources": list(resources), "validate_only": dry}, before=before)


def one(*changes: tuple[str, int, str | None], name: str = "{t}", kind: int = TOPIC) -> Body:
    configs = [{"name": key, "config_operation": change, "value": value} for key, change, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def incrementals() -> Iterator[Case]:
    yield incremental("set", one(("retention.ms", SET, "9")))
    yield incremental("set to what it is", one(("retention.ms", SET, "5")))
    yield incremental("set to the default", one(("retention.ms", SET, "604800000")))
    yield incremental("set another", one(("max.message.bytes", SET, "100")))
    yield incremental("set two", one(("retention.ms", SET, "9"), ("segment.ms", SET, "9")))
    yield incremental("dry run", one(("retention.ms", SET, "9")), dry=True)
    yield incremental("nothing")
    yield incremental("no changes", one())
    yield incremental("delete", one(("retention.ms", DELETE, None)))
    yield incremental("delete with a value", one(("retention.ms", DELETE, "5")))
    yield incremental("delete what is not set", one(("max.message.bytes", DELETE, None)))
    yield incremental("delete unknown", one(("nonsense", DELETE, None)))
    yield incremental("append", one(("cleanup.policy", APPEND, "delete")))
    yield incremental("append what is there", one(("cleanup.policy", APPEND, "compact")))
    yield incremental("append two", one(("cleanup.policy", APPEND, "delete,compact")))
    yield incremental("append bad", one(("cleanup.policy", APPEND, "shred")))
    yield incremental("append to the default", one(("cleanup.policy", APPEND, "compact")), before=[topic()])
    yield incremental("append to no list", one(("retention.ms", APPEND, "1")))
    yield incremental("append to throttled", one(("leader.replication.throttled.replicas", APPEND, "0:1,1:2")))
    yield incremental("append null", one(("cleanup.policy", APPEND, None)))
    yield incremental("subtract", one(("cleanup.policy", SUBTRACT, "compact")),
                      before=[topic(cleanup_policy="compact,delete")])  # fmt: skip
    yield incremental("subtract the last", one(("cleanup.policy", SUBTRACT, "compact")))
    yield incremental("subtract what is not there", one(("cleanup.policy", SUBTRACT, "delete")))
    yield incremental("subtract from no list", one(("retention.ms", SUBTRACT, "1")))
    yield incremental("set null", one(("retention.ms", SET, None)))
    yield incremental("bad value", one(("retention.ms", SET, "x")))
    yield incremental("bad value, dry run", one(("retention.ms", SET, "x")), dry=True)
    yield incremental("one good, one bad value", one(("retention.ms", SET, "9"), ("segment.ms", SET, "x")))
    yield incremental("unknown key", one(("nonsense", SET, "1")))
    yield incremental("empty key", one(("", SET, "1")))
    yield incremental("same key twice", one(("retention.ms", SET, "8"), ("retention.ms", SET, "9")))
    yield incremental("same key set and deleted", one(("retention.ms", SET, "8"), ("retention.ms", DELETE, None)))
    yield incremental("operation strange", one(("retention.ms", 9, "1")))
    yield incremental("unknown topic", one(("retention.ms", SET, "9"), name="{t}b"))
    yield incremental("unknown topic, dry run", one(("retention.ms", SET, "9"), name="{t}b"), dry=True)
    yield incremental("unknown topic and bad value", one(("retention.ms", SET, "x"), name="{t}b"))
    yield incremental("bad topic name", one(("retention.ms", SET, "9"), name="{t}*"))
    yield incremental("empty topic name", one(("retention.ms", SET, "9"), name=""))
    yield incremental("same topic twice", one(("retention.ms", SET, "8")), one(("segment.ms", SET, "9")))
    yield incremental(
        "one good, one bad", one(("retention.ms", SET, "9")), one(("retention.ms", SET, "9"), name="{t}b")
    )
    yield incremental("compaction lags crossed", one(("min.compaction.lag.ms", SET, "10"),
                      ("max.compaction.lag.ms", SET, "5")))  # fmt: skip
    yield incremental("min insync over factor", one(("min.insync.replicas", SET, "3")))
    yield incremental("type unknown", one(("retention.ms", SET, "9"), kind=UNKNOWN_RESOURCE))
    yield incremental("type strange", one(("retention.ms", SET, "9"), kind=99))
    yield incremental("broker unknown", one(("log.cleaner.threads", SET, "1"), name="9", kind=BROKER))
    yield incremental("broker not a number", one(("log.cleaner.threads", SET, "1"), name="one", kind=BROKER))


CASES = (*describes(), *alters(), *incrementals())
