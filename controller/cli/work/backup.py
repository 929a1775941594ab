"""`topicwright backup`: copy a log while its service runs; `recover`: create a data folder as of any point in time.

A backup is an archive whose last segment may be short; the next run adds the new events. `recover` works in a folder
next to the named one, and renames it when it is complete.

Exit codes: 0 done; 2 wrong usage, or an error of the log or the store.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from controller.cli.arguments import complain
from controller.cli.output import progress_to
from controller.machine.apply import CannotApply
from events.catalog import EVENT_VERSION, MetadataAdopted, QuorumEpochBegun, Recorded
from events.codec import EventDecodeError
from events.logs.log import LogError
from events.logs.rocksdb_log import RocksDbLog
from projections.text.moments import iso, parse_moment

UNFINISHED = ".unfinished"
MARK = "made-by-topicwright-recover"


class Unusable(Exception):
    """A folder or store cannot be used; the message says why."""


def backup(options: argparse.Namespace) -> int:
    """Copy new events; returns the exit code."""
    return _exit_code(partial(_backup, options))


def recover(options: argparse.Namespace) -> int:
    """Create the folder; returns the exit code."""
    return _exit_code(partial(_recover, options))


def _exit_code(run: Callable[[], None]) -> int:
    try:
        run()
    except ImportError as error:
        return complain(f"{error.name} is not installed: pip install 'topicwright[replay]'")
    except (LogError, EventDecodeError, Unusable, CannotApply, OSError) as error:
        return complain(str(error))
    return 0


def _backup(options: argparse.Namespace) -> None:
    from events.logs.archive.manifest import Writer, archive_status, starts_in
    from events.logs.archive.store import is_inside, open_store
    from events.logs.archive.writing import Archiver
    from projections.replay.log.column_batches import Columns
    from projections.replay.log.columns import COLUMNS
    from projections.replay.log.secondary import look
    from projections.store.tree import root_over

    place = open_store(options.url)
    with look(options.data) as log:
        if is_inside(place, options.data):
            raise Unusable(f"{place.url} is inside the data folder: name a place outside it")
        own = archive_status(log).url
        if own and open_store(own).url == place.url:
            raise Unusable(f"{place.url} is the archive of the service: name another place for the backup")
        end = log.durable_offset
        writer = Writer(
            boot=secrets.token_hex(8),
            where=f"backup, process {os.getpid()} of {socket.gethostname()}",
            since_ms=time.time_ns() // 1_000_000,
        )
        archiver = Archiver(
            log,
            place,
            writer,
            lambda: Columns(tuple(COLUMNS)),
            lambda start, stop: root_over(value for _, value in log.read(start, stop)),
            lambda: None,
        )
        there = set(starts_in(place))
        added, size, progress = 0, 0, progress_to(end)
        while (manifest := archiver.step(end)) is not None:
            if manifest.start not in there:
                added += manifest.end - manifest.start
                size += manifest.events.size + manifest.index.size
            progress(manifest.end)
        print(f"{added} events added, {size} bytes: {place.url} has all {archiver.next_offset} of {options.data}")


def _recover(options: argparse.Namespace) -> None:
    from events.logs.archive.manifest import read_chain
    from events.logs.archive.store import open_store
    from projections.store.archived.recovering import recover as recovered

    place, data = open_store(options.url), options.data
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise Unusable(f"{data} exists and is not empty: name a new folder")
    about, manifests = read_chain(place)
    at = None if options.at is None else parse_moment(options.at)
    history = secrets.token_hex(8)
    with _work_folder(data) as fresh:
        with closing(_new_log(fresh, about.cluster_id)) as log:
            last = recovered(log, place, manifests, at, history, progress_to(manifests[-1].end if manifests else 0))
            is_kraft = _led_kafka_brokers(log)
        fresh.replace(data)
    _report(data, about.cluster_id, about.history, history, last)
    if is_kraft:
        print(
            "It led Kafka brokers, which follow the metadata log; a backup does not have that. `topicwright restore` "
            "creates a folder to lead them, from a broker's copy; this folder can only be read."
        )


@contextmanager
def _work_folder(data: Path) -> Iterator[Path]:
    """A locked folder next to the data folder to create; removed afterwards. Only a folder that a `recover` marked is
    ever removed. Raises Unusable, OSError."""
    around = data.absolute().with_name(data.name + UNFINISHED)
    mark, log = around / MARK, around / "log"
    if around.is_symlink() or (around.is_dir() and not mark.is_file() and any(around.iterdir())):
        raise Unusable(
            f"{around} is needed as a work folder, but was not created by `recover`: move it, or name another folder"
        )
    around.mkdir(0o700, parents=True, exist_ok=True)
    held = os.open(around, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Unusable(f"another process is creating {data}: wait for it, or name another folder") from None
        mark.touch()
        if log.exists():
            shutil.rmtree(log)
        try:
            yield log
        finally:
            shutil.rmtree(log, ignore_errors=True)
            with suppress(OSError):
                mark.unlink()
                around.rmdir()
    finally:
        os.close(held)


def _new_log(folder: Path, cluster_id: str) -> RocksDbLog:
    return RocksDbLog.open(
        folder, cluster_id=cluster_id, event_version=EVENT_VERSION, new_cluster_id=lambda: cluster_id
    )


def _led_kafka_brokers(log: RocksDbLog) -> bool:
    from events.codec import decode_event

    kinds = (MetadataAdopted, QuorumEpochBegun)
    offsets = zip(range(1000), log.shard_offsets(""), strict=False)
    return any(isinstance(decode_event(offset, log.read_one(offset)).event, kinds) for _, offset in offsets)


def _report(data: Path, cluster_id: str, before: str, history: str, last: Recorded) -> None:
    print(f"{data} has cluster {cluster_id} as of event {last.offset}, of {iso(last.at_ms)}")
    print(f"it starts a new history {history} (before: {before}), which needs an archive of its own")
