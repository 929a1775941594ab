"""Python source under construction: what the compiler of readers and that of writers share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from controller.kafka.codec import primitives


class Source:
    """The lines of one function, and the names that they use beside Python's own."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self.names: dict[str, Any] = dict(vars(primitives))
        self._depth = 1
        self._variables = 0

    def run(self, filename: str) -> dict[str, Any]:
        """Execute it; the names afterwards, the function's among them. Tracebacks call it `filename`."""
        exec(compile("\n".join(self._lines), filename, "exec"), self.names)
        return self.names

    def add(self, line: str) -> None:
        """One more line, as deep as it stands."""
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def indented(self, line: str) -> Iterator[None]:
        """This line, and all that is added in the block below it."""
        self.add(line)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self, prefix: str) -> str:
        """A name that is not used yet."""
        self._variables += 1
        return f"{prefix}{self._variables}"

    def constant(self, prefix: str, value: object) -> str:
        """The name by which the source may use this value."""
        name = self.variable(prefix)
        self.names[name] = value
        return name
