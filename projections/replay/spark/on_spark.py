"""Runs the functions of replays in Spark's tasks, through public interfaces alone (`mapInArrow`).

Reading a log begins with numbers, not with the data source: for one in Python, Spark starts three more processes, which
takes four seconds of the first answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from projections.replay.log.columns import ddl
from projections.replay.runner import Batches, Function, Source
from projections.replay.spark.session import is_local, roots_of, ship


class OnSpark:
    """A `Runner`: a task for each part of a source, and one for each bucket."""

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
        """Send the modules to the workers, unless they run on this machine. Installed packages are not sent: they must
        be installed on the workers too, like this project's dependencies."""
        if is_local(self._session):
            return
        for name in modules:
            roots = roots_of(name)
            if not any("site-packages" in root.parts for root in roots):
                ship(self._session, roots, name)
