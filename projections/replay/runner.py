"""Runs functions over the events of a log: in this process (`InProcess`), or in Spark's tasks (`spark.on_spark`).

Sub-commands of `topicwright replay` pass a `Source` to read and a function of Arrow batches to `Runner.fold`. The
function is the same in both places, so `--local` runs the same code without Spark.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from projections.replay.log.columns import arrow_schema
from projections.replay.log.kafka_scan import Range
from projections.replay.log.log_ref import RANGE_EVENTS, Ends, Ref, log_of, ranges_of, read_range
from projections.replay.outcome import Options, ReplayError

Batches = Iterator[pa.RecordBatch]
Rows = Batches | str
"""Rows as Arrow batches, or as a DuckDB query."""
Function = Callable[[Any], Batches]
"""Gets `Rows`; always batches if they are ordered, or if the source has no query."""


class Source(NamedTuple):
    """Parts of a log: `read` returns the Arrow batches of one part, with `schema`. Spark runs a task for each part.

    If the log is stored in buckets of shards, these are other parts of the same events, one for each bucket. `query`
    returns a DuckDB query of some parts, if the events are in files."""

    parts: Sequence[Any]
    read: Callable[[Any], Batches]
    schema: pa.Schema
    buckets: Sequence[Any] = ()
    query: Callable[[Sequence[Any]], str] | None = None

    def batches(self) -> Batches:
        """The batches of all parts."""
        return (batch for part in self.parts for batch in self.read(part))

    def rows(self) -> Rows:
        """The query of all parts, or else their batches."""
        return self.batches() if self.query is None else self.query(self.parts)


SHARD = ("log_partition", "shard")
"""The columns that name a shard."""
PLACE = (*SHARD, "offset")
"""The columns by which `Runner.fold` sorts: by shard, then by offset."""


class Runner(Protocol):
    """Runs functions over a source."""

    def fold(
        self, source: Source, function: Function, schema: pa.Schema, buckets: int = 0, ordered: bool = False
    ) -> pa.Table:
        """Run `function` on a source, and return its rows, which have `schema`.

        Each task calls the function with its rows. With `buckets`, all rows of a shard go to the same bucket, which
        is a task, sorted by PLACE if `ordered`. Without `buckets`, a task reads one or more parts of the source.
        """

    def ship(self, modules: Iterable[str]) -> None:
        """Give the tasks the code of these top-level modules, which are loaded here."""


class InProcess:
    """Runs everything on one core of this process. Sorting holds all rows in memory, about 500 bytes an event."""

    def fold(
        self, source: Source, function: Function, schema: pa.Schema, buckets: int = 0, ordered: bool = False
    ) -> pa.Table:
        rows = source.rows()
        if ordered:
            whole = pa.Table.from_batches(source.batches(), source.schema)
            rows = iter(whole.sort_by([(name, "ascending") for name in PLACE]).to_batches())
        return pa.Table.from_batches(function(rows), schema)

    def ship(self, modules: Iterable[str]) -> None:
        """Nothing to do: this process has loaded the modules."""


def events_of(ref: Ref, ends: Ends, columns: Sequence[str]) -> Source:
    """The events of a log before `ends`, with some of their columns."""
    log = log_of(ref)

    def read(wanted: Range) -> Batches:
        return read_range(log, wanted, columns)

    return Source(ranges_of(ref, 0, ends, RANGE_EVENTS), read, arrow_schema(columns))


WRITTEN = pa.schema([("file", pa.string())])
"""The rows of tasks that write files: the path of each in its folder."""


@contextmanager
def new_folder(folder: Path) -> Iterator[set[str]]:
    """Make a folder for files that tasks write. The `with` block gets a set, to which it adds the paths of the files in
    the folder. Afterwards other files, of tasks that ran twice, are removed. If the block fails, the folder is removed.
    Raises ReplayError if a file is missing, because the workers write to a folder that this process does not see."""
    folder.mkdir(parents=True)
    files = set[str]()
    try:
        yield files
        for file in (one for one in folder.rglob("*") if one.is_file()):
            if str(file.relative_to(folder)) not in files:
                file.unlink()
        if not all((folder / file).is_file() for file in files):
            raise ReplayError(
                f"{folder} lacks files that the Spark workers wrote: name a folder that they share with this machine"
            )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def check_new(_: Ref, options: Options) -> None:
    """Raise ReplayError if the output folder exists already."""
    if options.to is not None and Path(options.to).exists():
        raise ReplayError(f"{options.to} already exists: name a new folder")
