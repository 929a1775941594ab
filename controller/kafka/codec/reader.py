"""Compiles the layout of a message version (`Layout`) into a reader: a function from bytes to a message, for `codec`.

Method: Python source is generated and executed once. Neighbouring fields of fixed size are unpacked together; nested
entities are inlined as loops; a string takes one slice. Like Kafka's brokers, a reader is lenient: unknown tagged
fields are skipped, bytes after the message are ignored, invalid UTF-8 is replaced, and any negative length of old
versions is a null.

Lengths are checked against the remaining bytes: a string must fit, and an array may announce only as many elements as
fit at their smallest. So a frame takes memory in proportion to its size.

Each line of a reader belongs to one field. After a failure the line number of the traceback identifies the field, so a
reader need not track its position.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final

from controller.kafka.codec import primitives
from controller.kafka.codec.primitives import Malformation
from controller.kafka.messages import Message
from controller.kafka.schema import CODES, SIZES, Field, Kind, Layout


class Source:
    """The source of a generated function: its lines, and the values that it uses by name."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self.names: dict[str, Any] = dict(vars(primitives))
        self._depth = 1
        self._variables = 0

    def run(self, filename: str) -> dict[str, Any]:
        """Execute the source, with `filename` in tracebacks. Returns all names defined, the function among them."""
        exec(compile("\n".join(self._lines), filename, "exec"), self.names)
        return self.names

    def add(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def indented(self, line: str) -> Iterator[None]:
        self.add(line)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self, prefix: str) -> str:
        self._variables += 1
        return f"{prefix}{self._variables}"

    def constant(self, prefix: str, value: object) -> str:
        """The name of this value in the source."""
        name = self.variable(prefix)
        self.names[name] = value
        return name


READ_FAILURES: Final = (Malformation, IndexError, struct.error)
"""Raised by compiled readers for malformed bytes."""


class Reader:
    """A compiled reader. `read(buffer, offset, limit, elements)` returns the message and the remaining number of
    allowed array elements, or raises one of `READ_FAILURES`."""

    def __init__(self, layout: Layout, name: str) -> None:
        self._name = name
        self._filename = f"<reader of {name}>"
        source = _ReaderSource()
        source.entity(layout, "message")
        source.add("return message, c")
        self._paths = source.paths
        self.read: Callable[[bytes, int, int, int], tuple[Message, int]] = source.run(self._filename)["read"]

    def explain(self, failure: BaseException) -> str:
        """The message, the field and the reason of an exception that `read` raised."""
        path = "message"
        trace = failure.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._filename:
                path = self._paths[trace.tb_lineno - 1] or path
            trace = trace.tb_next
        reason = str(failure) if isinstance(failure, Malformation) else "the bytes end early"
        return f"{self._name}: {path}: {reason}"


class _ReaderSource(Source):
    """Variables: `b` buffer, `o` offset, `z` limit, `c` remaining elements, `n` and `e` a length and an end."""

    def __init__(self) -> None:
        super().__init__("def read(b, o, z, c):")
        self.paths = [""]
        self._path: list[str] = []
        self._run: list[tuple[str, Kind, str]] = []

    def add(self, line: str, path: str | None = None) -> None:
        super().add(line)
        self.paths.append(".".join(self._path) if path is None else path)

    def entity(self, layout: Layout, target: str) -> None:
        """Reads an entity into the variable `target`."""
        values: list[tuple[str, str]] = []
        for field in layout.fields:
            variable = self.variable("v")
            values.append((field.name, variable))
            self._path.append(field.name)
            self._field(field, layout.flexible, variable)
            self._path.pop()
        self._flush()
        values += self._tags(layout)
        name = self.constant("T", layout.message)
        self.add(f"{target} = {name}({', '.join(f'{key}={value}' for key, value in values)})")

    def _field(self, field: Field, flexible: bool, target: str) -> None:
        if not field.is_array and field.kind in SIZES:
            self._run.append((target, field.kind, ".".join(self._path)))
            return
        self._flush()
        if field.is_array:
            self._array(field, flexible, target)
        elif field.entity is None:
            self._text(field, flexible, target, nullable=field.nullable)
        elif field.nullable:
            self._nullable_entity(field.entity, target)
        else:
            self.entity(field.entity, target)

    def _flush(self) -> None:
        """Unpacks the fields of fixed size collected so far in one call."""
        if not self._run:
            return
        codes = "".join(CODES[kind] for _, kind, _ in self._run)
        unpack = self.constant("u", struct.Struct(">" + codes).unpack_from)
        size = sum(SIZES[kind] for _, kind, _ in self._run)
        targets = "".join(f"{target}, " for target, _, _ in self._run)
        self.add(f"{targets}= {unpack}(b, o); o += {size}", path=self._run[0][2])
        self._run.clear()

    def _length(self, flexible: bool, of_string: bool = False) -> None:
        """Reads a length into `n`: -1 for null."""
        if flexible:
            self.add("n = b[o] - 1; o += 1")
            read = "read_string_length(b, o - 1)" if of_string else "read_uvarint(b, o - 1); n -= 1"
            self.add(f"if n > 126: n, o = {read}")
        else:
            unpack = self.constant("u", struct.Struct(">h" if of_string else ">i").unpack_from)
            self.add(f"n, = {unpack}(b, o); o += {2 if of_string else 4}")

    def _text(self, field: Field, flexible: bool, target: str, *, nullable: bool) -> None:
        is_string = field.kind == "string"
        self._length(flexible, is_string)
        value = 'b[o:e].decode("utf-8", "replace")' if is_string else "b[o:e]"
        with self.indented("if n >= 0:") if nullable else nullcontext():
            self.add("e = o + n")
            self.add(f"if {'e > z' if nullable else 'not o <= e <= z'}: raise too_long(n, z - o)")
            self.add(f"{target} = {value}; o = e")
        if nullable:
            self.add(f"else: {target} = None")

    def _array(self, field: Field, flexible: bool, target: str) -> None:
        self._length(flexible)
        with self.indented("if n > 0:"):
            if field.entity is not None:
                self._elements(partial(self.entity, field.entity), field.entity.size_min, target)
            elif field.kind in SIZES:
                self._numbers(field.kind, target)
            else:
                text = partial(self._text, field, flexible, nullable=False)
                self._elements(text, 1 if flexible else 2, target)
        if field.nullable:
            self.add(f"else: {target} = () if n == 0 else None")
        else:
            self.add(f"elif n == 0: {target} = ()")
            self.add("else: raise is_null()")

    def _numbers(self, kind: Kind, target: str) -> None:
        self.add(f"e = o + n * {SIZES[kind]}")
        self.add("if e > z: raise too_many(n, z - o)")
        self._charge("n >> 3")
        if kind == "uuid":
            self.add(f"{target} = uuids_at(b, o, e); o = e")
            return
        code = CODES[kind]
        small = self.constant("A", [primitives.array_unpacker(code, count) for count in range(9)])
        self.add(f'{target} = ({small}[n] if n < 9 else array_unpacker("{code}", n))(b, o); o = e')

    def _elements(self, read: Callable[[str], None], size_min: int, target: str) -> None:
        """Reads an array of texts or entities; `read` reads an element, which has at least `size_min` bytes."""
        self.add(f"if n * {max(size_min, 1)} > z - o: raise too_many(n, z - o)")
        self._charge("n")
        items, item = self.variable("l"), self.variable("v")
        self.add(f"{items} = []")
        with self.indented("for _ in range(n):"):
            read(item)
            self.add(f"{items}.append({item})")
        self.add(f"{target} = tuple({items})")

    def _charge(self, count: str) -> None:
        self.add(f"c -= {count}")
        self.add('if c < 0: raise Malformation("more elements than one request may have")')

    def _nullable_entity(self, layout: Layout, target: str) -> None:
        """Reads an entity that may be null: a byte before the entity is negative for null (KIP-893)."""
        self.add("n = b[o]; o += 1")
        self.add(f"if n > 127: {target} = None")
        with self.indented("else:"):
            self.entity(layout, target)

    def _tags(self, layout: Layout) -> list[tuple[str, str]]:
        """Reads the known tagged fields and skips the others; returns the known fields with their variables."""
        if not layout.flexible:
            return []
        self._path.append("tagged fields")
        self.add("n = b[o]; o += 1")
        if not layout.tagged:
            self.add("if n: o = skip_tags(b, o - 1, z)")
            self._path.pop()
            return []
        values = [(field.name, self.variable("v")) for field in layout.tagged]
        empty = layout.message()
        for name, variable in values:
            self.add(f"{variable} = {self.constant('D', getattr(empty, name))}")
        with self.indented("if n:"):
            last = self.variable("t")
            self.add(f"n, o = read_uvarint(b, o - 1); {last} = -1")
            with self.indented("for _ in range(n):"):
                self._one_tag(layout, [variable for _, variable in values], last)
        self._path.pop()
        return values

    def _one_tag(self, layout: Layout, variables: list[str], last: str) -> None:
        """Reads a tagged field, whose value must have exactly the announced size; `last` is the previous tag."""
        start, limit = self.variable("s"), self.variable("z")
        self.add("t, o = read_uvarint(b, o)")
        self.add(f"if t <= {last}: raise out_of_order(t, {last})")
        self.add(f"{last} = t")
        self.add("n, o = read_uvarint(b, o)")
        self.add("if n > z - o: raise too_long(n, z - o)")
        self.add(f"{start} = o; {limit} = z; z = o + n")
        with self.indented(f"if {last} not in {self.constant('K', frozenset(f.tag for f in layout.tagged))}:"):
            self.add("o = z")
        for field, variable in zip(layout.tagged, variables, strict=True):
            with self.indented(f"elif {last} == {field.tag}:"):
                self._path.append(field.name)
                self._field(field, layout.flexible, variable)
                self._flush()
                self._path.pop()
        wrong = f"{{z - {start}}} bytes announced, and the value has {{o - {start}}}"
        self.add(f'if o != z: raise Malformation(f"{wrong}")')
        self.add(f"z = {limit}")
