"""`adopt`, `restore` and `handback`: take a cluster over from Kafka's own controller, rebuild a lost controller from a
broker's copy of the metadata log, and give a cluster back."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from controller.brokers.kraft.log.batches import BrokenBatch
from controller.brokers.kraft.log.metadata_codec import MalformedRecord
from controller.brokers.kraft.log.metadata_records import RegisterBrokerRecord, TopicRecord
from controller.brokers.kraft.moving.adopting import COMMAND, Adopted, adopted
from controller.brokers.kraft.moving.handing_back import HAND_BACK, free_left, take_partition, write_folder
from controller.brokers.kraft.moving.kafka_folder import KafkaFolder, read_folder, refuse_if_in_use
from controller.brokers.kraft.quorum.files import LogCorrupted, QuorumFiles
from controller.brokers.kraft.quorum.folder import META_PROPERTIES, FolderError, NodeFolder
from controller.brokers.kraft.quorum.raft.voters import VoterHistory
from controller.brokers.kraft.unreadable_configs import UnreadableConfigs
from controller.cli.terminal.usage import complain
from controller.machine.state import Quorum
from controller.release import RELEASE
from controller.settings.load import load_settings
from events.catalog import EVENT_VERSION, Cause, Event, MetadataHandedBack, SettingsChanged
from events.logs.log import EventLog, LogError
from events.logs.rocksdb_log import RocksDbLog
from events.names import RequestId
from projections.store.recorder import Recorder
from projections.store.store import TopicStore
from projections.text.wording import many


def adopt(options: argparse.Namespace) -> int:
    """Take a cluster over; the exit code."""

    def run() -> None:
        folder = read_folder(options.source, cut_torn_tail=options.cut_torn_tail)
        refuse_if_in_use(folder.path)
        _check_cluster(folder, options.cluster_id)
        taken = adopted(folder, _request_id("adopt"))
        if taken.quorum.node_id != folder.node_id:
            raise FolderError(
                f"{folder.path} is that of node {folder.node_id}, a broker; the controller is node "
                f"{taken.quorum.node_id}: name its folder, or if that is lost, use restore"
            )
        _take(options, folder, taken)

    return _exit_code(run)


def restore(options: argparse.Namespace) -> int:
    """Rebuild a controller; the exit code."""

    def run() -> None:
        folders = [read_folder(source, cut_torn_tail=options.cut_torn_tail) for source in options.sources]
        for each in folders:
            _check_cluster(each, options.cluster_id or folders[0].cluster_id)
        folder = max(folders, key=lambda each: (each.epoch, each.end_offset))
        _take(options, folder, adopted(folder, _request_id("restore")))

    return _exit_code(run)


def handback(options: argparse.Namespace) -> int:
    """Give a cluster back; the exit code."""

    def run() -> None:
        if not (options.data / "CURRENT").is_file():
            raise FolderError(f"{options.data} holds no log: name the folder that `topicwright serve --data` was given")
        log = RocksDbLog.open(
            options.data, cluster_id=None, event_version=EVENT_VERSION, new_cluster_id=_no_new_cluster
        )
        try:
            store = TopicStore(log)
            quorum = store.durable_cluster.quorum
            if quorum is None or not (options.data / META_PROPERTIES).exists():
                raise FolderError(f"{options.data} is not that of real brokers: there is nothing to give back")
            unreadable = UnreadableConfigs()
            for _ in unreadable.walk(lambda: store):
                pass
            node = NodeFolder.open(options.data, log.cluster_id, quorum.node_id, lambda: os.urandom(16))
            files = QuorumFiles(node.partition)
            try:
                _check_alone(options.data, files, quorum)
                left = free_left(files, quorum.node_id, _now_ms())
                write_folder(
                    options.to,
                    node,
                    files,
                    log.cluster_id,
                    quorum,
                    replace=options.replace,
                    before=lambda: _note_handback(log, options.to.absolute(), files),
                )
            finally:
                files.close()
                node.close()
        finally:
            log.close()
        _print(unreadable)
        print(f"cluster {log.cluster_id} is written to {options.to}, up to offset {files.end}")
        if left:
            print(f"The registrations of controllers that left block no upgrade any more: {', '.join(map(str, left))}")
        print(
            f"Start Kafka's controller as node {quorum.node_id} on the address that brokers know, with log.dirs="
            f"{options.to.absolute()}. {options.data} is not served any more: to come back, adopt into a new folder."
        )

    return _exit_code(run)


def _check_alone(data: Path, files: QuorumFiles, quorum: Quorum) -> None:
    voters = VoterHistory(files, ()).now.ids
    if voters not in ((), (quorum.node_id,)):
        raise FolderError(
            f"{data} is of one of the voters {', '.join(map(str, voters))}: there is nothing to hand back, since the "
            f"others go on without it: topicwright leave --data {data}"
        )


def _note_handback(log: EventLog, folder: Path, files: QuorumFiles) -> None:
    """Have the log say who leads from here on, so that it is not served: two would lead the same brokers.

    It is durable before the folder is there; what breaks off in between is done again by the same command.
    """
    event = MetadataHandedBack(str(folder), files.last_epoch, files.end)
    _write(log, Cause(HAND_BACK, _request_id("handback")), (event,), {})


def _exit_code(run: Callable[[], None]) -> int:
    try:
        run()
    except (FolderError, BrokenBatch, MalformedRecord, LogCorrupted, LogError, OSError) as error:
        return complain(str(error))
    return 0


def _check_cluster(folder: KafkaFolder, cluster_id: str | None) -> None:
    if cluster_id is not None and folder.cluster_id != cluster_id:
        raise FolderError(f"{folder.path} is of cluster {folder.cluster_id}, not of {cluster_id}")


def _take(options: argparse.Namespace, folder: KafkaFolder, taken: Adopted) -> None:
    log = RocksDbLog.open(
        options.data,
        cluster_id=folder.cluster_id,
        event_version=EVENT_VERSION,
        new_cluster_id=lambda: folder.cluster_id,
    )
    try:
        if log.next_offset:
            raise FolderError(f"{options.data} holds a log of {log.next_offset} events: name an empty folder")
        quorum = taken.quorum
        epoch = max(folder.epoch, folder.quorum_state.epoch)
        take_partition(folder.path, options.data, folder.cluster_id, quorum.node_id, quorum.directory_id, epoch)
        settings = SettingsChanged(load_settings().decision_settings(), RELEASE)
        _write(log, Cause(COMMAND, taken.request_id), (settings, *taken.events), taken.state)
    finally:
        log.close()
    _say_what_was_taken(options, folder, taken)


def _write(log: EventLog, cause: Cause, events: Sequence[Event], more: Mapping[bytes, bytes | None]) -> None:
    """Append events, with the state that they lead to and `more` keys, in one commit. Raises LogError.

    They are in no request's index: no client requested them.
    """
    recorder = Recorder(log, TopicStore(log))
    recorder.record(max(_now_ms(), recorder.last_ms), cause, events, indexed=False)
    recorder.commit(more)
    log.flush()


def _say_what_was_taken(options: argparse.Namespace, folder: KafkaFolder, taken: Adopted) -> None:
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
    if folder.cut:
        print(f"{folder.cut} bytes at the end of the log were left out: an incomplete batch")
    unreadable = UnreadableConfigs()
    for event in taken.events:
        unreadable.take(event)
    _print(unreadable)
    kraft = f" --set kraft.version={quorum.kraft_version}" if quorum.kraft_version else ""
    where = f"{quorum.host}:{quorum.port}" if quorum.port else "HOST:PORT"
    print(
        f"Lead it with: topicwright serve --brokers kraft --data {options.data} --set node.id={quorum.node_id}{kraft} "
        f"--kafka {where}, on the address that brokers know."
    )


def _print(unreadable: UnreadableConfigs) -> None:
    for line in unreadable.lines():
        print(line)


def _request_id(what: str) -> RequestId:
    return RequestId(f"{what}-{_now_ms():x}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _no_new_cluster() -> NoReturn:
    raise FolderError("the folder holds no log: name the folder that `topicwright serve --data` was given")
