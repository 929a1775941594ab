"""Reads properties files like java.util.Properties, so that a broker's server.properties can be used.

Comments begin with `#` or `!`; a key ends at `=`, `:` or a blank; a backslash at the end of a line continues it. `\\t`,
`\\n`, `\\r`, `\\f` and `\\uXXXX` are escapes, and any other escaped character is itself. Unlike Java, which reads
Latin-1, files are UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from events.logs.log import read_text

FILE_BYTES_MAX = 1 << 20
_BLANKS = " \t\f"
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(msgspec.Struct, frozen=True):
    """A key, its value, and the number of its first line."""

    key: str
    value: str
    line: int


class PropertiesError(ValueError):
    """A file cannot be read or is invalid; the message has the line and the reason."""


def read_properties(text: str) -> list[Property]:
    """Returns all properties in order, with duplicate keys. Raises PropertiesError."""
    return [_property(line, number) for number, line in _logical_lines(text)]


def read_file(file: Path) -> list[Property]:
    """Returns the properties of a file, their values without surrounding blanks. Raises PropertiesError."""
    try:
        read = read_properties(read_text(file, FILE_BYTES_MAX))
    except PropertiesError as error:
        raise PropertiesError(f"cannot be read: {error}") from None
    except OSError as error:
        raise PropertiesError(f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise PropertiesError(f"cannot be read: not UTF-8 at byte {error.start}") from None
    return [msgspec.structs.replace(each, value=each.value.strip()) for each in read]


def read_values(file: Path) -> dict[str, str]:
    """Returns the values of a file by key; the last value of a key counts. Raises PropertiesError."""
    return {each.key: each.value for each in read_file(file)}


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Joins continued lines, and skips comments and empty lines."""
    begun, joined = 0, ""
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.lstrip(_BLANKS)
        if not begun and (not line or line[0] in "#!"):
            continue
        begun = begun or number
        joined += line
        backslashes = len(joined) - len(joined.rstrip("\\"))
        if line.endswith("\\") and backslashes % 2:
            joined = joined[:-1]
            continue
        yield begun, joined
        begun, joined = 0, ""
    if begun:
        yield begun, joined


def _property(line: str, number: int) -> Property:
    key = _KEY.match(line)
    assert key is not None, "the pattern of a key matches the empty text"
    separator = _SEPARATOR.match(line, key.end())
    assert separator is not None, "the pattern of a separator matches the empty text"
    return Property(_unescaped(key[0], number), _unescaped(line[separator.end() :], number), number)


def _unescaped(text: str, number: int) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise PropertiesError(f"line {number}: \\u must be followed by four hexadecimal digits")
        return _CONTROL.get(escaped, escaped)

    return _ESCAPE.sub(character, text) if "\\" in text else text
