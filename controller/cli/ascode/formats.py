"""Readers of files that describe topics: Topicwright's own format, topicctl, jikkou, Strimzi and Julie.

`READERS` recognizes the format of each document, so that files of all formats may be mixed. A reader refuses whatever
it would have to leave out of a topic; it skips what does not concern topics, such as ACLs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from controller.cli.ascode.nodes import Node
from controller.cli.context import NAME

Keys = Mapping[str, Node]
Configs = Mapping[str, str | None]
Replicas = tuple[tuple[int, ...], ...]


class Wanted(msgspec.Struct, frozen=True):
    """A topic as a file describes it. What is None is not specified."""

    name: str
    node: Node
    partitions: int | None = None
    factor: int | None = None
    configs: Configs = {}
    """A config of None removes the value of a template."""
    replicas: Replicas | None = None
    """The replicas of each partition; the first is the preferred leader."""
    config_maps: tuple[Node, ...] = ()
    """The names of jikkou's ConfigMaps that complete the configs."""


class Template(NamedTuple):
    """Completes the topics whose names match a pattern such as `pay.*`. The defaults match all, and come first."""

    wanted: Wanted
    is_default: bool = False


class ConfigMap(NamedTuple):
    """Configs of jikkou to which topics refer by name."""

    name: str
    configs: Configs


class SetName(NamedTuple):
    """The name of the set to which all files of a command belong."""

    name: str
    node: Node


Part = Wanted | Template | ConfigMap | SetName
"""A document consists of these."""


def _topicwright(document: Node) -> Iterator[Part]:
    keys = document.keys("a file of topics", _OWN)
    if "set" in keys:
        name = keys["set"].text("set")
        if not NAME.fullmatch(name):
            raise keys["set"].error("set: allowed are 1 to 100 letters, digits, '.', '_' and '-'")
        yield SetName(name, keys["set"])
    if "defaults" in keys:
        yield Template(_own("*", keys["defaults"], "defaults", _TEMPLATE), is_default=True)
    for pattern, node in _mapping(keys, "templates").items():
        yield Template(_own(pattern, node, f"template '{pattern}'", _TEMPLATE))
    for name, node in _mapping(keys, "topics").items():
        yield _own(name, node, f"topic '{name}'", (*_TEMPLATE, "replicas"))


def _own(name: str, node: Node, what: str, allowed: tuple[str, ...]) -> Wanted:
    keys = node.keys(what, allowed)
    configs, replicas = _configs(keys.get("configs")), _replicas(keys.get("replicas"))
    return _with_replicas(Wanted(name, node, _number(keys, "partitions"), _number(keys, "factor"), configs, replicas))


def _topicctl(document: Node) -> Iterator[Part]:
    keys = document.keys("a topic of topicctl", ("meta", "spec"))
    meta = keys["meta"].keys("meta", ("name", *_TOPICCTL_META))
    spec = _required(document, keys, "spec").keys("spec", _TOPICCTL_SPEC)
    node, configs = _required(keys["meta"], meta, "name"), _configs(spec.get("settings"))
    if "retentionMinutes" in spec:
        configs["retention.ms"] = str(spec["retentionMinutes"].number("retentionMinutes", 0) * 60_000)
    counts = _number(spec, "partitions"), _number(spec, "replicationFactor")
    replicas = _topicctl_replicas(spec["placement"], counts[1]) if "placement" in spec else None
    yield _with_replicas(Wanted(node.text("name"), node, *counts, configs, replicas))


def _topicctl_replicas(placement: Node, factor: int | None) -> Replicas | None:
    keys = placement.keys("placement", ("strategy", "staticAssignments", "picker"))
    strategy = _required(placement, keys, "strategy")
    if strategy.value == "static":
        return _replicas(_required(placement, keys, "staticAssignments"))
    if strategy.value in _PLACED_SO or (strategy.value == "in-rack" and factor == 1):
        return None
    name = strategy.text("strategy")
    raise strategy.error(f"placement strategy '{name}' is not supported; allowed: static, {', '.join(_PLACED_SO)}")


def _strimzi(document: Node) -> Iterator[Part]:
    keys = document.keys("a KafkaTopic", (*_RESOURCE, "status"))
    node, spec = _resource(document, keys, ("topicName", "partitions", "replicas", "config"))
    node = spec.get("topicName", node)
    counts = _number(spec, "partitions"), _number(spec, "replicas")
    yield Wanted(node.text("the topic's name"), node, *counts, _configs(spec.get("config")))


def _jikkou(document: Node) -> Iterator[Part]:
    kind = document.mapping("a resource").get("kind")
    if kind is not None and kind.value == "ConfigMap":
        keys = document.keys("a ConfigMap", (*_RESOURCE, "data"))
        yield ConfigMap(_resource(document, keys, ())[0].text("name"), _configs(keys.get("data")))
        return
    items = [document]
    if kind is not None and kind.value == "KafkaTopicList":
        items = _items(document.keys("a KafkaTopicList", (*_RESOURCE[:3], "items")), "items")
    for item in items:
        keys = item.keys("a KafkaTopic", _RESOURCE)
        node, spec = _resource(item, keys, ("partitions", "replicas", "configs", "configMapRefs"))
        counts = _number(spec, "partitions"), _number(spec, "replicas")
        maps = tuple(_items(spec, "configMapRefs"))
        yield Wanted(node.text("name"), node, *counts, _configs(spec.get("configs")), config_maps=maps)


def _resource(node: Node, keys: Keys, allowed: tuple[str, ...]) -> tuple[Node, Keys]:
    """The name and the spec of a resource, in the form of Kubernetes."""
    if "kind" in keys and keys["kind"].value not in _KINDS:
        kind = keys["kind"].text("kind")
        raise keys["kind"].error(f"kind '{kind}' does not describe topics; allowed: {', '.join(_KINDS)}")
    metadata = _required(node, keys, "metadata")
    name = _required(metadata, metadata.mapping("metadata"), "name")
    return name, keys["spec"].keys("spec", allowed) if "spec" in keys else {}


def _julie(document: Node) -> Iterator[Part]:
    """A name is CONTEXT.….PROJECT.TOPIC: the texts of a document in their order, as Julie's default separator joins
    them."""
    keys = document.mapping("a document")
    others = [one for key, one in keys.items() if key not in _JULIE_NO_NAME]
    prefix = [one.text("a part of the names") for one in (_required(document, keys, "context"), *others)]
    for project in _items(keys, "projects"):
        of_project = project.mapping("a project")
        name = _required(project, of_project, "name").text("name")
        yield from (_julie_topic([*prefix, name], topic) for topic in _items(of_project, "topics"))
    yield from (_julie_topic([], topic) for topic in _items(keys, "special_topics"))


def _julie_topic(prefix: list[str], topic: Node) -> Wanted:
    keys = topic.keys("a topic of Julie", _JULIE_TOPIC)
    node, config = _required(topic, keys, "name"), _mapping(keys, "config")
    data_type = [keys["dataType"].text("dataType")] if "dataType" in keys else []
    name = ".".join([*prefix, node.text("name"), *data_type])
    rest = _configs(Node(node.file, node.line, {key: one for key, one in config.items() if key not in _JULIE_COUNTS}))
    partitions, factor = (_number(config, key) for key in _JULIE_COUNTS)
    return Wanted(name, node, partitions, factor, rest)


_TEMPLATE: Final = ("partitions", "factor", "configs")
_OWN: Final = ("set", "defaults", "templates", "topics")
_TOPICCTL_META: Final = ("cluster", "environment", "region", "description", "labels", "consumers")
_TOPICCTL_SPEC: Final = ("partitions", "replicationFactor", "retentionMinutes", "settings", "placement", "migration")
_PLACED_SO: Final = ("any", "balanced-leaders", "cross-rack")
"""topicctl's strategies that Topicwright's own placement fulfils."""
_RESOURCE: Final = ("apiVersion", "kind", "metadata", "spec")
_KINDS: Final = ("KafkaTopic", "KafkaTopicList", "ConfigMap")
_JULIE_NO_NAME: Final = ("context", "projects", "platform", "special_topics")
_JULIE_COUNTS: Final = ("num.partitions", "replication.factor")
_JULIE_TOPIC: Final = ("name", "dataType", "config", "schemas", "consumers", "producers", "metadata")


def _of_api(*groups: str) -> Callable[[Keys], bool]:
    return lambda keys: "apiVersion" in keys and str(keys["apiVersion"].value).partition("/")[0] in groups


READERS: Final[Mapping[str, tuple[Callable[[Keys], bool], Callable[[Node], Iterator[Part]]]]] = {
    "Topicwright (topics, templates, defaults, set)": (lambda keys: not keys.keys().isdisjoint(_OWN), _topicwright),
    "topicctl (meta, spec)": (lambda keys: "meta" in keys, _topicctl),
    "jikkou (kafka.jikkou.io)": (_of_api("kafka.jikkou.io", "core.jikkou.io"), _jikkou),
    "Strimzi (kafka.strimzi.io)": (_of_api("kafka.strimzi.io"), _strimzi),
    "Julie (context, projects)": (lambda keys: "projects" in keys, _julie),
}
"""Format → a test of a document's keys, and the reader."""


def parts_of(document: Node) -> Iterator[Part]:
    """The parts of a document. Raises FileError."""
    keys = document.mapping("a document")
    for is_of_format, read in READERS.values():
        if is_of_format(keys):
            return read(document)
    raise document.error(f"the document does not describe topics; known formats: {', '.join(READERS)}")


def _with_replicas(wanted: Wanted) -> Wanted:
    """The topic with the counts of its replicas. Raises FileError if it has other counts."""
    rows = wanted.replicas
    if rows is None:
        return wanted
    factor = wanted.factor or len(rows[0])
    if wanted.partitions not in (None, len(rows)) or any(len(row) != factor for row in rows):
        given = f"{wanted.partitions or len(rows)} partitions and factor {factor}"
        raise wanted.node.error(f"the replicas of topic '{wanted.name}' do not match {given}")
    return msgspec.structs.replace(wanted, partitions=len(rows), factor=factor)


def _required(node: Node, keys: Keys, key: str) -> Node:
    if key not in keys:
        raise node.error(f"{key} is missing")
    return keys[key]


def _mapping(keys: Keys, key: str) -> Keys:
    return keys[key].mapping(key) if key in keys else {}


def _items(keys: Keys, key: str) -> list[Node]:
    return keys[key].items(key) if key in keys else []


def _number(keys: Keys, key: str) -> int | None:
    return keys[key].number(key) if key in keys else None


def _replicas(node: Node | None) -> Replicas | None:
    if node is None:
        return None
    rows = node.items("replicas")
    found = tuple(tuple(one.number("a replica", 0) for one in row.items("a partition's replicas")) for row in rows)
    if not found or not all(found):
        raise node.error("replicas must have a list of broker ids for each partition")
    return found


def _configs(node: Node | None) -> dict[str, str | None]:
    """Configs as Kafka has them: a list becomes a text with commas."""
    configs: dict[str, str | None] = {}
    for key, one in node.mapping("configs").items() if node is not None else ():
        if isinstance(one.value, dict):
            raise one.error(f"config {key} must be a text, a number or a list, not a mapping")
        configs[key] = (
            ",".join(each.text("a value") for each in one.value) if isinstance(one.value, list) else one.value
        )
    return configs
