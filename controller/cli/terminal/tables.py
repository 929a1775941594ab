"""Aligned columns under a header, cut to the terminal that they are shown on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from projections.text.names import escaped

COLUMN_MIN = 8
"""No column is cut to less, whatever the terminal."""
_GAP = 2
_CODES = {"good": "32", "warning": "33", "bad": "31", "header": "1", "dim": "2"}


class Marked(str):
    """Text with a meaning, which a terminal shows in colour: `good`, `warning`, `bad` or `dim`."""

    __slots__ = ("mark",)
    mark: str

    def __new__(cls, text: object, mark: str) -> Marked:
        """A text with its mark."""
        one = super().__new__(cls, text)
        one.mark = mark
        return one


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], width: int | None = None, colour: bool = False
) -> Iterator[str]:
    """Rows under a header, in columns as wide as they need; numbers stand at the right. With a `width` the widest
    columns are cut until a line fits."""
    texts = [tuple(one if isinstance(one, str) else str(one) for one in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    right = [all(text[n].lstrip("-").isdigit() for text in texts) and bool(texts) for n in range(len(header))]
    if width is not None:
        _fit(widths, width)
    for number, line in enumerate((tuple(header), *texts)):
        cells = [_cell(one, size, to_right) for one, size, to_right in zip(line, widths, right, strict=True)]
        if colour:
            marks = ["header" if number == 0 else getattr(one, "mark", "") for one in line]
            cells = [painted(cell, mark) for cell, mark in zip(cells, marks, strict=True)]
        yield (" " * _GAP).join(cells).rstrip()


def painted(text: str, mark: str) -> str:
    """A text as a terminal shows a mark; as it is without one."""
    return f"\x1b[{_CODES[mark]}m{text}\x1b[0m" if mark else text


_OWN_COLOUR = re.compile(rf"\x1b\[(?:{'|'.join(_CODES.values())}|0)m")


def harmless(line: str, colour: bool = False) -> str:
    """A line whose text may be of anybody (a client's id, a message): nothing in it moves the cursor, sets the title or
    turns text around. Our own colours stay where there are any."""
    kept = [*_OWN_COLOUR.finditer(line)] if colour else []
    parts, at = [], 0
    for one in kept:
        parts += [escaped(line[at : one.start()]), one[0]]
        at = one.end()
    return "".join([*parts, escaped(line[at:])])


def cut(text: str, width: int) -> str:
    """A text in so many characters, with a sign where some are missing."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _cell(text: str, width: int, to_the_right: bool) -> str:
    shown = cut(text, width)
    return shown.rjust(width) if to_the_right else shown.ljust(width)


def _fit(widths: list[int], width: int) -> None:
    over = sum(widths) + _GAP * (len(widths) - 1) - width
    while over > 0:
        widest = max(range(len(widths)), key=widths.__getitem__)
        others = sorted(widths)[-2] if len(widths) > 1 else 0
        step = min(over, max(1, widths[widest] - max(others, COLUMN_MIN)), widths[widest] - COLUMN_MIN)
        if step <= 0:
            return
        widths[widest] -= step
        over -= step
