"""`topicwright backup`: copy a log while its service runs; `recover`: create a data folder as of any point in time.

A backup is an archive whose last segment may be short; the next run adds the new events. `recover` works in a folder
next to the named one, and renames it when it is complete.

Exit codes: 0 done; 2 wrong usage, or an error of the log or the store.
"""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from controller.cli.arguments import DONE
from controller.cli.output import progress_to
from events.catalog import MetadataAdopted, QuorumEpochBegun
from events.errors import UserError
from events.logs.log import read_one, shard_offsets
from events.logs.rocksdb_log import RocksDbLog
from projections.text.points_in_time import iso, parse_point_in_time

UNFINISHED = ".unfinished-"


def backup(options: argparse.Namespace) -> int:
    """Copy the events that the backup lacks; returns the exit code."""
    from controller.serving.archiving import archiver_of
    from controller.store.tree import root_over
    from events.logs.archive.manifest import ManifestWriter, Writer, archive_status, find_manifest
    from events.logs.archive.store import is_inside, open_store
    from projections.replay.log.secondary import frozen_log

    place = open_store(options.url)
    with frozen_log(options.data) as log:
        if is_inside(place, options.data):
            raise UserError(f"{place.url} is inside the data folder: name a place outside it")
        own = archive_status(log).url
        if own and open_store(own).url == place.url:
            raise UserError(f"{place.url} is the archive of the service: name another place for the backup")
        end = log.durable_offset
        writer = Writer(
            boot=secrets.token_hex(8),
            where=f"backup, process {os.getpid()} of {socket.gethostname()}",
            since_ms=time.time_ns() // 1_000_000,
        )
        archiver = archiver_of(
            log,
            place,
            ManifestWriter(place, writer),
            lambda start, stop: root_over(value for _, value in log.read(start, stop)),
        )
        before = find_manifest(place)
        added, size, progress = 0, 0, progress_to(end)
        while (segment := archiver.step(end)) is not None:
            if before is None or segment.start >= before.end:
                added += segment.end - segment.start
                size += segment.events.size
            progress(segment.end)
        print(f"{added} events added, {size} bytes: {place.url} has all {archiver.next_offset} of {options.data}")
    return DONE


def recover(options: argparse.Namespace) -> int:
    """Create a data folder from a backup or an archive; returns the exit code."""
    from controller.store.recovering import recover as recovered
    from events.logs.archive.manifest import read_manifest
    from events.logs.archive.store import open_store

    place, data = open_store(options.url), options.data
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise UserError(f"{data} exists and is not empty: name a new folder")
    manifest = read_manifest(place)
    at = None if options.at is None else parse_point_in_time(options.at)
    history = secrets.token_hex(8)
    data.absolute().parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{data.name}{UNFINISHED}", dir=data.absolute().parent) as around:
        fresh = Path(around) / "log"
        with closing(RocksDbLog(fresh, cluster_id=manifest.cluster_id)) as log:
            last = recovered(log, place, manifest.segments, at, history, progress_to(manifest.end))
            is_kraft = _led_kafka_brokers(log)
        fresh.replace(data)
    print(f"{data} has cluster {manifest.cluster_id} as of event {last.offset}, of {iso(last.at_ms)}")
    print(f"it starts a new history {history} (before: {manifest.history}), which needs an archive of its own")
    if is_kraft:
        print(
            "It led Kafka brokers, which follow the metadata log; a backup does not have that. `topicwright restore` "
            "creates a folder to lead them, from a broker's copy; this folder can only be read."
        )
    return DONE


def _led_kafka_brokers(log: RocksDbLog) -> bool:
    from events.codec import decode_event

    kinds = (MetadataAdopted, QuorumEpochBegun)
    offsets = zip(range(1000), shard_offsets(log, ""), strict=False)
    return any(isinstance(decode_event(offset, read_one(log, offset)).event, kinds) for _, offset in offsets)
