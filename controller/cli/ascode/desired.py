"""The topics that a set of files describes, completed by templates and checked against each other."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from controller.cli.ascode.formats import ConfigMap, Configs, Part, SetName, Template, Wanted, parts_of
from controller.cli.ascode.nodes import FileError, Node, documents, files_of
from events.names import ShardKey, shard_key

TOPICS_MAX: Final = 100_000
ERRORS_MAX: Final = 20


class FileSet:
    """The topics of all files, by name. `name` is the name of the set; None if no file has one."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Read files, and all YAML files in folders. Raises FileError, whose lines are the first errors."""
        self.name: str | None = None
        self._named_in: Node | None = None
        self._by_key: dict[ShardKey, Wanted] = {}
        self._templates: list[Template] = []
        self._config_maps: dict[str, Configs] = {}
        self._errors: list[str] = []
        for path in files_of(paths):
            try:
                self._read(path)
            except FileError as error:
                self._errors.append(str(error))
        self.topics = {one.name: one for one in map(self._completed, self._by_key.values())}
        check(self._errors)

    def _read(self, path: Path) -> None:
        for document in documents(path):
            try:
                for part in parts_of(document):
                    self._add(part)
            except FileError as error:
                self._errors.append(str(error))

    def _add(self, part: Part) -> None:
        match part:
            case Wanted():
                first = self._by_key.setdefault(shard_key(part.name), part)
                if first is not part:
                    other = "" if first.name == part.name else f", whose name collides with '{first.name}',"
                    self._errors.append(
                        str(part.node.error(f"topic '{part.name}'{other} is described in {first.node}"))
                    )
                if len(self._by_key) > TOPICS_MAX:
                    raise part.node.error(f"the files describe more than {TOPICS_MAX} topics")
            case Template():
                earlier = next((one for one in self._templates if one.is_default and part.is_default), None)
                if earlier is not None:
                    raise part.wanted.node.error(f"defaults: {earlier.wanted.node} has some already")
                self._templates.insert(0 if part.is_default else len(self._templates), part)
            case ConfigMap():
                self._config_maps[part.name] = part.configs
            case SetName():
                if self.name not in (None, part.name):
                    raise part.node.error(f"set: {self._named_in} names the set '{self.name}'")
                self.name, self._named_in = part.name, part.node

    def _completed(self, topic: Wanted) -> Wanted:
        """The topic completed by the templates that match it: later ones first, the defaults last."""
        for reference in topic.config_maps:
            configs = self._config_maps.get(str(reference.value))
            if configs is None:
                self._errors.append(str(reference.error(f"no file has the ConfigMap '{reference.value}'")))
            topic = replace(topic, configs={**(configs or {}), **topic.configs})
        for template, _ in reversed(self._templates):
            if fnmatchcase(topic.name, template.name):
                topic = replace(
                    topic,
                    partitions=template.partitions if topic.partitions is None else topic.partitions,
                    factor=template.factor if topic.factor is None else topic.factor,
                    configs={**template.configs, **topic.configs},
                )
        return replace(topic, configs={key: value for key, value in topic.configs.items() if value is not None})


def check(errors: list[str]) -> None:
    """Raise a FileError with the first of these errors, if there are any."""
    if errors:
        more = len(errors) - ERRORS_MAX
        raise FileError("\n".join([*errors[:ERRORS_MAX], *([f"and {more} more errors"] if more > 0 else [])]))
