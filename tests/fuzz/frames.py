"""Malformed and hostile frames: the most expensive of each API and version, and mutations of valid frames."""

import random
import struct
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from controller.kafka.codec import codec
from controller.kafka.codec.codec import load_layout
from controller.kafka.handling import ApiHandler
from controller.kafka.messages import APIS, Message
from controller.kafka.schema import Field, Kind, Layout

CAPTURES = Path(__file__).parent / "captures.txt"
"""Frames of real clients, without their sizes, one a line in hexadecimal."""
CLIENT_ID = "fuzz"
CHANGED = 4990
"""A request may create this many topics of one partition, or make this many other changes."""
NUMBERS = (0, 1, -1, 2, 3, 127, -128, 2**15 - 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
BITS: dict[Kind, int] = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ("", "t", "a.b", "a_b", "topic-1", "User:alice", "cleanup.policy", "x" * 249, "x" * 250, "é\0\u202e", "*")


def with_size_prefix(frame: bytes) -> bytes:
    """Prepends the size to a frame."""
    return struct.pack(">i", len(frame)) + frame


@cache
def captures() -> tuple[bytes, ...]:
    """Returns the frames of real clients."""
    return tuple(bytes.fromhex(line) for line in CAPTURES.read_text(encoding="ascii").split())


# The most expensive frames.


def worst(api_key: int, version: int, row: ApiHandler, bytes_max: int) -> Iterator[tuple[str, bytes]]:
    """Yields names and frames. For each array of a request there is one frame with the maximum number of equal
    elements, one with different texts, and one over the limit."""
    layout = load_layout(api_key, version, "request")
    for path in _arrays(layout):
        name = ".".join(path)
        for distinct, most in product((False, True), (row.elements_max - len(path), CHANGED)):
            count = most
            field = _field(layout, path)
            if field.kind is not None and field.kind not in ("string", "bytes"):
                count *= 8
            while True:
                frame = codec.encode_request(api_key, version, 1, CLIENT_ID, _filled(layout, path, count, distinct))
                if len(frame) - 4 <= bytes_max:
                    break
                count = count * bytes_max // len(frame)
            yield f"{name} x {count} {'each its own' if distinct else 'all alike'}", frame
        more = _filled(layout, path, min(2 * row.elements_max, bytes_max // 20), False)
        yield f"{name} too many", codec.encode_request(api_key, version, 1, CLIENT_ID, more)


def _arrays(layout: Layout, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in layout.fields + layout.tagged:
        if field.is_array:
            yield (*before, field.name)
        if field.entity is not None:
            yield from _arrays(field.entity, (*before, field.name))


def _field(layout: Layout, path: tuple[str, ...]) -> Field:
    field = next(each for each in layout.fields + layout.tagged if each.name == path[0])
    return field if len(path) == 1 else _field(_entity(field), path[1:])


def _entity(field: Field) -> Layout:
    assert field.entity is not None, "every inner part of a path is an entity"
    return field.entity


def _filled(layout: Layout, path: tuple[str, ...], count: int, distinct: bool) -> Message:
    """Returns the smallest message with `count` elements at the end of a path."""
    field = next(each for each in layout.fields + layout.tagged if each.name == path[0])
    if len(path) > 1:
        inner: Any = _filled(_entity(field), path[1:], count, distinct)
        value: Any = (inner,) if field.is_array else inner
    elif field.entity is not None:
        one = _smallest(field.entity)
        value = tuple(_named(one, field.entity, number) for number in range(count)) if distinct else (one,) * count
    else:
        value = tuple(_scalar(field, number if distinct else 0) for number in range(count))
    return replace(_smallest(layout), **{field.name: value})


@cache
def _smallest(layout: Layout) -> Message:
    values: dict[str, Any] = {}
    for field in layout.fields:
        if field.is_array:
            values[field.name] = ()
        elif field.entity is not None:
            values[field.name] = None if field.nullable else _smallest(field.entity)
        else:
            values[field.name] = _scalar(field, 0)
    message: Message = layout.message(**values)
    return message


def _named(one: Message, layout: Layout, number: int) -> Message:
    texts = [each for each in layout.fields if each.kind in ("string", "uuid") and not each.is_array]
    return replace(one, **{field.name: _scalar(field, number) for field in texts})


def _scalar(field: Field, number: int) -> Any:
    match field.kind:
        case "string":
            return f"{number:x}" if number else ""
        case "bytes":
            return b"%x" % number
        case "uuid":
            return number.to_bytes(16, "big")
        case "bool":
            return False
        case "float64":
            return 0.0
        case _:
            return number % 128


# Mutated frames.


class Mutator:
    """Makes frames from a seed: random valid requests and captured frames, with changed bytes."""

    def __init__(self, seed: int, table: dict[int, ApiHandler]) -> None:
        self._random = random.Random(seed)
        self._known = [
            (key, version)
            for key, row in table.items()
            for version in range(row.min_version, row.max_version + 1)
            if codec.is_known(key, version)
        ]
        self._captures = captures()

    def frames(self) -> list[bytes]:
        """Returns the frames for one connection, with their sizes."""
        return [self._sent(self._frame()) for _ in range(self._random.randint(1, 5))]

    def _frame(self) -> bytes:
        if self._captures and self._random.random() < 0.3:
            frame = self._random.choice(self._captures)
        else:
            key, version = self._random.choice(self._known)
            message = self._message(load_layout(key, version, "request"))
            frame = codec.encode_request(key, version, 1, CLIENT_ID, message)[4:]
        for _ in range(self._random.choice((0, 1, 1, 2, 5))):
            frame = self._random.choice(_MUTATIONS)(self._random, frame)
        return frame

    def _sent(self, frame: bytes) -> bytes:
        chance = self._random.random()
        if chance < 0.02:
            return struct.pack(">i", self._random.choice(NUMBERS[:10])) + frame
        return with_size_prefix(frame)[: len(frame) // 2] if chance < 0.04 else with_size_prefix(frame)

    def _message(self, layout: Layout) -> Message:
        values = {field.name: self._value(field) for field in layout.fields}
        values |= {field.name: self._value(field) for field in layout.tagged if self._random.random() < 0.5}
        message: Message = layout.message(**values)
        return message

    def _value(self, field: Field) -> Any:
        if field.nullable and self._random.random() < 0.2:
            return None
        make: Callable[[], Any] = lambda: self._one(field)  # noqa: E731 - it is called as often as there are elements
        if field.is_array:
            return tuple(make() for _ in range(self._random.choice((0, 1, 1, 2, 3, 20))))
        return make()

    def _one(self, field: Field) -> Any:
        if field.entity is not None:
            return self._message(field.entity)
        match field.kind:
            case "string":
                return self._random.choice(TEXTS)
            case "bytes":
                return self._random.randbytes(self._random.choice((0, 1, 20)))
            case "uuid":
                return self._random.choice((bytes(16), self._random.randbytes(16)))
            case "bool":
                return self._random.random() < 0.5
            case "float64":
                return self._random.choice((0.0, 1.0, -1.0, 1e-320, 1e308, float("inf"), float("nan")))
            case "uint16" | "uint32" as kind:
                return self._random.randrange(1 << int(kind[4:]))
            case kind:
                assert kind is not None, "only entities have no kind"
                half = 1 << BITS[kind] - 1
                return max(-half, min(half - 1, self._random.choice(NUMBERS)))


def _flip(chance: random.Random, frame: bytes) -> bytes:
    if len(frame) < 9:
        return frame
    at = chance.randrange(8, len(frame))
    return frame[:at] + bytes((frame[at] ^ 1 << chance.randrange(8),)) + frame[at + 1 :]


def _cut(chance: random.Random, frame: bytes) -> bytes:
    return frame[: chance.randrange(len(frame) + 1)]


def _blow_up(chance: random.Random, frame: bytes) -> bytes:
    """Overwrites a count, a length or a number with an extreme value."""
    at = chance.randrange(8, max(9, len(frame)))
    what = chance.choice((b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff", b"\x7f\xff", b"\0"))
    return frame[:at] + what + frame[at + len(what) :]


def _double(chance: random.Random, frame: bytes) -> bytes:
    """Repeats a range of bytes, such as an element or a tag."""
    start = chance.randrange(8, max(9, len(frame)))
    piece = frame[start : start + chance.choice((1, 2, 4, 8, 16, 64))]
    return frame[:start] + piece * chance.choice((2, 3, 100)) + frame[start:]


def _insert(chance: random.Random, frame: bytes) -> bytes:
    at = chance.randrange(8, max(9, len(frame)))
    return frame[:at] + chance.randbytes(chance.choice((1, 2, 10, 1000))) + frame[at:]


def _other_version(chance: random.Random, frame: bytes) -> bytes:
    return frame[:2] + struct.pack(">h", chance.randrange(-1, 20)) + frame[4:]


def _other_api(chance: random.Random, frame: bytes) -> bytes:
    return struct.pack(">h", chance.choice((*APIS, -1, 10, 999))) + frame[2:]


_MUTATIONS = (_flip, _flip, _flip, _cut, _blow_up, _blow_up, _double, _insert, _other_version, _other_api)
