"""Runs the functions of a replay in Spark's tasks, with `mapInArrow`.

A log is read from a frame of part numbers, not through the data source: for a Python data source Spark starts three
more processes, which adds four seconds to the first result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from projections.replay.log.columns import ddl
from projections.replay.runner import Batches, Function, Source
from projections.replay.spark.session import is_local, roots_of, ship


class OnSpark:
    """A `Runner` with a task for each part of a source, or for each bucket."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def fold(
        self,
        source: Source,
        function: Function,
        schema: pa.Schema,
        *,
        by: Sequence[str] = (),
        order: Sequence[str] = (),
        buckets: int = 1,
    ) -> pa.Table:
        parts, read, count = source.parts, source.read, len(source.parts)

        def read_parts(batches: Batches) -> Batches:
            for batch in batches:
                for number in batch["id"].to_pylist():
                    yield from read(parts[number])

        numbers = self._session.range(0, count, 1, count)
        if by:
            frame = numbers.mapInArrow(read_parts, ddl(source.schema)).repartition(buckets, *by)
            if order:
                frame = frame.sortWithinPartitions(*order)
            frame = frame.mapInArrow(function, ddl(schema))
        else:
            frame = numbers.mapInArrow(lambda batches: function(read_parts(batches)), ddl(schema))
        return frame.toArrow().cast(schema)

    def ship(self, modules: Iterable[str]) -> None:
        """Send the modules to the workers, unless the workers run on this machine.

        Installed packages are not sent. They must be installed on the workers, like this project's dependencies.
        """
        if is_local(self._session):
            return
        for name in modules:
            roots = roots_of(name)
            if not any("site-packages" in root.parts for root in roots):
                ship(self._session, roots, name)
