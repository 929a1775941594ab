"""Writes the message classes, one module for each family of APIs and one for the records of the metadata log, from the
layouts of `controller.kafka.schema`.

    python -m controller.kafka.generate

A message class covers all versions of an entity, so that handlers do not depend on versions: it has every field of
every version, with Kafka's default and the versions that have the field. kio has one class for each version, and
importing them takes 1.4 s of CPU time; importing these classes takes 0.03 s. Kafka's documentation of a field is in
kio's classes.

The modules are not under version control. The build of the package writes them; so does the first import in a checkout.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from controller.kafka.api_keys import FAMILIES, GENERATED, ApiKey, Family
from controller.kafka.schema import RECORDS, Direction, Field, Kind, Layout, Record, read_schema, record_layout

SECRETS: Final = frozenset({"auth_bytes", "hmac", "salted_password", "server_key", "stored_key"})
"""Fields whose values never appear in the text of a message."""

_TYPES: Final[Mapping[Kind | None, str]] = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
}
_DIRECTIONS: Final[tuple[Direction, ...]] = ("request", "response")


@dataclass
class _Field:
    """A field of a message class, merged from all versions; `nullable` is True if any version allows null."""

    newest: Field
    direction: Direction
    versions: list[tuple[ApiKey | Record, int]] = dataclasses.field(default_factory=list)
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
            return "None" if self.nullable and self.direction == "request" else repr(field.default)
        if field.entity is not None and field.default is not None:
            return f"{field.entity.message}({', '.join(f'{name}={value!r}' for name, value in field.default)})"
        return "ZERO_UUID" if field.kind == "uuid" else repr(field.default)

    def _versions(self) -> str:
        """The versions that have the field; empty if all versions have it, or if several APIs share the class."""
        key, versions = self.versions[0][0], [version for _, version in self.versions]
        if {other for other, _ in self.versions} != {key} or len(versions) > key.max_version - key.min_version:
            return ""
        first, last = min(versions), max(versions)
        return f"From v{first} on." if last == key.max_version else f"From v{first} to v{last}."


@dataclass
class _Class:
    family: Family
    fields: dict[str, _Field] = dataclasses.field(default_factory=dict)

    def lines(self, name: str) -> Iterator[str]:
        record = RECORDS.get(name, Record(name))
        base = "Message" if record.api_key is None else f"MetadataRecord, tag={record.api_key}"
        yield f"class {name}({base}, frozen=True, kw_only=True):"
        if record.about:
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
    for key in sorted(ApiKey, key=lambda key: (FAMILIES.index(key.family), key)):
        for direction in _DIRECTIONS:
            for version in range(key.max_version, key.min_version - 1, -1):
                layout = read_schema(key, version, direction, str).layout
                _collect(layout, key, version, direction, classes)
            aliases[key.api_name + direction.capitalize()] = layout.message
    for record in RECORDS.values():
        for version in range(record.max_version, -1, -1):
            _collect(record_layout(record.name, version, str), record, version, "response", classes)
    return ["\n".join(_module(family, classes, aliases)) for family in FAMILIES]


def _collect(
    layout: Layout, key: ApiKey | Record, version: int, direction: Direction, classes: dict[str, _Class]
) -> None:
    fields = (*layout.fields, *layout.tagged)
    for field in fields:
        if field.entity is not None:
            _collect(field.entity, key, version, direction, classes)
    known = classes.setdefault(layout.message, _Class(key.family)).fields
    for field in fields:
        merged = known.setdefault(field.name, _Field(field, direction))
        merged.versions.append((key, version))
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
