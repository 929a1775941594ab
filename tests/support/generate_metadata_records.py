"""Writes `controller/brokers/kraft/metadata_records/` from the schemas in Kafka's own jar.

`python -m tests.support.generate_metadata_records` writes the modules anew; `modules()` gives their texts, which a test
compares with what is checked in. The classes are in kio's style: one frozen dataclass for each record, nested entity
and version, each field with its kind on the wire; ids are sixteen bytes, as everywhere in this project.
"""

from __future__ import annotations

import json
import re
import textwrap
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support import tools

JAR = tools.CACHE / f"java/kafka-server-{tools.KAFKA_SERVER}/kafka-metadata-{tools.KAFKA_SERVER}.jar"
FOLDER = tools.ROOT / "controller/brokers/kraft/metadata_records"
LINE = 120
_KINDS = {
    "bool": "bool",
    "bytes": "bytes",
    "float64": "float",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "int",
    "string": "str",
    "uint16": "int",
    "uuid": "bytes",
}
_EMPTY = {"bool": "False", "bytes": 'b""', "float": "0.0", "int": "0", "str": '""'}


def schemas(jar: Path) -> Iterator[dict[str, Any]]:
    """The schemas of all metadata records in Kafka's jar, by name."""
    with zipfile.ZipFile(jar) as archive:
        for name in sorted(archive.namelist()):
            if name.startswith("common/metadata/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                yield json.loads(text)


def modules(jar: Path) -> Mapping[str, str]:
    """The text of each generated module, by file name."""
    texts: dict[str, str] = {}
    rows: list[str] = []
    imports: list[str] = []
    for schema in schemas(jar):
        name = schema["name"]
        module = _snake(name)
        low, high = _versions(schema["validVersions"], 0)
        texts[f"{module}.py"] = _module(schema, low, high)
        classes = [f"{name}V{version}" for version in range(low, high + 1)]
        imports.append(f"from controller.brokers.kraft.metadata_records.{module} import {', '.join(classes)}\n")
        rows += [f"    ({schema['apiKey']}, {version}): {name}V{version},\n" for version in range(low, high + 1)]
    texts["table.py"] = _table(imports, rows)
    return texts


def _table(imports: list[str], rows: list[str]) -> str:
    head = '"""Every metadata record by its key and version. Generated from Kafka\'s schemas."""\n\n'
    body = "\nRECORDS: dict[tuple[int, int], type] = {\n"
    return head + "".join(imports) + body + "".join(rows) + "}\n"


def _module(schema: dict[str, Any], low: int, high: int) -> str:
    name = schema["name"]
    out = [
        f'"""`{name}`. Generated from Kafka\'s `common/metadata/{name}.json`."""\n\n',
        f"from dataclasses import dataclass{', field' if schema['fields'] else ''}\nfrom typing import ClassVar\n",
    ]
    for version in range(low, high + 1):
        out += _classes(schema["name"], schema["fields"], schema, version, schema.get("about", f"A `{name}`."))
    return "".join(out)


def _classes(name: str, fields: list[dict[str, Any]], schema: dict[str, Any], version: int, about: str) -> list[str]:
    here = [each for each in fields if _has(each["versions"], version)]
    out: list[str] = []
    for each in here:
        if "fields" in each:
            out += _classes(_element(each["type"]), each["fields"], schema, version, f"Part of `{schema['name']}`.")
    flexible = _has(schema["flexibleVersions"], version)
    out.append(f"\n\n@dataclass(frozen=True, slots=True, kw_only=True)\nclass {name}V{version}:\n")
    out.append(f'    """{about.rstrip(".")}; version {version}."""\n\n')
    out.append(f"    __version__: ClassVar[int] = {version}\n    __flexible__: ClassVar[bool] = {flexible}\n")
    if name == schema["name"]:
        out.append(f"    __api_key__: ClassVar[int] = {schema['apiKey']}\n")
    for each in here:
        out.append(_field(each, version))
    return out


def _field(schema: dict[str, Any], version: int) -> str:
    kind = _element(schema["type"])
    is_array = schema["type"].startswith("[]")
    base = _KINDS.get(kind, f"{kind}V{version}")
    nullable = "nullableVersions" in schema and _has(schema["nullableVersions"], version)
    type_ = f"tuple[{base}, ...]" if is_array else base
    metadata = [f'"kafka_type": "{kind}"'] if kind in _KINDS else []
    if "taggedVersions" in schema and _has(schema["taggedVersions"], version):
        metadata.append(f'"tag": {schema["tag"]}')
    default = _default(schema, base, kind, is_array)
    about = schema.get("about", "")
    line = f"    {_snake(schema['name'])}: {type_}{' | None' if nullable else ''} = field("
    line += f"metadata={{{', '.join(metadata)}}}, default={default})\n"
    return line + (f'    """{_wrapped(about)}"""\n' if about else "")


def _wrapped(about: str) -> str:
    return "\n    ".join(textwrap.wrap(about, LINE - 10))


def _default(schema: dict[str, Any], base: str, kind: str, is_array: bool) -> str:
    given = schema.get("default")
    if given == "null":
        return "None"
    if is_array:
        return "()"
    if kind == "uuid":
        return "bytes(16)"
    if given is None:
        return _EMPTY[base]
    return str(given).capitalize() if kind == "bool" else json.dumps(given) if kind == "string" else str(given)


def _element(type_: str) -> str:
    return type_.removeprefix("[]")


def _has(versions: str, version: int) -> bool:
    low, high = _versions(versions, 99)
    return low <= version <= high


def _versions(text: str, open_end: int) -> tuple[int, int]:
    if text == "none":
        return 1, 0
    low, dash, high = text.partition("-")
    if low.endswith("+"):
        return int(low[:-1]), open_end or int(low[:-1])
    return int(low), int(high) if dash else int(low)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?<![A-Z])(?=[A-Z])", "_", name).lower()


def main() -> None:
    """Write the modules."""
    jar = JAR
    for name, text in modules(jar).items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
