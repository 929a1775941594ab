"""Random messages of every API and version, and their likes in kio's and kafka-python's classes."""

from __future__ import annotations

import dataclasses
import importlib
import io
import uuid
import warnings
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from controller.kafka.codec.schema import Direction, Field, Kind, Layout, load_entity, load_schema, unwrap
from controller.kafka.messages import APIS, OPERATIONS_OMITTED, ZERO_UUID, ApiKey, Message

_DIRECTIONS: tuple[Direction, ...] = ("request", "response")
EVERY_VERSION = [
    (int(api.key), version, direction)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    for direction in _DIRECTIONS
]
EVERY_VERSION_IDS = [f"{APIS[key].name}-v{version}-{direction}" for key, version, direction in EVERY_VERSION]

_BITS: dict[Kind, int] = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.just("x" * 300)


@cache
def messages(api_key: int, version: int, direction: Direction) -> st.SearchStrategy[Message]:
    """Messages with random values in the fields of that version, defaults in all others."""
    return _entities(load_schema(api_key, version, direction).layout)


def _entities(layout: Layout) -> st.SearchStrategy[Any]:
    fields = {field.name: _values(field) for field in layout.fields + layout.tagged if field.is_used}
    return st.builds(layout.message, **fields)


def _values(field: Field) -> st.SearchStrategy[Any]:
    one = _entities(field.entity) if field.entity is not None else _scalars(field)
    values = st.lists(one, max_size=3 if field.entity is not None else 12).map(tuple) if field.is_array else one
    return values | st.none() if field.nullable else values


def _scalars(field: Field) -> st.SearchStrategy[Any]:
    if field.name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode])
    if field.name.endswith("authorized_operations") and field.kind == "int32":
        # kafka-python packs and unpacks these bit by bit, and knows not all of them.
        return st.sampled_from([OPERATIONS_OMITTED, 0, 0b1111111111000])
    if field.name.endswith(("lifetime_ms", "period_ms")):
        # kio has a timedelta, which cannot be any number of milliseconds.
        return st.integers(-86_399_999_999_999, 86_399_999_999_999)
    match field.kind:
        case "bool":
            return st.booleans()
        case "string":
            return _TEXT
        case "bytes":
            return st.binary(max_size=40)
        case "float64":
            return st.floats(allow_nan=False)
        case "uuid":
            return st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16)
        case "uint16" | "uint32":
            return st.integers(0, (1 << int(field.kind.removeprefix("uint"))) - 1)
        case kind:
            assert kind is not None, "only entities have no kind"
            half = 1 << _BITS[kind] - 1
            return st.integers(-half, half - 1)


def kio_bytes(api_key: int, version: int, direction: Direction, message: Message, fills: bool = False) -> bytes:
    """What kio's writer makes of the message's like. Fields that the message does not declare have Kafka's defaults, or
    other values if `fills`."""
    entity = load_entity(api_key, version, direction)
    out = io.BytesIO()
    entity_writer(entity)(out, _as_kio(entity, message, fills))
    return out.getvalue()


def _as_kio(entity: Any, message: Any, fills: bool) -> Any:
    values = {}
    for field in dataclasses.fields(entity):
        kind = str(field.metadata.get("kafka_type", ""))
        name = field.name + "_ms" if kind.startswith(("timedelta", "datetime")) else field.name
        if hasattr(message, name):
            values[field.name] = _kio_value(field, kind, getattr(message, name), fills)
        elif fills or field.default is dataclasses.MISSING:
            values[field.name] = _kio_unused(field, kind, fills)
    return entity(**values)


_UNUSED: dict[str, tuple[Any, Any]] = {
    "string": ("", "unused"),
    "bytes": (b"", b"unused"),
    "records": (b"", b"unused"),
    "bool": (False, True),
    "float64": (0.0, 1.5),
    "uuid": (None, uuid.UUID(int=7)),
    "error_code": (ErrorCode.none, ErrorCode.not_controller),
    "timedelta_i32": (timedelta(0), timedelta(seconds=7)),
    "timedelta_i64": (timedelta(0), timedelta(seconds=7)),
    "datetime_i64": (datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
}
"""By kio's type, the zero and another value; those of integers are 0 and 7."""


def _kio_unused(field: dataclasses.Field[Any], kind: str, fills: bool) -> Any:
    type_, nullable, is_array = unwrap(field.type)
    if not fills and (is_array or nullable):
        return () if is_array else None
    nested = dataclasses.is_dataclass(type_)
    one = _as_kio(type_, None, fills) if nested else _UNUSED.get(kind, (0, 7))[fills]
    return (one, one) if is_array else one


def _kio_value(field: dataclasses.Field[Any], kind: str, value: Any, fills: bool) -> Any:
    nested = next((arg for arg in leaves(field.type) if dataclasses.is_dataclass(arg)), None)
    if value is None:
        return None
    if nested is not None:
        is_array = isinstance(value, tuple)
        return tuple(_as_kio(nested, one, fills) for one in value) if is_array else _as_kio(nested, value, fills)
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
    """The types of which a type is made."""
    arguments = getattr(type_, "__args__", None)
    return [type_] if arguments is None else [inner for arg in arguments for inner in leaves(arg)]


KAFKA_PYTHON_LACKS = frozenset({
    ApiKey.FETCH, ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE, ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.UNREGISTER_BROKER, ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS, ApiKey.UPDATE_FEATURES, ApiKey.DESCRIBE_QUORUM, ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.UPDATE_RAFT_VOTER,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.DESCRIBE_GROUPS,  # it reads the bytes of members
})  # fmt: skip
"""APIs that only kio's classes are a witness of: those of the compared APIs that kafka-python does not have."""


OF_KAFKA_44 = frozenset({(ApiKey.API_VERSIONS, 5), (ApiKey.UNREGISTER_CONTROLLER, 0)})
"""APIs and versions that neither has: Kafka's schemas and its clients are the witnesses."""


def kafka_python_bytes(api_key: int, version: int, direction: Direction, message: Message) -> bytes:
    """What kafka-python's encoder makes of the message's like."""
    layout = load_schema(api_key, version, direction).layout
    like = _as_kafka_python(_kafka_python_class(api_key, direction), layout, message, version)
    return bytes(like.encode(version=version))


@cache
def _kafka_python_class(api_key: int, direction: Direction) -> Any:
    name = APIS[api_key].name + direction.capitalize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas by a deprecated call
        parts = ("admin", "consumer", "metadata", "producer", "sasl")
        modules = [importlib.import_module(f"kafka.protocol.{part}") for part in parts]
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def _as_kafka_python(kind: Any, layout: Layout, message: Any, version: int) -> Any:
    theirs = kind._struct.fields
    values = {}
    for field in layout.fields + layout.tagged:
        value: Any = getattr(message, field.name) if field.is_used else field.default
        if field.name in theirs:
            values[field.name] = _kafka_python_value(theirs[field.name], field, value, version)
        else:
            # Renamed, and given as a set of bits.
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
