"""Reads YAML files as nodes that know their line, for errors such as `topics.yaml:7: partitons: unknown key`.

A value is a text (numbers too: `0.50` stays as it is written), None, a list or a mapping. Size and nesting are bounded,
and anchors are refused, so that no file makes a reader slow. A key that is given twice is an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import yaml

from controller.cli.arguments import error_text, suggestion
from events.errors import UserError, shortened
from events.logs.log import read_text

FILE_BYTES_MAX: Final = 16 << 20
DEPTH_MAX: Final = 20
INT16_MAX, INT32_MAX = 2**15 - 1, 2**31 - 1
"""Kafka's limits of a replication factor, and of other numbers."""
_SUFFIXES: Final = frozenset((".yaml", ".yml"))
_NULLS: Final = frozenset(("", "~", "null", "Null", "NULL"))
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,10}")
_QUOTED_CHARS_MAX: Final = 80


class FileError(UserError):
    """Files that cannot be read, or are wrong. The message begins with `FILE:LINE:`."""


class Node(msgspec.Struct, frozen=True):
    """A value in a file. The line of a mapping's value is that of its key."""

    file: str
    line: int
    value: str | list[Node] | dict[str, Node] | None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def error(self, message: str) -> FileError:
        return FileError(f"{self}: {message}")

    def text(self, what: str) -> str:
        """A text that is not empty. Raises FileError."""
        if not isinstance(self.value, str) or not self.value:
            raise self.error(f"{what} must be a text, not {self._kind()}")
        return self.value

    def number(self, what: str, low: int = 1, high: int = INT32_MAX) -> int:
        """A whole number within limits. Raises FileError."""
        given = self.value if isinstance(self.value, str) else ""
        if not _WHOLE.fullmatch(given) or not low <= int(given) <= high:
            raise self.error(f"{what} must be a whole number from {low} to {high}, not {self._kind()}")
        return int(given)

    def items(self, what: str) -> list[Node]:
        """The nodes of a list, which may be empty. Raises FileError."""
        if self.value is not None and not isinstance(self.value, list):
            raise self.error(f"{what} must be a list, not {self._kind()}")
        return self.value or []

    def mapping(self, what: str) -> dict[str, Node]:
        """The nodes of a mapping, which may be empty. Raises FileError."""
        if self.value is not None and not isinstance(self.value, dict):
            raise self.error(f"{what} must be a mapping, not {self._kind()}")
        return self.value or {}

    def keys(self, what: str, allowed: Collection[str]) -> dict[str, Node]:
        """The nodes of a mapping that may have only these keys. Raises FileError."""
        found = self.mapping(what)
        for key, node in found.items():
            if key not in allowed:
                known = suggestion(key, allowed) or f"; allowed: {', '.join(allowed)}"
                raise node.error(f"{shortened(key, _QUOTED_CHARS_MAX)}: unknown key of {what}{known}")
        return found

    def _kind(self) -> str:
        if isinstance(self.value, str):
            return repr(shortened(self.value, _QUOTED_CHARS_MAX))
        return "empty" if self.value is None else "a list" if isinstance(self.value, list) else "a mapping"


def files_of(given: Iterable[Path]) -> list[Path]:
    """The files, and those in folders below: all that end in .yaml or .yml. Raises FileError for a folder without."""
    found: dict[Path, None] = {}
    for path in given:
        inside = sorted(one for one in path.rglob("*") if one.suffix in _SUFFIXES and one.is_file())
        if path.is_dir() and not inside:
            raise FileError(f"{path}: the folder has no .yaml or .yml files")
        found |= dict.fromkeys(inside if path.is_dir() else [path])
    return list(found)


def documents(path: Path) -> Iterator[Node]:
    """The documents of a file that are not empty. Raises FileError."""
    try:
        text = read_text(path, FILE_BYTES_MAX)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error_text(error)}") from None
    except UnicodeDecodeError:
        raise FileError(f"{path}: is not UTF-8") from None
    try:
        events = yaml.parse(text, Loader=yaml.CSafeLoader)
        for event in events:
            if isinstance(event, yaml.NodeEvent):
                document = _node(str(path), event, events)
                if document.value is not None:
                    yield document
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = text[: getattr(error, "position", 0)].count("\n") + 1 if mark is None else mark.line + 1
        why = getattr(error, "problem", None) or getattr(error, "reason", None) or "it is not YAML"
        raise FileError(f"{path}:{line}: {why}") from None


def _node(file: str, event: yaml.Event, events: Iterator[yaml.Event], depth: int = 0, line: int = 0) -> Node:
    """The value that begins with this event, with all values in it. Raises FileError."""
    line = line or event.start_mark.line + 1
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        at = f"{file}:{event.start_mark.line + 1}"
        raise FileError(f"{at}: anchors and aliases are not allowed: use `templates`")
    if isinstance(event, yaml.ScalarEvent):
        is_null = not event.style and event.value in _NULLS
        return Node(file, line, None if is_null else event.value)
    if depth == DEPTH_MAX:
        raise FileError(f"{file}:{line}: lists and mappings are nested more than {DEPTH_MAX} deep")
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Node] = []
        while not isinstance(inner := next(events), yaml.SequenceEndEvent):
            items.append(_node(file, inner, events, depth + 1))
        return Node(file, line, items)
    found: dict[str, Node] = {}
    while not isinstance(inner := next(events), yaml.MappingEndEvent):
        key = _node(file, inner, events, depth + 1)
        text = key.text("a key")
        if text in found:
            raise key.error(f"{shortened(text, _QUOTED_CHARS_MAX)}: given twice, first in line {found[text].line}")
        found[text] = _node(file, next(events), events, depth + 1, key.line)
    return Node(file, line, found)
