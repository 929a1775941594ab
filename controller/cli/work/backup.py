"""`topicwright backup`: a log copied beside its service; and `recover`: a data folder of it, of any moment.

A backup is an archive whose last stretch may be short: a second run adds what is new since. What is recovered is made
beside the folder that is named, which it becomes once it is whole.

Exit codes: 0 done; 2 wrong usage, or something is wrong with the log, the store or what is in it.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from controller.cli.terminal.usage import complain
from controller.machine.apply import CannotApply
from events.catalog import EVENT_VERSION, MetadataAdopted, QuorumEpochBegun, Recorded
from events.codec import EventDecodeError
from events.logs.log import LogError
from events.logs.rocksdb_log import RocksDbLog
from projections.text.moments import iso, parse_moment

UNFINISHED = ".unfinished"
MARK = "made-by-topicwright-recover"


class Unusable(Exception):
    """What was named cannot be used; the message says why."""


def backup(options: argparse.Namespace) -> int:
    """Copy what is new; the exit code."""
    return _exit_code(partial(_backup, options))


def recover(options: argparse.Namespace) -> int:
    """Make the folder; the exit code."""
    return _exit_code(partial(_recover, options))


def _exit_code(run: Callable[[], None]) -> int:
    try:
        run()
    except ImportError as error:
        return complain(f"this takes {error.name}, which is not installed: pip install 'topicwright[replay]'")
    except (LogError, EventDecodeError, Unusable, CannotApply, OSError) as error:
        return complain(str(error))
    return 0


def _backup(options: argparse.Namespace) -> None:
    from events.logs.archive.manifest import Writer, noted, starts_in
    from events.logs.archive.place import is_inside, open_place
    from events.logs.archive.writing import Archiver
    from projections.replay.log.secondary import look
    from projections.replay.spark.column_batches import Columns
    from projections.replay.spark.columns import COLUMNS
    from projections.store.tree import root_over

    place = open_place(options.url)
    with look(options.data) as log:
        if is_inside(place, options.data):
            raise Unusable(f"{place.url} is in the folder that is to be copied: name a place beside it")
        own = noted(log).url
        if own and open_place(own).url == place.url:
            raise Unusable(f"{place.url} is where the service archives: name another place for the backup")
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
        added, size, progress = 0, 0, _progress(end)
        while (manifest := archiver.step(end)) is not None:
            if manifest.start not in there:
                added += manifest.end - manifest.start
                size += manifest.events.size + manifest.index.size
            progress(manifest.end)
        print(f"{added} events added, {size} bytes: {place.url} holds all {archiver.next_offset} of {options.data}")


def _recover(options: argparse.Namespace) -> None:
    from events.logs.archive.manifest import read_chain
    from events.logs.archive.place import open_place
    from projections.store.archived.recovering import recover as recovered

    place, data = open_place(options.url), options.data
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise Unusable(f"{data} is there, and not empty: name a folder to be made")
    about, manifests = read_chain(place)
    at = None if options.at is None else parse_moment(options.at)
    history = secrets.token_hex(8)
    with _beside(data) as fresh:
        with closing(_new_log(fresh, about.cluster_id)) as log:
            last = recovered(log, place, manifests, at, history, _progress(manifests[-1].end if manifests else 0))
            real = _real_brokers(log)
        fresh.replace(data)
    _say(data, about.cluster_id, about.history, history, last)
    if real:
        print(
            "It led real brokers, which follow the metadata log: that is not in a backup. `topicwright restore` makes "
            "a folder to lead them of a broker's copy; this one is to be read."
        )


@contextmanager
def _beside(data: Path) -> Iterator[Path]:
    """Where to make a data folder: in a folder next to it, which no other process uses meanwhile and which is removed
    afterwards. Nothing is removed but what a `recover` made there, which the mark tells. Raises Unusable, OSError."""
    around = data.absolute().with_name(data.name + UNFINISHED)
    mark, log = around / MARK, around / "log"
    if around.is_symlink() or (around.is_dir() and not mark.is_file() and any(around.iterdir())):
        raise Unusable(
            f"{around} is needed for the work, and was not made by `recover`: move it, or name another folder"
        )
    around.mkdir(0o700, parents=True, exist_ok=True)
    held = os.open(around, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Unusable(f"{data} is being made by another process: wait for it, or name another folder") from None
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


def _real_brokers(log: RocksDbLog) -> bool:
    from events.codec import decode_event

    kinds = (MetadataAdopted, QuorumEpochBegun)
    offsets = zip(range(1000), log.shard_offsets(""), strict=False)
    return any(isinstance(decode_event(offset, log.read_one(offset)).event, kinds) for _, offset in offsets)


def _say(data: Path, cluster_id: str, before: str, history: str, last: Recorded) -> None:
    print(f"{data} holds cluster {cluster_id} as it was after event {last.offset}, of {iso(last.at_ms)}")
    print(
        f"its history goes its own way from here: it is {history}, and was {before}; archive it to a place of its own"
    )


def _progress(end: int) -> Callable[[int], object]:
    """Shows on a terminal how far it is."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda done: print(f"\r{done:,} of {end:,} events", end="" if done < end else "\n", file=sys.stderr)
