"""Responses of Kafka 4.3 and 4.4 about topic configs, recorded in tests/golden."""

from pathlib import Path

import msgspec

_FOLDER = Path(__file__).parents[2] / "golden"


class SynonymRow(msgspec.Struct, frozen=True):
    name: str
    type: str
    default: str | None
    unit: int


class TableRow(msgspec.Struct, frozen=True):
    name: str
    type: str
    default: str | None
    allowed: str
    internal: bool
    sensitive: bool
    synonyms: tuple[SynonymRow, ...]


class Alone(msgspec.Struct, frozen=True):
    """Accepted values of one config, and rejected values with Kafka's messages."""

    accepted: tuple[str, ...]
    refused: dict[str, str]


class Together(msgspec.Struct, frozen=True):
    """Several configs of a topic with `existing` configs, on a broker with `server`; `refused` is None if accepted."""

    existing: dict[str, str]
    configs: dict[str, str]
    server: dict[str, str]
    tiered: bool
    refused: str | None


class CreatedEntry(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool


class DescribedEntry(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: str
    type: str
    synonyms: tuple[tuple[str, str | None, str], ...]


class View(msgspec.Struct, frozen=True):
    """The responses of CreateTopics and DescribeConfigs for a topic with `configs` on a broker with `server`."""

    server: dict[str, str]
    configs: dict[str, str]
    created: tuple[CreatedEntry, ...]
    described: tuple[DescribedEntry, ...]


class Alter(msgspec.Struct, frozen=True):
    """The result of `ops` (name, operation, value) on a topic with the configs `before`."""

    before: dict[str, str]
    ops: tuple[tuple[str, str, str | None], ...]
    error: str | None
    message: str | None
    after: dict[str, str] | None


class Golden(msgspec.Struct, frozen=True):
    kafka: str
    table: tuple[TableRow, ...]
    alone: dict[str, Alone]
    together: tuple[Together, ...]
    views: tuple[View, ...]
    alter: tuple[Alter, ...]


class Since(msgspec.Struct, frozen=True):
    """Additions of a newer Kafka release; `names` has all its configs in order."""

    kafka: str
    names: tuple[str, ...]
    table: tuple[TableRow, ...]
    alone: dict[str, Alone]
    together: tuple[Together, ...]


_KAFKA_43 = msgspec.json.decode((_FOLDER / "kafka-4.3-topic-configs.json").read_bytes(), type=Golden)
KAFKA_44 = msgspec.json.decode((_FOLDER / "kafka-4.4-topic-configs.json").read_bytes(), type=Since)
_ROWS = {row.name: row for row in (*_KAFKA_43.table, *KAFKA_44.table)}
KAFKA = msgspec.structs.replace(
    _KAFKA_43,
    kafka=KAFKA_44.kafka,
    table=tuple(_ROWS[name] for name in KAFKA_44.names),
    alone=_KAFKA_43.alone | KAFKA_44.alone,
    together=_KAFKA_43.together + KAFKA_44.together,
)
