"""Query parameters that several paths have: each is declared once, and described for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated

from litestar.params import QueryParameter

from projections.queries.moments import OFFSET_END, SYNTAX

LIMIT_MAX = 1000
"""Of topics, events or requests in a page."""
OFFSET_MAX = OFFSET_END - 1

At = Annotated[str | None, QueryParameter(description=f"As of a moment of the past: {SYNTAX}")]
Limit = Annotated[int, QueryParameter(ge=1, le=LIMIT_MAX, description="How many at most")]
From = Annotated[str | None, QueryParameter(name="from", description=f"Not before a moment: {SYNTAX}")]
To = Annotated[str | None, QueryParameter(name="to", description="Not after a moment, written in the same ways")]
FromOffset = Annotated[int, QueryParameter(name="from", ge=0, le=OFFSET_MAX, description="The offset to begin at")]
Partition = Annotated[
    int | None, QueryParameter(ge=0, le=OFFSET_MAX, description="Of a log in partitions: only this one")
]
Cursor = Annotated[str | None, QueryParameter(description="Go on there: `next_cursor` of the page before")]
