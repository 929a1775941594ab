"""The messages of Kafka 4.4 that kio does not have, as the schemas in the jar of Kafka's clients describe them."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from controller.kafka.codec.schema import Direction, Kind, load_schema
from controller.kafka.messages import APIS
from tests.kafka.codec.samples import OF_KAFKA_44
from tests.support.tools import server_classpath


def field_of_kafka(api: str, direction: Direction, version: int) -> list[tuple[str, Kind, bool, bool, int | None]]:
    """Name, kind, and whether it is an array, may be null and is tagged, of the fields of a version."""
    (jar,) = Path(server_classpath().removesuffix("*")).glob("kafka-clients-*.jar")
    with zipfile.ZipFile(jar) as schemas:
        text = schemas.read(f"common/message/{api}{direction.capitalize()}.json").decode()
    schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    assert _in(version, schema["validVersions"]), f"Kafka speaks {api} v{version}"
    assert _in(version, schema["flexibleVersions"]), "so that it is laid out in the newer way"
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
def test_a_layout_of_our_own_is_that_of_kafkas_schema(api_key: int, version: int, direction: Direction) -> None:
    schema = load_schema(api_key, version, direction)
    ours = [
        (each.name, each.kind, each.is_array, each.nullable, each.tag)
        for each in (*schema.layout.fields, *schema.layout.tagged)
    ]
    assert ours == field_of_kafka(APIS[api_key].name, direction, version)
    assert schema.layout.flexible
