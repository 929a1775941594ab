"""Positions of values in the text of rules, for error messages, and values as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn, cast

import msgspec

from controller.machine.rules.rule import RulesError


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a value in the TOML text, for error messages."""

    text: str
    table: str = ""
    number: int = 0
    line: int = 0
    """The line of the table; 0 for a table without a header."""
    name: str = ""
    key: str = ""

    def at(self, key: str) -> Place:
        return msgspec.structs.replace(self, key=f"{self.key}.{key}" if self.key else key)

    def fail(self, value: object, problem: str, allowed: str) -> NoReturn:
        text = "" if value is None else toml_text(value)
        rule = f"{self.table} '{self.name}'" if self.name else f"{self.table} {self.number}" if self.table else ""
        raise RulesError(problem, allowed, line=self._line_of_key(), rule=rule, key=self.key, value=text)

    def _line_of_key(self) -> int:
        """The line of the key in the text, or of the table if the key is not found."""
        if not self.key or (self.table and not self.line):
            return self.line
        header = table_header(self.table)
        wanted = re.compile(rf"\s*[\"']?{re.escape(self.key.partition('.')[0])}[\"']?\s*[=.]")
        for place, line in enumerate(self.text.split("\n")[self.line :], self.line + 1):
            if wanted.match(line):
                return place
            if self.table and header.match(line):
                break
        return self.line


def table_header(table: str) -> re.Pattern[str]:
    return re.compile(rf"\s*\[\[\s*{table}\s*\]\]")


def quoted(name: str) -> str:
    return f'"{name}"' if "." in name else name


def toml_text(value: object) -> str:
    """Formats a value roughly like TOML, for messages and views."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f"'{value}'"
        case dict():
            given = cast("dict[str, object]", value).items()
            pairs = ", ".join(f"{quoted(key)} = {toml_text(one)}" for key, one in given)
            return f"{{ {pairs} }}" if pairs else "{}"
        case list():
            return f"[{', '.join(toml_text(one) for one in cast('Sequence[object]', value))}]"
        case _:
            return str(value)
