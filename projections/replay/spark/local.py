"""What a replay uses of Spark, on one core of this process: `--local`.

What it is for: small logs. Spark takes 15 s to start, and then folds as fast as its cores; some 200,000 events are done
by then without it. The answers are the same, because the code is: the data sources that Spark would run in its workers
are read here, and the folds get the same batches.

Method. A frame is a way to its batches (Arrow), which are made when somebody collects them. What sorts or joins holds
everything in memory, about 500 bytes an event.

What it does not do: anything of Spark that no replay uses. What is asked for beyond that fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from projections.replay.errors import ReplayError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

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


class _Reader:
    """Reads a data source as Spark's reader would have it read."""

    def __init__(self, source: type[DataSource]) -> None:
        self._source = source
        self._options: dict[str, str] = {}

    def option(self, name: str, value: object) -> _Reader:
        """Set one option."""
        self._options[name] = str(value)
        return self

    def options(self, **options: str) -> _Reader:
        """Set some options."""
        self._options |= options
        return self

    def load(self, path: str) -> LocalFrame:
        """A frame of what the source gives."""
        source = self._source({**self._options, "path": path})
        reader = source.reader(cast(Any, None))

        def batches() -> Batches:
            for partition in reader.partitions():
                yield from cast(Batches, reader.read(partition))

        return LocalFrame(batches)


class _Conf:
    def get(self, _: str, default: str | None = None) -> str | None:
        """The master, which is the only setting that replays ask for: code is found where it is."""
        return "local[1]"


class LocalSession:
    """Stands where a Spark session would."""

    conf = _Conf()

    @property
    def read(self) -> LocalSession:
        """What reads."""
        return self

    def format(self, name: str) -> _Reader:
        """A reader of one of this project's data sources."""
        from projections.replay.spark.packed import PackSource
        from projections.replay.spark.source import TopicwrightSource

        return _Reader({one.name(): one for one in (PackSource, TopicwrightSource)}[name])

    def createDataFrame(self, table: pa.Table) -> LocalFrame:  # noqa: N802 - the name is Spark's
        """A frame of a table."""
        return LocalFrame.of(table)

    def range(self, start: int, end: int, *_: int) -> LocalFrame:
        """A frame of numbers, `id`."""
        return LocalFrame.of(pa.table({"id": pa.array(range(start, end), pa.int64())}))

    def stop(self) -> None:
        """Nothing runs."""


def local_session() -> SparkSession:
    """A session on one core of this process, which does what replays need of Spark's."""
    return cast("SparkSession", LocalSession())


def refuse_local(session: object, what: str) -> None:
    """Raise ReplayError for what only Spark does."""
    if isinstance(session, LocalSession):
        raise ReplayError(f"{what} needs Spark: it goes without --local")
