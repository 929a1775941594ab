"""How answers are printed: as a table for people, or in a form for programs; in colour and through a pager only on a
terminal."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, NamedTuple

from controller.cli.terminal.tables import harmless, table

if TYPE_CHECKING:
    Lines = Callable[["Look"], Iterable[str]]

FORMATS = ("table", "wide", "json", "yaml", "name")
PAGER = "less"
_LESS = "FRX"
"""Quit where it fits the screen, keep colours, leave the screen as it is."""


class Look(NamedTuple):
    """What lines for people may look like: `width` is that of the terminal, None elsewhere, and then nothing is cut."""

    width: int | None = None
    colour: bool = False
    wide: bool = False
    """Everything that is known, in lines as long as they need."""

    def table(self, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
        """A table that looks so."""
        return table(header, rows, None if self.wide else self.width, self.colour)


def add_output(
    parser: argparse.ArgumentParser,
    formats: Sequence[str] = FORMATS,
    *,
    flags: Sequence[str] = ("-o", "--output"),
    into: str = "output",
) -> None:
    """Add the flags that say how to print, and put the format `into` the options."""
    group = parser.add_argument_group("output")
    what = f"{', '.join(formats)}; default %(default)s"
    group.add_argument(*flags, dest=into, choices=formats, default="table", metavar="FORMAT", help=what)
    group.add_argument("--json", dest=into, action="store_const", const="json", help="the same as -o json")
    group.add_argument("--no-pager", action="store_true", help="print straight on, also on a terminal")


def look(options: argparse.Namespace) -> Look:
    """What lines may look like here."""
    wide = options.output == "wide"
    if not sys.stdout.isatty():
        return Look(wide=wide)
    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Look(shutil.get_terminal_size().columns, colour, wide)


def show(options: argparse.Namespace, answer: object, lines: Lines, names: Callable[[], Iterable[object]]) -> None:
    """Print one answer in the format that is wanted: `lines` are for people, `names` one a line for scripts."""
    match options.output:
        case "json":
            show_lines(options, [as_json(answer)])
        case "yaml":
            show_lines(options, as_yaml(answer).splitlines())
        case "name":
            show_lines(options, map(str, names()))
        case _:
            how = look(options)
            show_lines(options, (harmless(line, how.colour) for line in lines(how)))


def show_lines(options: argparse.Namespace, lines: Iterable[str], *, paged: bool = True) -> None:
    """Print lines, through a pager where they would leave the screen; at once where they are not `paged`."""
    with _pager(paged and not options.no_pager) as out:
        for line in lines:
            print(line, file=out, flush=not paged)


def as_json(answer: object) -> str:
    """An answer on one line."""
    import msgspec

    return msgspec.json.encode(answer).decode()


def as_yaml(answer: object) -> str:
    """An answer as a YAML document."""
    import msgspec

    return msgspec.yaml.encode(msgspec.to_builtins(answer)).decode()


@contextmanager
def _pager(wanted: bool) -> Iterator[IO[str]]:
    words = shlex.split(os.environ.get("PAGER", PAGER))
    if not wanted or not sys.stdout.isatty() or not words or shutil.which(words[0]) is None:
        yield sys.stdout
        return
    sys.stdout.flush()
    environment = {"LESS": _LESS, **os.environ}
    with subprocess.Popen(words, stdin=subprocess.PIPE, text=True, env=environment) as pager:
        assert pager.stdin is not None, "it is a pipe"
        try:
            yield pager.stdin
        except BrokenPipeError:
            pass  # it was left before the end
        finally:
            with suppress(BrokenPipeError):
                pager.stdin.close()
            while pager.poll() is None:
                with suppress(KeyboardInterrupt):  # Ctrl-C is the pager's
                    pager.wait()
