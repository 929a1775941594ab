"""Prints the answers of all commands: as tables for people (on a terminal in colour and paged), or as JSON, YAML or
names for programs."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from typing import IO, TYPE_CHECKING, NamedTuple

from controller.cli.commands import add
from projections.text.names import escaped

if TYPE_CHECKING:
    Lines = Callable[["Style"], Iterable[str]]


FORMATS = ("table", "wide", "json", "yaml", "name")
PAGER = "less"
_LESS = "FRX"
"""Flags of the pager `less`: exit if the text fits on one screen, print colours, do not clear the screen."""


class Style(NamedTuple):
    """The layout of tables for people. `width` is the terminal's; None elsewhere, and then nothing is truncated."""

    width: int | None = None
    colour: bool = False
    wide: bool = False
    """All columns, never truncated."""
    now: datetime | None = None
    """If given, `age` counts back from it."""

    def table(self, header: Sequence[str], rows: Iterable[Sequence[object]], empty: str = "") -> Iterator[str]:
        """Rows under a header in aligned columns, numbers to the right; without rows the line `empty`, if it is given.
        With a `width` the widest columns are truncated until the lines fit."""
        texts = [tuple(one if isinstance(one, str) else str(one) for one in row) for row in rows]
        if empty and not texts:
            yield empty
            return
        widths = [max(map(width_of, column)) for column in zip(header, *texts, strict=True)]
        right = [all(text[n].lstrip("-").isdigit() for text in texts) and bool(texts) for n in range(len(header))]
        if self.width is not None and not self.wide:
            _fit(widths, self.width)
        for number, line in enumerate((tuple(header), *texts)):
            cells = [_cell(one, size, to_right) for one, size, to_right in zip(line, widths, right, strict=True)]
            marks = ("header" if number == 0 else getattr(one, "mark", "") for one in line)
            yield (" " * _GAP).join(map(self.painted, cells, marks)).rstrip()

    def section(self, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
        """A table after a blank line; nothing without rows."""
        listed = list(rows)
        return chain([""], self.table(header, listed)) if listed else iter(())

    def age(self, at: str) -> str:
        """A time as its age, such as `5m`, which --since and --at take; without `now`, the time."""
        if self.now is None:
            return at
        seconds = max(0, round((self.now - datetime.fromisoformat(at)).total_seconds()))
        unit, size = next((one for one in _AGES if seconds >= 2 * one[1]), ("s", 1))
        return f"{seconds // size}{unit}"

    def painted(self, text: str, mark: str) -> str:
        """Text in the colour of a mark, if there are colours."""
        return f"\x1b[{_CODES[mark]}m{text}\x1b[0m" if self.colour and mark else text


def add_output(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    group = parser.add_argument_group("output")
    what = f"{', '.join(formats)}; default %(default)s"
    group.add_argument("-o", "--output", choices=formats, default="table", metavar="FORMAT", help=what)
    group.add_argument("--json", dest="output", action="store_const", const="json", help="the same as -o json")
    add(group, "--utc", "read and print times in UTC; default: the local zone")
    add(group, "--no-pager", "do not use a pager")


def style_of(options: argparse.Namespace) -> Style:
    wide = options.output == "wide"
    if not sys.stdout.isatty():
        return Style(wide=wide)
    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(shutil.get_terminal_size().columns, colour, wide, None if wide else datetime.now(UTC))  # noqa: TID251


def show(
    options: argparse.Namespace, answer: object, lines: Lines, names: Callable[[], Iterable[object]], as_of: str = ""
) -> int:
    """Print an answer in the format of the options: `lines` for people, `names` one per line for scripts. An answer
    from the past begins with its point in time, `as_of`. Returns the exit code 0."""
    match options.output:
        case "json":
            show_lines(options, [as_json(answer)])
        case "yaml":
            show_lines(options, as_yaml(answer).splitlines())
        case "name":
            show_lines(options, map(str, names()))
        case _:
            style = style_of(options)
            past = [f"State{as_of}:"] if as_of and options.at is not None else []
            show_lines(options, (with_local_times(line, style.colour) for line in chain(past, lines(style))))
    return 0


def show_lines(options: argparse.Namespace, lines: Iterable[str], *, paged: bool = True) -> None:
    """Print lines through a pager; without `paged` each line at once."""
    with _pager(paged and not options.no_pager) as out:
        for line in lines:
            print(line, file=out, flush=not paged)


def as_json(answer: object) -> str:
    """An answer on one line."""
    import msgspec

    return msgspec.json.encode(answer).decode()


def as_yaml(answer: object) -> str:
    import msgspec

    return msgspec.yaml.encode(msgspec.to_builtins(answer)).decode()


@contextmanager
def _pager(is_paged: bool) -> Iterator[IO[str]]:
    words = shlex.split(os.environ.get("PAGER", PAGER))
    if not is_paged or not sys.stdout.isatty() or not words or shutil.which(words[0]) is None:
        yield sys.stdout
        return
    sys.stdout.flush()
    environment = {"LESS": _LESS, **os.environ}
    with subprocess.Popen(words, stdin=subprocess.PIPE, text=True, env=environment) as pager:
        assert pager.stdin is not None, "it is a pipe"
        try:
            yield pager.stdin
        except BrokenPipeError:
            pass  # the user quit the pager
        finally:
            with suppress(BrokenPipeError):
                pager.stdin.close()
            while pager.poll() is None:
                with suppress(KeyboardInterrupt):  # Ctrl-C is the pager's
                    pager.wait()


_AGES = (("d", 86_400), ("h", 3600), ("m", 60))
COLUMN_MIN = 8
"""No column becomes narrower. The first, which identifies the row, is truncated only beyond half of the terminal."""
_GAP = 2
_CODES = {"good": "32", "warning": "33", "bad": "31", "header": "1", "dim": "2"}


class Marked(str):
    """Text with a mark that a terminal shows as a colour: `good`, `warning`, `bad` or `dim`."""

    __slots__ = ("mark",)
    mark: str

    def __new__(cls, text: object, mark: str) -> Marked:
        one = super().__new__(cls, text)
        one.mark = mark
        return one


_OWN_COLOUR = re.compile(rf"(\x1b\[(?:{'|'.join(_CODES.values())}|0)m)")


def harmless(line: str, colour: bool = False) -> str:
    """Escape control characters and text-direction marks in a line: the text may come from any client (a client id, a
    message). With `colour` the colour codes of `painted` are not escaped."""
    parts = _OWN_COLOUR.split(line) if colour else [line]  # every second one is a colour code
    return "".join(part if number % 2 else escaped(part) for number, part in enumerate(parts))


def with_local_times(line: str, colour: bool = False) -> str:
    """A harmless line, its times local and without a zone, or UTC if that is the zone of the terminal."""
    return _TIME.sub(_local, harmless(line, colour))


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?)Z(  )?")


def _local(found: re.Match[str]) -> str:
    """A UTC time in the terminal's zone; in a column it remains as wide."""
    try:
        at = datetime.fromisoformat(f"{found[1]}+00:00").astimezone()
    except (ValueError, OverflowError):
        return found[0]
    if not at.utcoffset():
        return found[0]
    return at.isoformat(timespec="milliseconds" if found[2] else "seconds")[: len(found[1])] + (
        "   " if found[3] else ""
    )


def width_of(text: str) -> int:
    """The width of text on a terminal: East Asian characters take two cells."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cell(text: str, width: int, to_the_right: bool) -> str:
    if width_of(text) > width:
        from rich.cells import set_cell_size

        text = set_cell_size(text, width - 1) + "…"
    blank = " " * (width - width_of(text))
    return blank + text if to_the_right else text + blank


def _fit(widths: list[int], width: int) -> None:
    while sum(widths) + _GAP * (len(widths) - 1) > width:
        shrinkable = [n for n, size in enumerate(widths) if size > COLUMN_MIN]
        which = [n for n in shrinkable if n or widths[n] > width // 2] or shrinkable
        if not which:
            return
        widths[max(which, key=widths.__getitem__)] -= 1


def progress_to(size: int) -> Callable[[int], object]:
    """Prints the progress over `size` events on a terminal."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda done: print(f"\r{done:,} of {size:,} events", end="" if done < size else "\n", file=sys.stderr)
