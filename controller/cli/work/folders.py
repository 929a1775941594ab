"""`topicwright adopt`, `restore` and `handback`: take over a cluster from Kafka's controller, rebuild a lost controller
from a broker's copy of the metadata log, and hand a cluster back. `backup` and `recover`: copy a log while its service
runs, and create a data folder as of any point in time.

A backup is an archive whose last segment may be short; the next run adds the new events. `recover` works in a folder
next to the named one, and renames it when it is complete.
"""

import argparse
import os
import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from controller.brokers.kraft.adopting import (
    COMMAND,
    HAND_BACK,
    Adopted,
    KafkaFolder,
    adopted,
    clear_removed_controllers,
    copy_metadata_log,
    read_folder,
    refuse_if_in_use,
    write_folder,
)
from controller.brokers.kraft.kraft_brokers import UnreadableConfigs
from controller.cli.folder import NO_LOG
from controller.cli.output import progress_to
from controller.kafka.messages.records import RegisterBrokerRecord, TopicRecord
from controller.quorum.files import QuorumFiles
from controller.quorum.folder import META_PROPERTIES, FolderError, NodeFolder
from controller.quorum.raft.voters import VoterHistory
from controller.release import RELEASE
from controller.serving.process import wall_ms
from controller.settings.load import load_settings
from controller.store.recorder import Recorder
from controller.store.store import TopicStore
from events.catalog import Cause, Event, MetadataHandedBack, SettingsChanged
from events.errors import UserError
from events.logs.log import EventLog
from events.logs.rocksdb_log import RocksDbLog
from events.names import RequestId
from projections.text.points_in_time import iso, parse_point_in_time
from projections.text.wording import many


def adopt(options: argparse.Namespace) -> None:
    folder = read_folder(options.source, ignore_torn_tail=options.cut_torn_tail)
    refuse_if_in_use(folder.path)
    _check_cluster(folder, options.cluster_id)
    taken = adopted(folder, _request_id("adopt"))
    if taken.quorum.node_id != folder.node_id:
        raise FolderError(
            f"{folder.path} belongs to node {folder.node_id}, a broker; the controller is node "
            f"{taken.quorum.node_id}: name its folder, or use restore if that is lost"
        )
    _take(options, folder, taken)


def restore(options: argparse.Namespace) -> None:
    folders = [read_folder(source, ignore_torn_tail=options.cut_torn_tail) for source in options.sources]
    for each in folders:
        _check_cluster(each, options.cluster_id or folders[0].cluster_id)
    folder = max(folders, key=lambda each: (each.epoch, each.end_offset))
    _take(options, folder, adopted(folder, _request_id("restore")))


def handback(options: argparse.Namespace) -> None:
    if not (options.data / "CURRENT").is_file():
        raise FolderError(f"{options.data} {NO_LOG}")
    with closing(RocksDbLog(options.data, cluster_id=None, new_cluster_id=_no_new_cluster)) as log:
        store = TopicStore(log)
        quorum = store.durable_cluster.quorum
        if quorum is None or not (options.data / META_PROPERTIES).exists():
            raise FolderError(f"{options.data} is not of a KRaft cluster: there is nothing to hand back")
        unreadable = UnreadableConfigs()
        for _ in unreadable.walk(lambda: store):
            pass
        opened = NodeFolder(options.data, log.cluster_id, quorum.node_id, lambda: os.urandom(16))
        with closing(opened) as node, closing(QuorumFiles(node.partition)) as files:
            voters = VoterHistory(files, ()).newest.ids
            if voters not in ((), (quorum.node_id,)):
                raise FolderError(
                    f"{options.data} belongs to one of the voters {', '.join(map(str, voters))}: nothing is handed "
                    f"back, because the others continue without it: topicwright leave --data {options.data}"
                )
            left = clear_removed_controllers(files, quorum.node_id, wall_ms())
            write_folder(
                options.to,
                node,
                files,
                log.cluster_id,
                quorum,
                replace=options.replace,
                before=lambda: _record_handback(log, options.to.absolute(), files),
            )
    for line in unreadable.lines():
        print(line)
    print(f"cluster {log.cluster_id} is written to {options.to}, up to offset {files.end}")
    if left:
        print(f"Registrations of former controllers that no longer block upgrades: {', '.join(map(str, left))}")
    print(
        f"Start Kafka's controller as node {quorum.node_id} at the address that brokers know, with log.dirs="
        f"{options.to.absolute()}. {options.data} cannot be served any more: to return, adopt into a new folder."
    )


def _record_handback(log: EventLog, folder: Path, files: QuorumFiles) -> None:
    """Record in the log that the cluster was handed back, so that `serve` refuses this log: two controllers would lead
    the same brokers. This is durable before the folder is written; after a crash the same command resumes.
    """
    event = MetadataHandedBack(str(folder), files.last_epoch, files.end)
    _write(log, Cause(HAND_BACK, _request_id("handback")), (event,), {})


def _check_cluster(folder: KafkaFolder, cluster_id: str | None) -> None:
    if cluster_id is not None and folder.cluster_id != cluster_id:
        raise FolderError(f"{folder.path} belongs to cluster {folder.cluster_id}, not to {cluster_id}")


def _take(options: argparse.Namespace, folder: KafkaFolder, taken: Adopted) -> None:
    with closing(RocksDbLog(options.data, cluster_id=folder.cluster_id)) as log:
        if log.next_offset:
            raise FolderError(f"{options.data} already has a log of {log.next_offset} events: name an empty folder")
        copy_metadata_log(folder, options.data, taken.quorum)
        settings = SettingsChanged(load_settings().decision_settings(), RELEASE)
        _write(log, Cause(COMMAND, taken.request_id), (settings, *taken.events), taken.state)
    _report_adopted(options, folder, taken)


def _write(log: EventLog, cause: Cause, events: Sequence[Event], more: Mapping[bytes, bytes | None]) -> None:
    """Append events, their state and the keys of `more` in one commit. The events are not in the index of requests,
    because no client requested them. Raises LogError."""
    recorder = Recorder(log, TopicStore(log))
    recorder.record(max(wall_ms(), recorder.last_ms), cause, events)
    recorder.commit(more)
    log.flush()


def _report_adopted(options: argparse.Namespace, folder: KafkaFolder, taken: Adopted) -> None:
    image, quorum = taken.image, taken.quorum
    counts = (
        (len(image.all(TopicRecord)), "topic"),
        (sum(map(len, image.partitions.values())), "partition"),
        (len(image.all(RegisterBrokerRecord)), "broker"),
    )
    print(
        f"cluster {folder.cluster_id} is in {options.data}: "
        + ", ".join(many(count, what) for count, what in counts)
        + f"; the metadata log ends at offset {folder.end_offset}, epoch {quorum.leader_epoch}"
    )
    if folder.torn_bytes:
        print(f"{folder.torn_bytes} bytes at the end of the log were dropped: an incomplete batch")
    unreadable = UnreadableConfigs()
    for event in taken.events:
        unreadable.on_event(event)
    for line in unreadable.lines():
        print(line)
    kraft = f" --set kraft.version={quorum.kraft_version}" if quorum.kraft_version else ""
    where = f"{quorum.host}:{quorum.port}" if quorum.port else "HOST:PORT"
    print(
        f"Start it with: topicwright serve --brokers kraft --data {options.data} --set node.id={quorum.node_id}{kraft} "
        f"--kafka {where}, at the address that brokers know."
    )


def _request_id(what: str) -> RequestId:
    return RequestId(f"{what}-{wall_ms():x}")


def _no_new_cluster() -> NoReturn:
    raise FolderError(f"the folder {NO_LOG}")


# --- backups

UNFINISHED = ".unfinished-"


def backup(options: argparse.Namespace) -> None:
    from controller.serving.archiver import Archiver
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
            since_ms=wall_ms(),
        )
        archiver = Archiver(log, place, ManifestWriter(place, writer))
        before = find_manifest(place)
        added, size, progress = 0, 0, progress_to(end)
        while (segment := archiver.step(end)) is not None:
            if before is None or segment.start >= before.end:
                added += segment.end - segment.start
                size += segment.events.size
            progress(segment.end)
        print(f"{added} events added, {size} bytes: {place.url} has all {archiver.next_offset} of {options.data}")


def recover(options: argparse.Namespace) -> None:
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
            is_kraft = TopicStore(log).durable_cluster.quorum is not None
        fresh.replace(data)
    newest = f"event {manifest.end - 1}, of {iso(manifest.segments[-1].last_ms)}"
    print(f"{place.url} ends with {newest}; it has no later events", file=sys.stderr)
    print(f"{data} has cluster {manifest.cluster_id} as of event {last.offset}, of {iso(last.at_ms)}")
    print(f"it starts a new history {history} (before: {manifest.history}), which needs an archive of its own")
    if is_kraft:
        print(
            "It led Kafka brokers, which follow the metadata log; a backup does not have that. `topicwright restore` "
            "creates a folder to lead them, from a broker's copy; this folder can only be read."
        )
