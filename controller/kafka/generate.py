"""Writes the message classes, one module for each family of APIs and one for the records of the metadata log, from the
layouts of `controller.kafka.schema`.

    python -m controller.kafka.generate

A message class covers all versions of an entity, so that handlers do not depend on versions: it has every field of
every version, with Kafka's default and the versions that have the field.

The modules are not under version control. The build of the package writes them; so does the first import in a checkout.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from controller.kafka.api_keys import FAMILIES, GENERATED, ApiKey, Family
from controller.kafka.schema import RECORDS, Field, Kind, Layout, layout_of

SECRETS: Final = frozenset({"auth_bytes", "hmac", "salted_password", "server_key", "stored_key"})
"""Fields whose values never appear in the text of a message."""

_TYPES: Final[Mapping[Kind | None, str]] = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
}


class _Message(NamedTuple):
    """A message, and its supported versions."""

    name: str
    family: Family
    min_version: int
    max_version: int


@dataclass
class _Field:
    """A field of a message class, merged from all versions; `nullable` is True if any version allows null."""

    newest: Field
    versions: list[tuple[_Message, int]] = dataclasses.field(default_factory=list)
    nullable: bool = False

    def lines(self) -> Iterator[str]:
        yield f"    {self.newest.name}: {self._type()} = {self._default()}"
        versions = self._versions()
        if versions:
            yield f'    """{versions}"""'

    def _type(self) -> str:
        entity = self.newest.entity
        inner = _TYPES.get(self.newest.kind, "int") if entity is None else entity.message
        return (f"tuple[{inner}, ...]" if self.newest.is_array else inner) + (" | None" if self.nullable else "")

    def _default(self) -> str:
        field = self.newest
        if field.is_array:  # Kafka's schema means an empty array; in requests null means all elements
            is_request = self.versions[0][0].name.endswith("Request")
            return "None" if self.nullable and is_request else repr(field.default)
        if field.entity is not None and field.default is not None:
            return f"{field.entity.message}({', '.join(f'{name}={value!r}' for name, value in field.default)})"
        return "ZERO_UUID" if field.kind == "uuid" else repr(field.default)

    def _versions(self) -> str:
        """The versions that have the field; empty if all versions have it, or if several APIs share the class."""
        message, versions = self.versions[0][0], [version for _, version in self.versions]
        supported = range(message.min_version, message.max_version + 1)
        if {other for other, _ in self.versions} != {message} or len(versions) >= len(supported):
            return ""
        first, last = min(versions), max(versions)
        return f"From v{first} on." if last == message.max_version else f"From v{first} to v{last}."


@dataclass
class _Class:
    family: Family
    fields: dict[str, _Field] = dataclasses.field(default_factory=dict)

    def lines(self, name: str) -> Iterator[str]:
        record = RECORDS.get(name)
        key = None if record is None else record.api_key
        base = "Message" if key is None else f"MetadataRecord, tag={key}"
        yield f"class {name}({base}, frozen=True, kw_only=True):"
        if record is not None and record.about:
            yield f'    """{record.about}"""'
        for field in self.fields.values():
            yield from field.lines()
        if SECRETS & self.fields.keys():
            yield f'    def __repr__(self) -> str:\n        return "{name}(hidden)"'
        if not self.fields:
            yield "    pass"


def generate() -> None:
    """Write the modules of `GENERATED` into `messages/`."""
    for path, source in zip(GENERATED, sources(), strict=True):
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(source, encoding="utf-8")
        new.replace(path)  # atomically, because another process may import the module


def sources() -> list[str]:
    """The source text of each module of `GENERATED`."""
    classes: dict[str, _Class] = {}
    aliases = {}
    for message in _messages():
        for version in range(message.max_version, message.min_version - 1, -1):
            _collect(layout := layout_of(message.name, version, str), message, version, classes)
        aliases[message.name] = layout.message
    return ["\n".join(_module(family, classes, aliases)) for family in FAMILIES]


def _messages() -> Iterator[_Message]:
    for key in sorted(ApiKey, key=lambda key: (FAMILIES.index(key.family), key)):
        for direction in ("Request", "Response"):
            yield _Message(key.api_name + direction, key.family, key.min_version, key.max_version)
    for record in RECORDS.values():
        yield _Message(record.name, "records", 0, record.max_version)


def _collect(layout: Layout, message: _Message, version: int, classes: dict[str, _Class]) -> None:
    fields = (*layout.fields, *layout.tagged)
    for field in fields:
        if field.entity is not None:
            _collect(field.entity, message, version, classes)
    known = classes.setdefault(layout.message, _Class(message.family)).fields
    for field in fields:
        merged = known.setdefault(field.name, _Field(field))
        merged.versions.append((message, version))
        merged.nullable |= field.nullable


def _module(family: Family, classes: Mapping[str, _Class], aliases: Mapping[str, str]) -> Iterator[str]:
    own = {name: one for name, one in classes.items() if one.family == family}
    yield f'"""Messages about {family}, generated by controller/kafka/generate.py. Do not edit."""'
    yield "from __future__ import annotations"
    by_hand = "Message, MetadataRecord as MetadataRecord, UnknownRecord as UnknownRecord"  # modules re-export records
    yield f"from controller.kafka.messages.message import {by_hand}"
    yield "from controller.kafka.schema import ZERO_UUID"
    used = {each.newest.entity.message for one in own.values() for each in one.fields.values() if each.newest.entity}
    for name in sorted(used - own.keys()):
        yield f"from controller.kafka.messages.{classes[name].family} import {name}"
    for name, one in own.items():
        yield from ("", "", *one.lines(name))
    yield from (f"{name} = {of}" for name, of in aliases.items() if name != of and of in own)


if __name__ == "__main__":
    generate()
