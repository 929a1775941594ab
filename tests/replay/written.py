"""Writes and reads logs in folders that hold only given records."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from events.catalog import Recorded
from events.codec import decode_event, encode_event
from events.logs.log import Commit, Entry
from events.names import shard_key
from projections.replay.log.log_ref import LogRef
from projections.replay.log.secondary import frozen_log
from projections.replay.spark.source import TopicwrightSource
from tests.replay.history import open_log


def written(folder: Path, records: Iterable[Recorded]) -> LogRef:
    """A log of these records at offsets from 0, whatever their own offsets; without state."""
    log = open_log(folder)
    try:
        log.write(Commit([_entry(record) for record in records]))
        log.flush()
    finally:
        log.close()
    return LogRef(str(folder), folder)


def records_of(ref: LogRef) -> list[Recorded]:
    with frozen_log(ref.path) as log:
        return [decode_event(offset, value) for offset, value in log.read(0)]


def read(location: str, **options: object) -> list[dict[str, Any]]:
    """The rows that the data source gives Spark with some options, in order, read in this process."""
    source = TopicwrightSource({"path": location, **{name: str(value) for name, value in options.items()}})
    source.schema()
    reader = source.reader(StructType())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches if isinstance(batch, pa.RecordBatch) for row in batch.to_pylist()]


def _entry(record: Recorded) -> Entry:
    value = encode_event(record.at_ms, record.cause, record.event)
    shard = shard_key(getattr(record.event, "topic", ""))
    return Entry(value, shard, getattr(record.event, "request_id", ""))
