"""What README and docs have one type."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from tests.support.tools import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_EXPLAINED = re.compile(r" {2,}(?![-\[])| +# ")
"""Where a line of an example goes on with what it is for."""
_KEPT = re.compile(r" > (\S+)$")
"""Where the shell is to put what a line prints."""
_INLINE = re.compile(r"`(topicwright [^`]+)`", re.DOTALL)
_TOML = re.compile(r"```toml\n(.*?)```", re.DOTALL)
_PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


class Typed(NamedTuple):
    """A line to type, and the page that it is on."""

    page: str
    line: str
    kept: str = ""
    """The file that the shell is to put what it prints into."""

    @property
    def words(self) -> list[str]:
        """The line as a shell reads it."""
        return shlex.split(self.line)


def typed(page: Path, *commands: str) -> list[Typed]:
    """The lines of a page's examples that begin with one of these commands."""
    lines = (line.strip() for line in page.read_text().splitlines() if line.startswith("    "))
    found = (_EXPLAINED.split(line)[0].strip() for line in lines if line.split(" ")[0] in commands)
    return [Typed(page.name, *_parts(line)) for line in found]


def _parts(line: str) -> tuple[str, str]:
    kept = _KEPT.search(line)
    return (line, "") if kept is None else (line[: kept.start()], kept[1])


def inline(page: Path) -> list[Typed]:
    """What of `topicwright` stands in a page's text."""
    return [Typed(page.name, " ".join(line.split())) for line in _INLINE.findall(page.read_text())]


def python(page: Path) -> list[str]:
    """A page's examples in Python."""
    return _PYTHON.findall(page.read_text())


def toml(page: Path) -> list[str]:
    """A page's examples of rules."""
    return _TOML.findall(page.read_text())
