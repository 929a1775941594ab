"""Compiles a layout into a writer: a function from a message to bytes, the counterpart of `reader`, for `codec`.

Method: Python source is generated and executed once. Neighbouring fields of fixed size are packed together, with the
empty section of tagged fields as a padding byte. Nested entities are inlined as loops. The writer appends its bytes to
a list, which the caller joins once. An array of entities may be an `Encoded`, whose elements are appended as they are.

Values are not validated: they come from our handlers, and one that does not fit its field raises struct.error,
AttributeError or TypeError.
"""

import struct
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

from controller.kafka.codec.primitives import STRING_BYTES_MAX, encode_uvarint
from controller.kafka.codec.reader import Source
from controller.kafka.messages import Encoded, Message
from controller.kafka.schema import CODES, SIZES, Field, Layout

Write = Callable[[Message, list[bytes]], None]
"""Appends the encoded parts of a message to a list."""

_NO_TAGS: Final = "x"


def compile_writer(layout: Layout, name: str) -> Write:
    source = _Source()
    source.entity(layout, "message", "parts")
    source.flush("parts")
    source.add("return None")
    write: Write = source.run(f"<writer of {name}>")["write"]
    return write


class _Source(Source):
    """Collects consecutive fields of fixed size in `_run`, as (struct code, expression), and packs them in one call."""

    def __init__(self) -> None:
        super().__init__("def write(message, parts):", "    parts_add = parts.append")
        self.names["Encoded"] = Encoded
        self._run: list[tuple[str, str]] = []

    def flush(self, sink: str) -> None:
        """Adds one call that packs the collected fields, and empties `_run`."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        values = ", ".join(expression for code, expression in self._run if code != _NO_TAGS)
        pack = struct.Struct(">" + codes).pack
        self.add(
            f"{sink}_add({self.constant('p', pack)}({values}))" if values else f"{sink}_add({bytes(len(codes))!r})"
        )
        self._run.clear()

    def entity(self, layout: Layout, variable: str, sink: str) -> None:
        """Writes the entity in `variable`; its last fields of fixed size may remain in `_run`."""
        for field in layout.fields:
            self._field(field, layout.flexible, f"{variable}.{field.name}", sink)
        if layout.tagged:
            self.flush(sink)
            self._tags(layout, variable, sink)
        elif layout.flexible:
            self._run.append((_NO_TAGS, ""))

    def _field(self, field: Field, flexible: bool, expression: str, sink: str) -> None:
        if not field.is_array and field.kind in SIZES:
            self._run.append((CODES[field.kind], expression))
            return
        value = self.variable("v")
        self.add(f"{value} = {expression}")
        if field.entity is not None and not field.is_array and not field.nullable:
            self.entity(field.entity, value, sink)
            return
        self.flush(sink)
        if field.nullable:
            self.add(f"if {value} is None: {sink}_add({self._null(field, flexible)!r})")
        with self.indented("else:") if field.nullable else nullcontext():
            self._present(field, flexible, value, sink)

    def _null(self, field: Field, flexible: bool) -> bytes:
        if field.entity is not None and not field.is_array:
            return b"\xff"
        if flexible:
            return b"\0"
        return b"\xff\xff" if field.kind == "string" and not field.is_array else b"\xff\xff\xff\xff"

    def _present(self, field: Field, flexible: bool, value: str, sink: str) -> None:
        """Writes a value that is not null; `_run` is empty afterwards."""
        if field.is_array:
            self._array(field, flexible, value, sink)
        elif field.entity is not None:
            self._run.append(("b", "1"))
            self.entity(field.entity, value, sink)
            self.flush(sink)
        else:
            self._text(field, flexible, value, sink)

    def _text(self, field: Field, flexible: bool, value: str, sink: str) -> None:
        if field.kind == "string" and not flexible:
            self.add(f"{sink}_add(legacy_string({value}))")
            return
        data = value
        if field.kind == "string":
            data = self.variable("s")
            self.add(f"{data} = {value}.encode()")
            self.add(f"if len({data}) > {STRING_BYTES_MAX}: {data} = cut({data})")
        self.add(f"{sink}_add({self._length(f'len({data})', flexible)}); {sink}_add({data})")

    def _length(self, count: str, flexible: bool) -> str:
        return f"encode_uvarint({count} + 1)" if flexible else f"int32({count})"

    def _array(self, field: Field, flexible: bool, value: str, sink: str) -> None:
        length, item = self._length(f"len({value})", flexible), self.variable("i")
        if field.kind == "uuid":
            self.add(f"{sink}_add({length}); {sink}_add(b''.join({value}))")
        elif field.kind in SIZES:
            code = CODES[field.kind]
            # Short arrays are packed together with their length.
            short, plus = ("B", " + 1") if flexible else ("i", "")
            small = self.constant("A", [struct.Struct(f">{short}{code * n}").pack for n in range(9)])
            self.add(f"n = len({value})")
            self.add(f"if n < 9: {sink}_add({small}[n](n{plus}, *{value}))")
            self.add(
                f"else: {sink}_add({self._length('n', flexible)}); {sink}_add(array_packer('{code}', n)(*{value}))"
            )
        elif field.entity is None:
            self.add(f"{sink}_add({length})")
            with self.indented(f"for {item} in {value}:"):
                self._text(field, flexible, item, sink)
        else:
            self.add(f"{sink}_add({length})")
            self.add(f"if {value}.__class__ is Encoded: {sink} += {value}")
            with self.indented("else:"), self.indented(f"for {item} in {value}:"):
                self.entity(field.entity, item, sink)
                self.flush(sink)

    def _tags(self, layout: Layout, variable: str, sink: str) -> None:
        """Writes the tagged fields that differ from their defaults, in the order of their tags (KIP-482)."""
        empty = layout.message()
        defaults = [self.constant("D", getattr(empty, field.name)) for field in layout.tagged]
        fields = list(zip(layout.tagged, defaults, strict=True))
        same = " and ".join(f"{variable}.{field.name} == {default}" for field, default in fields)
        self.add(f"if {same}: {sink}_add({bytes(1)!r})")
        with self.indented("else:"):
            count, tagged, one = self.variable("c"), self.variable("t"), self.variable("o")
            self.add(f"{count} = 0; {tagged} = []")
            for field, default in fields:
                with self.indented(f"if {variable}.{field.name} != {default}:"):
                    self.add(f"{one} = []; {one}_add = {one}.append")
                    self._field(field, layout.flexible, f"{variable}.{field.name}", one)
                    self.flush(one)
                    self.add(f"{count} += 1; {tagged}.append({encode_uvarint(field.tag or 0)!r})")
                    self.add(f"{tagged}.append(encode_uvarint(sum(map(len, {one})))); {tagged} += {one}")
            self.add(f"{sink}_add(encode_uvarint({count})); {sink} += {tagged}")
