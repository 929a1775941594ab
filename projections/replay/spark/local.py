"""What a replay uses of Spark, on one core of this process: `--local`.

What it is for: small logs. Spark takes 9 s to start, and then folds as fast as its cores; some hundred thousand events
are done by then without it. The answers are the same, because the code is: what Spark would have its workers read is
read here, and the folds get the same batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa

from projections.replay.errors import ReplayError
from projections.replay.spark.local_frame import LocalFrame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Conf:
    def get(self, _: str, default: str | None = None) -> str | None:
        """The master, which is the only setting that replays ask for: code is found where it is."""
        return "local[1]"


class LocalSession:
    """Stands where a Spark session would."""

    conf = _Conf()

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
