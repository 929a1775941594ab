"""Random messages of every API and version, and their equivalents in kio and kafka-python."""

import dataclasses
import importlib
import io
import random
import uuid
import warnings
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from controller.kafka.codec.codec import load_layout
from controller.kafka.messages import APIS, OPERATIONS_OMITTED, ZERO_UUID, ApiKey, Message
from controller.kafka.schema import Direction, Field, Kind, Layout

_DIRECTIONS: tuple[Direction, ...] = ("request", "response")
EVERY_VERSION = [
    (int(api.key), version, direction)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    for direction in _DIRECTIONS
]
EVERY_VERSION_IDS = [f"{APIS[key].name}-v{version}-{direction}" for key, version, direction in EVERY_VERSION]

_BITS: dict[Kind, int] = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
_TEXTS = ("", "a", "topic-1", "x" * 300, "é\0\u202e", "\U0001f600 two")


def samples(api_key: int, version: int, direction: Direction, count: int) -> list[Message]:
    """Returns messages with random values in the fields of that version, and defaults in others."""
    layout = load_layout(api_key, version, direction)
    return [_sample(layout) for _ in range(count)]


def _sample(layout: Layout) -> Any:
    drawn = (*layout.fields, *(field for field in layout.tagged if random.random() < 0.6))
    return layout.message(**{field.name: _value(field) for field in drawn})


def _value(field: Field) -> Any:
    if field.nullable and random.random() < 0.25:
        return None
    if field.is_array:
        counts = (0, 1, 3) if field.entity is not None else (0, 1, 3, 8, 9, 12)
        return tuple(_one(field) for _ in range(random.choice(counts)))
    return _one(field)


def _one(field: Field) -> Any:
    if field.entity is not None:
        return _sample(field.entity)
    if field.name.endswith("error_code"):
        return int(random.choice(list(ErrorCode)))
    if field.name.endswith("authorized_operations") and field.kind == "int32":
        # kafka-python encodes these as a set of bits, and does not know all bits.
        return random.choice([OPERATIONS_OMITTED, 0, 0b1111111111000])
    if field.name.endswith("_ms") and field.kind == "int64":
        # kio uses datetime or timedelta, whose range is smaller.
        return random.choice((0, random.randrange(10**13)))
    match field.kind:
        case "bool":
            return random.random() < 0.5
        case "string":
            return random.choice(_TEXTS)
        case "bytes":
            return random.randbytes(random.choice((0, 1, 40, 200)))
        case "float64":
            return random.choice((0.0, -1.5, random.random() * 10**9, float("inf")))
        case "uuid":
            return random.choice((ZERO_UUID, random.randbytes(16)))
        case kind:
            assert kind is not None, "only entities have no kind"
            low = 0 if kind.startswith("uint") else -(1 << _BITS[kind] - 1)
            high = low + (1 << _BITS[kind]) - 1
            return random.choice((low, high, 0, 1, random.randint(low, high)))


KIO_LACKS = frozenset({
    (ApiKey.CREATE_TOPICS, 0), (ApiKey.CREATE_TOPICS, 1), (ApiKey.DELETE_TOPICS, 0), (ApiKey.DESCRIBE_CONFIGS, 0),
    (ApiKey.API_VERSIONS, 5), (ApiKey.UNREGISTER_CONTROLLER, 0),
})  # fmt: skip
"""APIs and versions that Kafka 4.3 does not have."""


def kio_class(api_key: int, version: int, direction: Direction) -> Any:
    """Returns kio's class of a message, for one version."""
    module = importlib.import_module(f"kio.schema.{APIS[api_key].key.name.lower()}.v{version}.{direction}")
    return getattr(module, APIS[api_key].name + direction.capitalize())


def kio_bytes(api_key: int, version: int, direction: Direction, message: Message) -> bytes:
    """Returns the bytes that kio writes for the equivalent message."""
    entity = kio_class(api_key, version, direction)
    out = io.BytesIO()
    entity_writer(entity)(out, _as_kio(entity, message))
    return out.getvalue()


def kafkas_name(field: dataclasses.Field[Any]) -> str:
    """Kafka's name of a field in kio, where times have no unit."""
    is_time = str(field.metadata.get("kafka_type", "")).startswith(("timedelta", "datetime"))
    return field.name.rstrip("_") + ("_ms" if is_time else "")


def _as_kio(entity: Any, message: Any) -> Any:
    values = {}
    for field in dataclasses.fields(entity):
        kind = str(field.metadata.get("kafka_type", ""))
        values[field.name] = _kio_value(field, kind, getattr(message, kafkas_name(field)))
    return entity(**values)


def _kio_value(field: dataclasses.Field[Any], kind: str, value: Any) -> Any:
    nested = next((arg for arg in leaves(field.type) if dataclasses.is_dataclass(arg)), None)
    if value is None:
        return None
    if nested is not None:
        is_array = isinstance(value, tuple)
        return tuple(_as_kio(nested, one) for one in value) if is_array else _as_kio(nested, value)
    if kind == "uuid":
        one = _kio_uuid
        return tuple(map(one, value)) if isinstance(value, tuple) else one(value)
    if kind == "error_code":
        return ErrorCode(value)
    if kind.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if kind.startswith("datetime"):
        return None if value == -1 else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
    return value


def _kio_uuid(value: bytes) -> uuid.UUID | None:
    return None if value == ZERO_UUID else uuid.UUID(bytes=value)


def leaves(type_: Any) -> list[Any]:
    """Returns the types of which a type is composed."""
    arguments = getattr(type_, "__args__", None)
    return [type_] if arguments is None else [inner for arg in arguments for inner in leaves(arg)]


KAFKA_PYTHON_LACKS = frozenset({
    ApiKey.FETCH, ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE, ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.UNREGISTER_BROKER, ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS, ApiKey.UPDATE_FEATURES, ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.UPDATE_RAFT_VOTER,
    ApiKey.CONTROLLER_REGISTRATION, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.STREAMS_GROUP_DESCRIBE, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_GROUPS,  # it parses the bytes of members
})  # fmt: skip
"""Compared APIs that kafka-python lacks, so that kio is the only oracle."""


OF_KAFKA_44 = frozenset({(ApiKey.API_VERSIONS, 5), (ApiKey.UNREGISTER_CONTROLLER, 0)})
"""APIs and versions that neither library has. Kafka's schemas and clients are the oracles."""


def kafka_python_bytes(api_key: int, version: int, direction: Direction, message: Message) -> bytes:
    """Returns the bytes that kafka-python writes for the equivalent message."""
    layout = load_layout(api_key, version, direction)
    like = _as_kafka_python(_kafka_python_class(api_key, direction), layout, message, version)
    return bytes(like.encode(version=version))


@cache
def _kafka_python_class(api_key: int, direction: Direction) -> Any:
    name = APIS[api_key].name + direction.capitalize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python loads its schemas with a deprecated call
        parts = ("admin", "consumer", "metadata", "producer", "sasl")
        modules = [importlib.import_module(f"kafka.protocol.{part}") for part in parts]
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def _as_kafka_python(kind: Any, layout: Layout, message: Any, version: int) -> Any:
    theirs = kind._struct.fields
    values = {}
    for field in layout.fields + layout.tagged:
        value: Any = getattr(message, field.name)
        if field.tag is not None and value == getattr(layout.message(), field.name):
            continue  # kafka-python writes a tagged entity even if it equals the default
        if field.name in theirs:
            values[field.name] = _kafka_python_value(theirs[field.name], field, value, version)
        else:
            # kafka-python has another name, and a set of bits.
            bits = {bit for bit in range(31) if value >> bit & 1}
            values["authorized_operations"] = None if value == OPERATIONS_OMITTED else bits
    return kind(version=version, **values)


def _kafka_python_value(theirs: Any, field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.entity is not None:
        inner = theirs.data_class
        if not field.is_array:
            return _as_kafka_python(inner, field.entity, value, version)
        return [_as_kafka_python(inner, field.entity, item, version) for item in value]
    if field.kind == "uuid":
        return uuid.UUID(bytes=value)
    return list(value) if field.is_array else value
