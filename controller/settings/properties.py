"""Reads properties files like java.util.Properties: a broker's server.properties, and clients' librdkafka settings.

`settings.load` and the CLI use this module. Files are UTF-8, while Java reads Latin-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from events.logs.log import read_text

FILE_BYTES_MAX = 1 << 20


class Property(msgspec.Struct, frozen=True):
    """A key, its value without surrounding whitespace, and the number of its first line."""

    key: str
    value: str
    line: int


class PropertiesError(ValueError):
    """A file cannot be read or is invalid; the message has the line and the reason."""


def read_properties(text: str) -> Iterator[Property]:
    """Yields all properties in order, with duplicate keys. Raises PropertiesError."""
    import javaproperties  # takes 60 ms, and most commands read no file

    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                yield Property(element.key, element.value.strip(), line)
            line += len(re.findall(r"\r\n?|\n", element.source))
    except javaproperties.InvalidUEscapeError:
        raise PropertiesError(f"line {line}: \\u must be followed by four hexadecimal digits") from None


def read_file(file: Path) -> list[Property]:
    """Returns the properties of a file. Raises PropertiesError."""
    try:
        return list(read_properties(read_text(file, FILE_BYTES_MAX)))
    except PropertiesError as error:
        raise PropertiesError(f"cannot be read: {error}") from None
    except OSError as error:
        raise PropertiesError(f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise PropertiesError(f"cannot be read: not UTF-8 at byte {error.start}") from None


def read_values(file: Path) -> dict[str, str]:
    """Returns the values of a file by key; the last value of a duplicate key wins. Raises PropertiesError."""
    return {each.key: each.value for each in read_file(file)}
