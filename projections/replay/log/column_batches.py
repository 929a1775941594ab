"""Puts events into columns: batches of Arrow with the columns that `columns` has for each type of event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from events.catalog import Recorded
from events.codec import value_without_secrets
from events.names import shard_key
from projections.replay.log.columns import FIELDS, arrow_schema

_Rows = Sequence[tuple[Recorded, bytes]]


class Columns:
    """Collects events, and makes batches of them with some of the columns."""

    def __init__(self, names: Sequence[str], log_partition: int = 0) -> None:
        self._log_partition = log_partition
        self.schema = arrow_schema(names)
        self._getters = {
            kind: [(name, getter) for name, getter in fields.items() if name in names and name not in _ENVELOPE]
            for kind, fields in FIELDS.items()
        }
        self._rows: list[tuple[Recorded, bytes]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, recorded: Recorded, value: bytes) -> None:
        """Add an event, with its canonical bytes."""
        self._rows.append((recorded, value))

    def batch(self) -> pa.RecordBatch:
        """The events added since the last batch."""
        rows, self._rows = self._rows, []
        columns, arrays = self._columns(rows), []
        for field in self.schema:
            if field.name == "log_partition":
                arrays.append(pa.repeat(pa.scalar(self._log_partition, field.type), len(rows)))
                continue
            envelope = _ENVELOPE.get(field.name)
            column = columns.get(field.name) if envelope is None else envelope(rows)
            arrays.append(pa.nulls(len(rows), field.type) if column is None else pa.array(column, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _columns(self, rows: _Rows) -> dict[str, list[Any]]:
        """The values of the events, by column; without those of the envelope and those that no event has."""
        columns: dict[str, list[Any]] = {}
        if not any(self._getters.values()):
            return columns
        by_kind: dict[type, list[tuple[int, Any]]] = {kind: [] for kind in self._getters}
        for row, (recorded, _) in enumerate(rows):
            by_kind[type(recorded.event)].append((row, recorded.event))
        for kind, events in by_kind.items():
            for name, getter in self._getters[kind] if events else ():
                column = columns.get(name)
                if column is None:
                    column = columns[name] = [None] * len(rows)
                for row, event in events:
                    column[row] = getter(event)
        return columns


def gathered(
    batches: Iterable[pa.RecordBatch], rows: int, size_bytes: int | None = None
) -> Iterator[list[pa.RecordBatch]]:
    """Groups of batches, each with at least so many rows or bytes in memory; batches without rows are left out."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        if len(batch):
            group.append(batch)
        if sum(map(len, group)) >= rows or (size_bytes is not None and sum(one.nbytes for one in group) >= size_bytes):
            yield group
            group = []
    if group:
        yield group


def _topics(rows: _Rows) -> list[str | None]:
    return [getattr(recorded.event, "topic", None) for recorded, _ in rows]


_ENVELOPE: dict[str, Callable[[_Rows], list[Any]]] = {
    "offset": lambda rows: [recorded.offset for recorded, _ in rows],
    "at_ms": lambda rows: [recorded.at_ms for recorded, _ in rows],
    "shard": lambda rows: ["" if topic is None else shard_key(topic) for topic in _topics(rows)],
    "topic": _topics,
    "type": lambda rows: [type(recorded.event).__name__ for recorded, _ in rows],
    "cause_command": lambda rows: [recorded.cause.command for recorded, _ in rows],
    "cause_id": lambda rows: [recorded.cause.request_id for recorded, _ in rows],
    "value": lambda rows: [value_without_secrets(recorded, value) for recorded, value in rows],
}
