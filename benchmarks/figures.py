"""Figures of a benchmark, as a table for people and as JSON for machines."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One measured value beside Kafka's and what is wanted; None where there is none."""

    work: str
    unit: str
    topicwright: float | None
    kafka: float | None = None
    reach: str = ""
    note: str = ""


def percentile(values: Sequence[float], part: float) -> float:
    """The value that `part` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def show(figures: Sequence[Figure], as_json: bool) -> None:
    """Print the figures."""
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(figures) + b"\n")
        return
    rows = [("work", "unit", "Topicwright", "Kafka", "reach", "note")]
    rows += [(f.work, f.unit, _number(f.topicwright), _number(f.kafka), f.reach, f.note) for f in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
