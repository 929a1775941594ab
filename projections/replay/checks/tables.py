"""Writes the views of a log as Parquet: a folder for each view, for Spark SQL, notebooks and any other engine.

Each task writes the views of its bucket of the shards; this process writes those of the whole log.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from secrets import token_hex  # noqa: TID251 - for the names of files

import duckdb
import pyarrow as pa

from projections.replay.checks.checking import in_buckets
from projections.replay.checks.history import OF_THE_LOG, views
from projections.replay.log.log_ref import Ref, as_of, ends_of, offsets_row
from projections.replay.outcome import Options, Outcome, ReplayError
from projections.replay.runner import Batches, Runner, events_of

_WRITTEN = pa.schema([("file", pa.string())])


def check_views(_: Ref, options: Options) -> None:
    """Check, before Spark starts, that the output folder does not exist yet. Raises ReplayError."""
    if Path(options.output or "").exists():
        raise ReplayError(f"{options.output} already exists: name a new folder")


def run_views(runner: Runner, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay views`: write all views up to a point in time to `options.output`. Raises ReplayError."""
    ends, folder = ends_of(ref, options.at), Path(options.output or "").absolute()
    names = [view.name for view in views() if view.name not in (None, "causes")]
    folder.mkdir(parents=True)
    try:
        for name in names:
            (folder / name).mkdir()
        of_the_log = partial(_write, folder, OF_THE_LOG)
        of_a_bucket = partial(_write_bucket, folder, [name for name in names if name not in OF_THE_LOG])
        here, there = in_buckets(runner, partial(events_of, ref, ends), of_the_log, of_a_bucket, _WRITTEN)
        files = {*here, *there["file"].to_pylist()}
        for file in folder.glob("*/*"):
            if str(file) not in files:
                file.unlink()  # of a task that ran twice
        if not all(Path(file).is_file() for file in files):
            raise ReplayError(f"the workers wrote to another {folder}: name a folder that they share with this machine")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    row = {"output": str(folder), **offsets_row(ends), "views": names}
    return Outcome([row], False, [f"{len(names)} views as of {as_of(ends)} are in {folder}"])


def _write(folder: Path, names: tuple[str, ...] | list[str], history: duckdb.DuckDBPyConnection) -> list[str]:
    files = [str(folder / name / f"part-{token_hex(8)}.parquet") for name in names]
    for name, file in zip(names, files, strict=True):
        history.execute(f"copy (from {name}) to ? (format parquet)", [file]).fetchall()
    return files


def _write_bucket(folder: Path, names: list[str], bucket: duckdb.DuckDBPyConnection) -> Batches:
    yield pa.RecordBatch.from_pydict({"file": _write(folder, names, bucket)}, schema=_WRITTEN)
