"""Query parameters that several paths have: each is declared once, and described for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

from litestar.params import QueryParameter

from events.catalog import EVENT_TYPES
from projections.text.moments import OFFSET_END, SYNTAX

LIMIT_MAX = 1000
"""Of topics, events or requests in a page."""
OFFSET_MAX = OFFSET_END - 1

At = Annotated[str | None, QueryParameter(description=f"As of a moment of the past: {SYNTAX}")]
Limit = Annotated[int, QueryParameter(ge=1, le=LIMIT_MAX, description="How many at most")]
From = Annotated[str | None, QueryParameter(name="from", description=f"Not before a moment: {SYNTAX}")]
FromMoment = Annotated[str, QueryParameter(name="from", description=f"The earlier moment: {SYNTAX}")]
To = Annotated[str | None, QueryParameter(name="to", description="Not after a moment, written in the same ways")]
FromOffset = Annotated[int, QueryParameter(name="from", ge=0, le=OFFSET_MAX, description="The offset to begin at")]
Partition = Annotated[
    int | None, QueryParameter(ge=0, le=OFFSET_MAX, description="Of a log in partitions: only this one")
]
EventType = Annotated[
    str | None,
    QueryParameter(
        name="type",
        pattern=f"^({'|'.join(sorted(kind.__name__ for kind in EVENT_TYPES))})$",
        description="Only events of this type",
    ),
]

EventOrder = Annotated[
    Literal["oldest", "newest"],
    QueryParameter(name="order", description="Which come first; with `newest`, `from` is not looked at"),
]
Cursor = Annotated[str | None, QueryParameter(description="Go on there: `next_cursor` of the page before")]
