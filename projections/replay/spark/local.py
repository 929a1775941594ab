"""What a replay uses of Spark, on one core of this process: `--local`.

What it is for: small logs. Spark takes 15 s to start, and then folds as fast as its cores; some 200,000 events are done
by then without it. The answers are the same, because the code is: the data sources that Spark would run in its workers
are read here, and the folds get the same batches.

It stands apart from `local_frame` because it knows the data sources, and through them the machine's states, which
checks must not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from projections.replay.errors import ReplayError
from projections.replay.spark.local_frame import Batches, LocalFrame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource


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
