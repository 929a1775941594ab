"""The topics that a set of files describes: Topicwright's own format, topicctl, jikkou, Strimzi and Julie.

`READERS` recognizes the format of each document, so that files of all formats may be mixed. A reader refuses whatever
it would have to leave out of a topic; it skips what does not concern topics, such as ACLs. Templates then complete the
topics.
"""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from controller.cli.ascode.nodes import INT16_MAX, INT32_MAX, FileError, Node, documents, files_of
from controller.cli.context import NAME
from controller.machine.configs.topic_configs import LABEL
from events.names import ShardKey, shard_key

ERRORS_MAX: Final = 20

Keys = Mapping[str, Node]
Configs = dict[str, str | None]
Replicas = tuple[tuple[int, ...], ...]


class Wanted(msgspec.Struct, frozen=True):
    """A topic as a file describes it, or a template whose name is a pattern. What is None is not specified."""

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


class FileSet:
    """The topics of all files, by name. `name` is the name of the set; None if no file has one."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Read files, and all YAML files in folders. Raises FileError, whose lines are the first errors."""
        self.name: str | None = None
        self.templates: list[Wanted] = []
        """The defaults are the first, for all names."""
        self.config_maps: dict[str, Configs] = {}
        """jikkou's, to which topics refer by name."""
        self._of_set: dict[str, Node] = {}
        self._by_key: dict[ShardKey, Wanted] = {}
        self._errors: list[str] = []
        for path in files_of(paths):
            try:
                for document in documents(path):
                    self._read(document)
            except FileError as error:
                self._errors.append(str(error))
        self.topics = {one.name: one for one in map(self._completed, self._by_key.values())}
        if self._errors:
            more = len(self._errors) - ERRORS_MAX
            raise FileError("\n".join([*self._errors[:ERRORS_MAX], *([f"and {more} more errors"] if more > 0 else [])]))

    def _read(self, document: Node) -> None:
        try:
            keys = document.mapping("a document")
            read = next((read for is_of_format, read in READERS.values() if is_of_format(keys)), None)
            if read is None:
                raise document.error(f"the document does not describe topics; known formats: {', '.join(READERS)}")
            read(self, document)
        except FileError as error:
            self._errors.append(str(error))

    def add(self, topic: Wanted) -> None:
        first = self._by_key.setdefault(shard_key(topic.name), topic)
        if first is not topic:
            other = "" if first.name == topic.name else f", whose name collides with '{first.name}',"
            self._errors.append(str(topic.node.error(f"topic '{topic.name}'{other} is described in {first.node}")))

    def of_set(self, key: str, node: Node) -> Node:
        """The value of a key that the whole set has once. Raises FileError if another document has another value."""
        first = self._of_set.setdefault(key, node)
        if first.value != node.value:
            raise node.error(f"{key}: {first} has another")
        return node

    def _completed(self, topic: Wanted) -> Wanted:
        """The topic completed by the templates that match it, the last one first."""
        for reference in topic.config_maps:
            name = str(reference.value)
            if name not in self.config_maps:
                self._errors.append(str(reference.error(f"no file has the ConfigMap '{name}'")))
            topic = replace(topic, configs={**self.config_maps.get(name, {}), **topic.configs})
        for template in reversed(self.templates):
            if fnmatchcase(topic.name, template.name):
                topic = replace(
                    topic,
                    partitions=template.partitions if topic.partitions is None else topic.partitions,
                    factor=template.factor if topic.factor is None else topic.factor,
                    configs={**template.configs, **topic.configs},
                )
        return replace(topic, configs={key: value for key, value in topic.configs.items() if value is not None})


# --- formats


def _topicwright(files: FileSet, document: Node) -> None:
    keys = document.keys("a file of topics", _OWN)
    if "set" in keys:
        files.name = files.of_set("set", keys["set"]).text("set")
        if not NAME.fullmatch(files.name):
            raise keys["set"].error("set: allowed are 1 to 100 letters, digits, '.', '_' and '-'")
    if "defaults" in keys:
        files.templates.insert(0, _own("*", files.of_set("defaults", keys["defaults"]), "defaults"))
    for pattern, node in _mapping(keys, "templates").items():
        files.templates.append(_own(pattern, node, f"template '{pattern}'"))
    for name, node in _mapping(keys, "topics").items():
        files.add(_own(name, node, f"topic '{name}'", "replicas"))


def _own(name: str, node: Node, what: str, *more: str) -> Wanted:
    keys = node.keys(what, ("partitions", "factor", "configs", "labels", *more))
    replicas = _replicas(keys["replicas"]) if "replicas" in keys else None
    wanted = _wanted(name, node, keys, "factor", "configs", replicas=replicas)
    wanted.configs.update({LABEL + label: text for label, text in _configs(_mapping(keys, "labels")).items()})
    return wanted


def _topicctl(files: FileSet, document: Node) -> None:
    keys = document.keys("a topic of topicctl", ("meta", "spec"))
    meta = keys["meta"].keys("meta", ("name", *_TOPICCTL_META))
    if not _TOPICCTL_OTHER.isdisjoint(_mapping(keys, "spec")):
        return
    spec = _required(document, keys, "spec").keys("spec", _TOPICCTL_SPEC)
    name = _required(keys["meta"], meta, "name")
    replicas = (
        _topicctl_replicas(spec["placement"], _number(spec, "replicationFactor")) if "placement" in spec else None
    )
    topic = _wanted(name.text("name"), name, spec, "replicationFactor", "settings", replicas=replicas)
    if "retentionMinutes" in spec:
        topic.configs["retention.ms"] = str(spec["retentionMinutes"].number("retentionMinutes", 0) * 60_000)
    files.add(topic)


def _topicctl_replicas(placement: Node, factor: int | None) -> Replicas | None:
    keys = placement.keys("placement", ("strategy", "staticAssignments", "picker"))
    strategy = _required(placement, keys, "strategy")
    if strategy.value == "static":
        return _replicas(_required(placement, keys, "staticAssignments"))
    if strategy.value in _PLACED_SO or (strategy.value == "in-rack" and factor == 1):
        return None
    name = strategy.text("strategy")
    raise strategy.error(f"placement strategy '{name}' is not supported; allowed: static, {', '.join(_PLACED_SO)}")


def _resource(files: FileSet, document: Node) -> None:
    """A resource of Strimzi or jikkou, in the form of Kubernetes."""
    keys = document.keys("a resource", _RESOURCE)
    kind = keys["kind"].text("kind") if "kind" in keys else "KafkaTopic"
    if kind not in _KINDS:
        raise keys["kind"].error(f"kind '{kind}' does not describe topics; allowed: {', '.join(_KINDS)}")
    for item in _items(keys, "items"):
        _resource(files, item)
    if kind == "KafkaTopicList":
        return
    metadata = _required(document, keys, "metadata")
    name = _required(metadata, metadata.mapping("metadata"), "name")
    for key, node in _mapping(metadata.mapping("metadata"), "annotations").items():
        if key in _NOT_KEPT:
            raise node.error(f"annotation {key} is not supported: take the topic out of the file")
    if kind == "ConfigMap":
        files.config_maps[name.text("name")] = _configs(_mapping(keys, "data"))
        return
    allowed = _STRIMZI if _is_of("kafka.strimzi.io")(keys) else _JIKKOU
    spec = keys["spec"].keys("spec", allowed) if "spec" in keys else {}
    name, configs = spec.get("topicName", name), "config" if "config" in spec else "configs"
    maps = tuple(_items(spec, "configMapRefs"))
    files.add(_wanted(name.text("the topic's name"), name, spec, "replicas", configs, config_maps=maps))


def _julie(files: FileSet, document: Node) -> None:
    """A name is CONTEXT.….PROJECT.TOPIC: the texts of a document in their order, as Julie's default separator joins
    them."""
    keys = document.mapping("a document")
    others = [one for key, one in keys.items() if key not in _JULIE_NO_NAME]
    prefix = [one.text("a part of the names") for one in (_required(document, keys, "context"), *others)]
    for project in _items(keys, "projects"):
        of_project = project.mapping("a project")
        name = _required(project, of_project, "name").text("name")
        for topic in _items(of_project, "topics"):
            files.add(_julie_topic([*prefix, name], topic))
    for topic in _items(keys, "special_topics"):
        files.add(_julie_topic([], topic))


def _julie_topic(prefix: list[str], topic: Node) -> Wanted:
    keys = topic.keys("a topic of Julie", _JULIE_TOPIC)
    node, config = _required(topic, keys, "name"), dict(_mapping(keys, "config"))
    data_type = [keys["dataType"].text("dataType")] if "dataType" in keys else []
    name = ".".join([*prefix, node.text("name"), *data_type])
    partitions, factor = map(_number, (config, config), _JULIE_COUNTS, (INT32_MAX, INT16_MAX))
    configs = _configs({key: one for key, one in config.items() if key not in _JULIE_COUNTS})
    return Wanted(name, node, partitions, factor, configs)


_OWN: Final = ("set", "defaults", "templates", "topics")
_TOPICCTL_META: Final = ("cluster", "environment", "region", "description", "labels", "consumers")
_TOPICCTL_SPEC: Final = ("partitions", "replicationFactor", "retentionMinutes", "settings", "placement", "migration")
_TOPICCTL_OTHER: Final = frozenset(("bootstrapAddrs", "acls"))
"""Keys of topicctl's files of clusters and ACLs."""
_PLACED_SO: Final = ("any", "balanced-leaders", "cross-rack")
"""topicctl's strategies that Topicwright's own placement fulfils."""
_RESOURCE: Final = ("apiVersion", "kind", "metadata", "spec", "status", "items", "data")
_STRIMZI: Final = ("topicName", "partitions", "replicas", "config")
_JIKKOU: Final = ("partitions", "replicas", "configs", "configMapRefs")
_NOT_KEPT: Final = ("jikkou.io/delete", "jikkou.io/ignore", "strimzi.io/managed", "strimzi.io/pause-reconciliation")
"""Annotations by which the other tool deletes a topic, or leaves it as it is."""
_KINDS: Final = ("KafkaTopic", "KafkaTopicList", "ConfigMap")
_JULIE_NO_NAME: Final = ("context", "projects", "platform", "special_topics")
_JULIE_COUNTS: Final = ("num.partitions", "replication.factor")
_JULIE_SCHEMAS: Final = ("schemas", "subject.name.strategy")
_JULIE_TOPIC: Final = ("name", "dataType", "config", "consumers", "producers", "metadata", *_JULIE_SCHEMAS)


def _is_of(*groups: str) -> Callable[[Keys], bool]:
    return lambda keys: "apiVersion" in keys and str(keys["apiVersion"].value).partition("/")[0] in groups


READERS: Final[Mapping[str, tuple[Callable[[Keys], bool], Callable[[FileSet, Node], None]]]] = {
    "Topicwright (topics, templates, defaults, set)": (lambda keys: not keys.keys().isdisjoint(_OWN), _topicwright),
    "topicctl (meta, spec)": (lambda keys: "meta" in keys, _topicctl),
    "jikkou (kafka.jikkou.io)": (_is_of("kafka.jikkou.io", "core.jikkou.io"), _resource),
    "Strimzi (kafka.strimzi.io)": (_is_of("kafka.strimzi.io"), _resource),
    "Julie (context, projects)": (lambda keys: "projects" in keys, _julie),
}
"""Format → a test of a document's keys, and the reader."""


def _wanted(name: str, node: Node, keys: Keys, factor_key: str, configs_key: str, **more: Any) -> Wanted:
    """A topic with the counts of its replicas, if it has some. Raises FileError if it also has other counts."""
    partitions, factor = _number(keys, "partitions"), _number(keys, factor_key, INT16_MAX)
    wanted = Wanted(name, node, partitions, factor, _configs(_mapping(keys, configs_key, "configs")), **more)
    rows = wanted.replicas
    if rows is None:
        return wanted
    factor = factor or len(rows[0])
    if partitions not in (None, len(rows)) or any(len(row) != factor for row in rows):
        given = f"{partitions or len(rows)} partitions and factor {factor}"
        raise node.error(f"the replicas of topic '{name}' do not match {given}")
    return replace(wanted, partitions=len(rows), factor=factor)


def _required(node: Node, keys: Keys, key: str) -> Node:
    if key not in keys:
        raise node.error(f"{key} is missing")
    return keys[key]


def _mapping(keys: Keys, key: str, what: str = "") -> Keys:
    return keys[key].mapping(what or key) if key in keys else {}


def _items(keys: Keys, key: str) -> list[Node]:
    return keys[key].items(key) if key in keys else []


def _number(keys: Keys, key: str, high: int = INT32_MAX) -> int | None:
    return keys[key].number(key, high=high) if key in keys else None


def _replicas(node: Node) -> Replicas:
    rows = node.items("replicas")
    found = tuple(tuple(one.number("a replica", 0) for one in row.items("a partition's replicas")) for row in rows)
    if not found or not all(found):
        raise node.error("replicas must have a list of broker ids for each partition")
    return found


def _configs(nodes: Keys) -> Configs:
    """Configs as Kafka has them: a list becomes a text with commas."""
    configs: Configs = {}
    for key, one in nodes.items():
        if isinstance(one.value, dict):
            raise one.error(f"config {key} must be a text, a number or a list, not a mapping")
        configs[key] = (
            ",".join(each.text("a value") for each in one.value) if isinstance(one.value, list) else one.value
        )
    return configs
