"""Generates docs/invariants.md from invariants.sql and views.sql.

python -m projections.replay.checks.page > docs/invariants.md
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill

from projections.replay.checks.history import text_of, views
from projections.replay.checks.rules import invariants

_WIDTH = 120


def page() -> str:
    """The whole page."""
    text = text_of("invariants.md")
    return text.replace("{invariants}", "\n".join(_invariants())).replace("{views}", "\n".join(_views()))


def _invariants() -> Iterator[str]:
    yield "| check | what it demands |"
    yield "|---|---|"
    for one in invariants():
        about = " ".join(one.about.split())
        yield f"| `{one.name}` | {one.demand[0].upper()}{one.demand[1:]}. {about}".rstrip() + " |"


def _views() -> Iterator[str]:
    for view in views():
        name, _, about = view.about.split("\n\n")[-1].partition(": ")
        if name == view.name:
            yield fill(f"- `{name}`: {' '.join(about.split())}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


if __name__ == "__main__":
    print(page(), end="")
