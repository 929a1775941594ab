"""Reads properties files like java.util.Properties: a broker's server.properties, and clients' librdkafka settings.

`settings.load` and the CLI use this module. Files are UTF-8, while Java reads Latin-1.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from events.errors import UserError
from events.logs.log import read_text

FILE_BYTES_MAX = 1 << 20


class Property(msgspec.Struct, frozen=True):
    """A key, its value without surrounding whitespace, and its origin, such as the file and the first line."""

    key: str
    value: str
    origin: str


class SettingsError(UserError):
    """Invalid settings or properties; the message is for the person who wrote them."""


def read_properties(text: str, file: Path) -> Iterator[Property]:
    """Yields all properties in order, with duplicate keys. Raises ValueError with the line and the reason."""
    import javaproperties  # takes 60 ms, and most commands read no file

    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                yield Property(element.key, element.value.strip(), f"{file}, line {line}")
            line += len(re.findall(r"\r\n?|\n", element.source))
    except javaproperties.InvalidUEscapeError:
        raise ValueError(f"line {line}: \\u must be followed by four hexadecimal digits") from None


def read_file(file: Path, source: str) -> list[Property]:
    """Returns the properties of a file, which `source` names in messages. Raises SettingsError."""
    try:
        return list(read_properties(read_text(file, FILE_BYTES_MAX), file))
    except OSError as error:
        why = error.strerror or str(error)
    except UnicodeDecodeError as error:
        why = f"not UTF-8 at byte {error.start}"
    except ValueError as error:
        why = str(error)
    raise SettingsError(f"{source} cannot be read: {why}")


def read_values(file: Path, source: str) -> dict[str, str]:
    """Returns the values of a file by key; the last value of a duplicate key wins. Raises SettingsError."""
    return {each.key: each.value for each in read_file(file, source)}
