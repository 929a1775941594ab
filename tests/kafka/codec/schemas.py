"""Kafka's schemas of the supported messages and records, from its jars.

`python -m tests.kafka.codec.schemas` writes them into controller/kafka/schemas.json. Add an API to `ApiKey` before.
"""

import json
import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from controller.kafka.api_keys import ApiKey
from controller.kafka.schema import RECORDS
from tests.support.tools import KAFKA_SERVER, ROOT, server_classpath

FILE = ROOT / "controller/kafka/schemas.json"
DROPPED = {"DescribeConfigsResponse": "3.9.1"}
"""Schemas of which Kafka 4 dropped a field of an old version: the release that has it."""
_OF_MESSAGES = ("apiKey", "type", "name", "flexibleVersions")
_OF_FIELDS = ("name", "type", "versions", "nullableVersions", "tag", "default")


def text() -> str:
    """The text that `controller/kafka/schemas.json` must have."""
    names = [key.api_name + direction for key in ApiKey for direction in ("Request", "Response")]
    return "[\n" + ",\n".join(f"  {json.dumps(_supported(name))}" for name in (*names, *RECORDS)) + "\n]\n"


def _supported(name: str) -> dict[str, Any]:
    own = RECORDS.get(name)
    folder = "metadata" if own is not None and own.type == "metadata" else "message"
    schema = _schemas(DROPPED.get(name, KAFKA_SERVER), folder)[name]
    shared = {each["name"]: each["fields"] for each in schema.get("commonStructs", ())}
    found: dict[str, Any] = {key: schema[key] for key in _OF_MESSAGES if key in schema}
    if own is not None:  # quorums have only version 0 of control records
        found |= {"validVersions": schema["validVersions"] if folder == "metadata" else "0", "about": own.about}
    return found | {"fields": [_field(each, shared) for each in schema["fields"]]}


@cache
def _schemas(release: str, folder: str) -> dict[str, dict[str, Any]]:
    jar = "kafka-metadata" if folder == "metadata" else "kafka-clients"
    (path,) = Path(server_classpath(release)).parent.glob(f"{jar}-{release}.jar")
    with zipfile.ZipFile(path) as archive:
        files = [one for one in archive.namelist() if re.fullmatch(rf"common/{folder}/\w+\.json", one)]
        texts = [re.sub(r"^\s*//.*$", "", archive.read(one).decode(), flags=re.MULTILINE) for one in files]
    return {each["name"]: each for each in map(json.loads, texts)}


def _field(field: dict[str, Any], shared: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    found = {key: field[key] for key in _OF_FIELDS if key in field}
    if found.pop("default", "") != "":  # as JSON
        text = str(field["default"]).lower()
        found["default"] = str(int(text, 0)) if text.startswith("0x") else text
    inner = field.get("fields", shared.get(field["type"].removeprefix("[]")))
    return found if inner is None else found | {"fields": [_field(each, shared) for each in inner]}


if __name__ == "__main__":
    FILE.write_text(text())
