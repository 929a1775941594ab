"""Writes the message classes, one module for each family of APIs and one for the records of the metadata log, from
Kafka's schemas.

    python -m controller.kafka.generate

A message class covers all versions of an entity, so that handlers do not depend on versions: it has every field of
every version, with Kafka's default and the versions that have the field.

The modules are not under version control. The build of the package writes them; so does the first import in a checkout.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from controller.kafka.api_keys import FAMILIES, GENERATED, RENAMED, ApiKey, Family
from controller.kafka.schema import RECORDS, SCHEMAS, FieldSchema, Kind, has_version

SECRETS: Final = frozenset({"auth_bytes", "hmac", "salted_password", "server_key", "stored_key"})
"""Fields whose values never appear in the text of a message."""

_TYPES: Final[Mapping[Kind | None, tuple[str, str]]] = {
    "bool": ("bool", "False"),
    "float64": ("float", "0.0"),
    "string": ("str", "''"),
    "bytes": ("bytes", "b''"),
    "uuid": ("bytes", "ZERO_UUID"),
}
"""The type of a kind of field, and its default without one in the schema; other kinds are integers."""


class _Message(NamedTuple):
    """A message and its supported versions."""

    name: str
    family: Family
    supported: range

    def class_of(self, entity: str) -> str:
        return RENAMED.get(self.name, {}).get(entity, entity)


@dataclass
class _Field:
    """A field of a message class. It is nullable if any version of any message allows null."""

    schema: FieldSchema
    message: _Message
    versions: Sequence[int]
    nullable: bool
    is_shared: bool = False
    """True if several messages have the class."""

    def lines(self) -> Iterator[str]:
        schema, newest = self.schema, self.versions[-1]
        inner = _TYPES.get(schema.kind, ("int", "0"))[0] if schema.kind else self.message.class_of(schema.entity)
        type_ = (f"tuple[{inner}, ...]" if schema.is_array else inner) + (" | None" if self.nullable else "")
        # Kafka's schema means an empty array by no default; in requests null means all elements.
        is_all = schema.is_array and self.nullable and self.message.name.endswith("Request")
        yield f"    {schema.own_name}: {type_} = {None if is_all else _default(schema, self.message, newest)}"
        if len(self.versions) < len(self.message.supported) and not self.is_shared:
            ends = "on" if newest == self.message.supported[-1] else f"to v{newest}"
            yield f'    """From v{self.versions[0]} {ends}."""'


def _default(field: FieldSchema, message: _Message, version: int) -> str:
    if field.default is not None:
        return repr(msgspec.json.decode(field.default))
    if field.is_array or has_version(field.nullable_versions, version):
        return "()" if field.is_array else "None"
    if field.kind is not None:
        return _TYPES.get(field.kind, ("int", "0"))[1]
    there = (each for each in field.fields if has_version(each.versions, version))
    defaults = (f"{each.own_name}={_default(each, message, version)}" for each in there)
    return f"{message.class_of(field.entity)}({', '.join(defaults)})"


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
    messages = [
        _Message(key.api_name + direction, key.family, range(key.min_version, key.max_version + 1))
        for key in sorted(ApiKey, key=lambda key: (FAMILIES.index(key.family), key))
        for direction in ("Request", "Response")
    ]
    messages += [_Message(each.name, "records", range(each.max_version + 1)) for each in RECORDS.values()]
    for message in messages:
        _collect(message.name, SCHEMAS[message.name].fields, message, message.supported, classes)
    aliases = {message.name: message.class_of(message.name) for message in messages}
    return ["\n".join(_module(family, classes, aliases)) for family in FAMILIES]


def _collect(
    entity: str, fields: Sequence[FieldSchema], message: _Message, versions: Sequence[int], classes: dict[str, _Class]
) -> None:
    found: list[_Field] = []
    for each in fields:
        there = [version for version in versions if has_version(each.versions, version)]
        if there:
            found.append(_Field(each, message, there, any(has_version(each.nullable_versions, one) for one in there)))
            if each.kind is None:
                _collect(each.entity, each.fields, message, there, classes)
    known = classes.setdefault(message.class_of(entity), _Class(message.family)).fields
    for field in found:
        first = known.setdefault(field.schema.own_name, field)
        first.nullable |= field.nullable
        first.is_shared |= first.message != field.message


def _module(family: Family, classes: Mapping[str, _Class], aliases: Mapping[str, str]) -> Iterator[str]:
    own = {name: one for name, one in classes.items() if one.family == family}
    yield f'"""Messages about {family}, generated by controller/kafka/generate.py. Do not edit."""'
    yield "from __future__ import annotations"
    by_hand = "Message, MetadataRecord as MetadataRecord, UnknownRecord as UnknownRecord"  # modules re-export records
    yield f"from controller.kafka.messages.message import {by_hand}"
    yield "from controller.kafka.schema import ZERO_UUID"
    fields = (each for one in own.values() for each in one.fields.values() if each.schema.kind is None)
    for name in sorted({each.message.class_of(each.schema.entity) for each in fields} - own.keys()):
        yield f"from controller.kafka.messages.{classes[name].family} import {name}"
    for name, one in own.items():
        yield from ("", "", *one.lines(name))
    yield from (f"{name} = {of}" for name, of in aliases.items() if name != of and of in own)


if __name__ == "__main__":
    generate()
