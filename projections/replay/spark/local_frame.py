"""What replays use of Spark's frames, in this process; `local` says what for.

A frame is a way to its batches (Arrow), which are made when somebody collects them. What sorts or joins holds
everything in memory, about 500 bytes an event. What no replay uses is not here: it fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Batches = Iterator[pa.RecordBatch]
_NOT_NULL = re.compile(r"(\w+) is not null")
_NOT_SAME = re.compile(r"not \((\w+) <=> (\w+)\)")


class LocalRow(dict[str, Any]):
    """A row, by its columns' names; also as attributes, as Spark's rows are."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def asDict(self, recursive: bool = False) -> dict[str, Any]:  # noqa: N802 - the name is Spark's
        """The row as a dictionary; what is nested is one already."""
        return dict(self)


class LocalFrame:
    """Batches that are made when they are wanted; each operation gives another frame."""

    def __init__(self, batches: Callable[[], Batches]) -> None:
        self.batches = batches

    @classmethod
    def of(cls, table: pa.Table) -> LocalFrame:
        """A frame of what there is."""
        return cls(lambda: iter(table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]))

    def mapped(self, function: Callable[[Batches], Batches]) -> LocalFrame:
        """What a function makes of the batches."""
        return LocalFrame(lambda: function(self.batches()))

    def collect(self) -> list[LocalRow]:
        """All rows."""
        return [LocalRow(row) for batch in self.batches() for row in batch.to_pylist(maps_as_pydicts="strict")]

    def select(self, *names: str) -> LocalFrame:
        """Some of the columns."""
        return LocalFrame(lambda: (batch.select(names) for batch in self.batches()))

    def drop(self, name: str) -> LocalFrame:
        """All columns but one."""
        return self._of_whole(lambda table: table.drop_columns(name))

    def where(self, condition: str) -> LocalFrame:
        """The rows of which a condition holds, in one of the forms that replays use."""
        not_null, not_same = _NOT_NULL.fullmatch(condition), _NOT_SAME.fullmatch(condition)
        assert not_null or not_same, condition

        def chosen(batch: pa.RecordBatch) -> pa.RecordBatch:
            if not_null is not None:
                return batch.filter(batch[not_null[1]].is_valid())
            assert not_same is not None, "one of the two has matched"
            one, other = batch[not_same[1]], batch[not_same[2]]
            same = pc.if_else(
                pc.and_(one.is_valid(), other.is_valid()),
                pc.equal(one, other),
                pc.equal(one.is_valid(), other.is_valid()),
            )
            return batch.filter(pc.invert(same))

        return LocalFrame(lambda: map(chosen, self.batches()))

    def orderBy(self, *names: str) -> LocalFrame:  # noqa: N802 - the name is Spark's
        """All rows in order."""
        return self._of_whole(lambda table: table.sort_by([(name, "ascending") for name in names]))

    def sortWithinPartitions(self, *names: str) -> LocalFrame:  # noqa: N802 - the name is Spark's
        """The same: there is one partition."""
        return self.orderBy(*names)

    def repartition(self, *_: object) -> LocalFrame:
        """Itself: there is one partition."""
        return self

    def repartitionById(self, *_: object) -> LocalFrame:  # noqa: N802 - the name is Spark's
        """Itself: there is one partition."""
        return self

    def unionByName(self, other: LocalFrame) -> LocalFrame:  # noqa: N802 - the name is Spark's
        """The rows of both."""

        def both() -> Batches:
            yield from self.batches()
            yield from other.batches()

        return LocalFrame(both)

    def join(self, other: LocalFrame, keys: Sequence[str], how: str) -> LocalFrame:
        """The rows of both brought together by keys."""

        def joined() -> Batches:
            kind = how.replace("_", " ")
            table = _whole(self).join(_whole(other), list(keys), join_type=kind, coalesce_keys=True, use_threads=False)
            yield from table.to_batches()

        return LocalFrame(joined)

    def persist(self, *_: object) -> LocalFrame:
        """The same rows, read once."""
        return LocalFrame.of(_whole(self))

    def unpersist(self) -> LocalFrame:
        """Let go of them, which Python does."""
        return self

    def __getitem__(self, name: str) -> str:
        return name

    def _of_whole(self, function: Callable[[pa.Table], pa.Table]) -> LocalFrame:
        def made() -> Batches:
            yield from function(_whole(self)).to_batches()

        return LocalFrame(made)


def _whole(frame: LocalFrame) -> pa.Table:
    return pa.Table.from_batches(list(frame.batches()))
