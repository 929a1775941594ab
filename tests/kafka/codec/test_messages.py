"""Messages compared with kio's classes: the same fields and defaults in every version."""

from __future__ import annotations

import dataclasses
import json
import re
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from controller.kafka.api_keys import GENERATED
from controller.kafka.codec.codec import load_schema
from controller.kafka.generate import sources
from controller.kafka.messages import APIS, ZERO_UUID, Message
from controller.kafka.messages.access import SaslAuthenticateRequest, ScramCredentialUpsertion
from controller.kafka.schema import OWN, Direction, Field, Kind, Layout, load_entity
from tests.kafka.codec.samples import EVERY_VERSION, EVERY_VERSION_IDS, OF_KAFKA_44, leaves
from tests.support.tools import server_classpath

WANTED_DEFAULTS = {
    # Fetch has -1, FetchSnapshot 0; FetchSnapshot's own fields default to an entity of zeros.
    ("FetchSnapshotId", "end_offset"): -1,
    ("FetchSnapshotId", "epoch"): -1,
    ("LeaderIdAndEpoch", "leader_id"): -1,
    ("LeaderIdAndEpoch", "leader_epoch"): -1,
}


def test_generated_modules_are_current() -> None:
    for path, source in zip(GENERATED, sources(), strict=True):
        assert path.read_text() == source, "run python -m controller.kafka.generate"


def test_secrets_are_not_in_the_repr_of_a_message() -> None:
    assert repr(SaslAuthenticateRequest(auth_bytes=b"secret")) == "SaslAuthenticateRequest(hidden)"
    assert "secret" not in repr(ScramCredentialUpsertion(salted_password=b"secret"))


@pytest.mark.parametrize(("api_key", "version", "direction"), EVERY_VERSION, ids=EVERY_VERSION_IDS)
def test_every_field_of_every_version_has_kafkas_default(api_key: int, version: int, direction: Direction) -> None:
    if (api_key, version) in OWN:
        return
    layout = load_schema(api_key, version, direction).layout
    _compare(load_entity(api_key, version, direction), layout, direction)


def _compare(entity: Any, layout: Layout, direction: Direction) -> None:
    ours = {field.name: field for field in layout.fields + layout.tagged}
    theirs = dataclasses.fields(entity)
    assert len(ours) == len(theirs), f"fields of {entity}"
    for field in theirs:
        kind = str(field.metadata.get("kafka_type", ""))
        own = ours[field.name + "_ms" if kind.startswith(("timedelta", "datetime")) else field.name]
        _compare_defaults(layout.message, field, own, direction)
        if own.entity is not None:
            _compare(next(arg for arg in leaves(field.type) if dataclasses.is_dataclass(arg)), own.entity, direction)


def _compare_defaults(message: type[Message], field: dataclasses.Field[Any], own: Field, direction: Direction) -> None:
    where = f"default of {message.__name__}.{own.name}"
    default = getattr(message(), own.name)
    if (message.__name__, own.name) in WANTED_DEFAULTS:
        assert default is WANTED_DEFAULTS[message.__name__, own.name], where
    elif own.is_array and default is None:
        assert direction == "request" or field.default is None, where
    elif field.default is dataclasses.MISSING:
        assert own.entity is not None or default in (None, 0, False, "", b"", (), ZERO_UUID), where
    elif own.kind == "uuid" and not own.is_array:
        assert (field.default, default) == (None, ZERO_UUID), where
    elif isinstance(field.default, timedelta):
        assert default == field.default / timedelta(milliseconds=1), where
    elif own.entity is None and own.name != "log_append_time_ms":
        assert default == field.default, where


def field_of_kafka(api: str, direction: Direction, version: int) -> list[tuple[str, Kind, bool, bool, int | None]]:
    """Returns name, kind, is_array, nullable and tag of the fields of a version."""
    (jar,) = Path(server_classpath().removesuffix("*")).glob("kafka-clients-*.jar")
    with zipfile.ZipFile(jar) as schemas:
        text = schemas.read(f"common/message/{api}{direction.capitalize()}.json").decode()
    schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    assert _in(version, schema["validVersions"]), f"Kafka supports {api} v{version}"
    assert _in(version, schema["flexibleVersions"]), "the version is flexible"
    return [_field(each, version) for each in schema["fields"] if _in(version, each["versions"])]


def _field(each: dict[str, Any], version: int) -> Any:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", each["name"]).lower()
    kind, is_array = each["type"].removeprefix("[]"), each["type"].startswith("[]")
    return (
        name,
        None if kind[0].isupper() else kind,
        is_array,
        _in(version, each.get("nullableVersions", "none")),
        each.get("tag"),
    )


def _in(version: int, versions: str) -> bool:
    first, _, last = versions.removesuffix("+").partition("-")
    return first.isdigit() and int(first) <= version <= (int(last or first) if versions[-1] != "+" else version)


@pytest.mark.parametrize(("api_key", "version"), sorted(OF_KAFKA_44))
@pytest.mark.parametrize("direction", ["request", "response"])
def test_own_schema_matches_kafka_44(api_key: int, version: int, direction: Direction) -> None:
    schema = load_schema(api_key, version, direction)
    ours = [
        (each.name, each.kind, each.is_array, each.nullable, each.tag)
        for each in (*schema.layout.fields, *schema.layout.tagged)
    ]
    theirs = field_of_kafka(APIS[api_key].name, direction, version)
    assert ours == sorted(theirs, key=lambda each: -1 if each[-1] is None else each[-1])
    assert schema.layout.flexible
