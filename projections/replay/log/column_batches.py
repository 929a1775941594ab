"""Events made into columns: what `columns` has of each type of event, put together in batches of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from events.catalog import Recorded
from events.codec import value_without_secrets
from events.names import shard_key
from projections.replay.log.columns import FIELDS, Getter, arrow_schema

_GETTERS: dict[type, dict[str, Getter]] = {
    kind: {name: attrgetter(by) if isinstance(by, str) else by for name, by in fields.items()}
    for kind, fields in FIELDS.items()
}
_Rows = Sequence[tuple[Recorded, bytes]]
_LOG_PARTITION = "log_partition"


def decode_columns(recorded: Recorded) -> dict[str, Any]:
    """What an event says, by column; columns of which it says nothing are left out, and so are its bytes."""
    event = recorded.event
    said = {name: getter(event) for name, getter in _GETTERS[type(event)].items()}
    topic = said.get("topic")
    return {
        "log_partition": 0,
        "offset": recorded.offset,
        "at_ms": recorded.at_ms,
        "shard": "" if topic is None else shard_key(topic),
        "type": type(event).__name__,
        "cause_command": recorded.cause.command,
        "cause_id": recorded.cause.request_id,
        **{name: value for name, value in said.items() if value is not None},
    }


class Columns:
    """Rows in the making, with some of the columns: `add` events, then take the `batch`."""

    def __init__(self, names: Sequence[str], log_partition: int = 0) -> None:
        self._log_partition = log_partition
        self.schema = arrow_schema(names)
        self._said = {
            kind: [(name, getter) for name, getter in getters.items() if name in names and name not in _ENVELOPED]
            for kind, getters in _GETTERS.items()
        }
        self._rows: list[tuple[Recorded, bytes]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, recorded: Recorded, value: bytes) -> None:
        """One more row: an event and its canonical bytes."""
        self._rows.append((recorded, value))

    def batch(self) -> pa.RecordBatch:
        """The rows added since the last batch."""
        rows, self._rows = self._rows, []
        said = self._said_by(rows)
        arrays = []
        for field in self.schema:
            if field.name == _LOG_PARTITION:
                arrays.append(pa.repeat(pa.scalar(self._log_partition, field.type), len(rows)))
                continue
            enveloped = _ENVELOPED.get(field.name)
            column = said.get(field.name) if enveloped is None else enveloped(rows)
            arrays.append(pa.nulls(len(rows), field.type) if column is None else pa.array(column, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _said_by(self, rows: _Rows) -> dict[str, list[Any]]:
        """What the events say beside their envelope, by column; columns of which none says anything are left out."""
        columns: dict[str, list[Any]] = {}
        if not any(self._said.values()):
            return columns
        by_kind: dict[type, list[tuple[int, Any]]] = {kind: [] for kind in self._said}
        for row, (recorded, _) in enumerate(rows):
            by_kind[type(recorded.event)].append((row, recorded.event))
        for kind, events in by_kind.items():
            for name, getter in self._said[kind] if events else ():
                column = columns.get(name)
                if column is None:
                    column = columns[name] = [None] * len(rows)
                for row, event in events:
                    column[row] = getter(event)
        return columns


def gathered(
    batches: Iterable[pa.RecordBatch], rows: int, size_bytes: int | None = None
) -> Iterator[list[pa.RecordBatch]]:
    """Batches brought together until they have so many rows, or are as large in memory; none without rows."""
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


_ENVELOPED: dict[str, Callable[[_Rows], list[Any]]] = {
    "offset": lambda rows: [recorded.offset for recorded, _ in rows],
    "at_ms": lambda rows: [recorded.at_ms for recorded, _ in rows],
    "shard": lambda rows: ["" if topic is None else shard_key(topic) for topic in _topics(rows)],
    "topic": _topics,
    "type": lambda rows: [type(recorded.event).__name__ for recorded, _ in rows],
    "cause_command": lambda rows: [recorded.cause.command for recorded, _ in rows],
    "cause_id": lambda rows: [recorded.cause.request_id for recorded, _ in rows],
    "value": lambda rows: [value_without_secrets(recorded, value) for recorded, value in rows],
}
