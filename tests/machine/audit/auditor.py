"""Checks the logs of tests against the invariants of `topicwright replay invariants`, whose SQL shares no code with the
machine. A check takes a third of a second, however many logs it has."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from events.catalog import Recorded
from events.codec import encode_event
from projections.replay.checks.checking import Result, check
from projections.replay.checks.history import COLUMNS, history_of
from projections.replay.checks.invariants import violation_line
from projections.replay.log.columns import Columns, arrow_schema


def audit(*logs: Iterable[Recorded], settled: bool = False) -> list[str]:
    """The violations in logs, each a line that begins with its check. `settled` requires that topics were reconciled
    after the last broker event."""
    rows = checked(map(list, logs), settle_ms=0 if settled else None).rows
    return [f"{row['check']}: {violation_line(row, len(logs) > 1)}" for row in rows]


def checked(logs: Iterable[Sequence[Recorded]], settle_ms: int | None = 0) -> Result:
    """Check logs with DuckDB in this process. Each log becomes a log partition."""
    with history_of(batches_of(logs), arrow_schema(COLUMNS), in_task=True) as history:
        return check(history, settle_ms=settle_ms)


def batches_of(logs: Iterable[Sequence[Recorded]]) -> list[pa.RecordBatch]:
    """The events of several logs. Each log becomes a log partition."""
    batches = []
    for log_partition, log in enumerate(logs):
        made = Columns(COLUMNS, log_partition)
        for record in log:
            made.add(record, encode_event(record.at_ms, record.cause, record.event))
        batches.append(made.batch())
    return batches
