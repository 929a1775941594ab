"""Python functions over Arrow in Spark's tasks, or in this process.

Reading a log begins with numbers (`map_numbers`), not with Spark's data sources in Python: for those Spark starts three
more Python processes, one after another, which takes four seconds of the first answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined]  # not in its stubs
from pyspark.util import PythonEvalType

from projections.replay.spark.columns import ddl
from projections.replay.spark.connect import is_connect
from projections.replay.spark.local_frame import LocalFrame


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """`DataFrame.mapInArrow`, without pandas.

    Spark's own method refuses to work where pandas is not installed, though neither it nor the worker then uses
    anything of it (4.3.0). These are its steps without that check. Spark Connect needs pandas for itself.
    """
    if isinstance(frame, LocalFrame):
        return frame.mapped(function)
    if is_connect(frame.sparkSession):
        return frame.mapInArrow(function, schema)
    udf = vectorized_udf(function, returnType=schema, functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*(frame[name] for name in frame.columns))
    return type(frame)(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def map_numbers(
    session: SparkSession, count: int, function: Callable[[int], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> DataFrame:
    """What `function` makes of each number from 0 up to but not including `count`, in a task of its own."""

    def mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from function(number)

    return map_in_arrow(session.range(0, count, 1, count), mapped, ddl(schema))
