"""`adopt`, `restore` and `handback`: take a cluster over from Kafka's own controller, rebuild a lost controller from a
broker's copy of the metadata log, and give a cluster back."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from controller.brokers.kraft.adopting import COMMAND, Adopted, adopted
from controller.brokers.kraft.batches import BrokenBatch
from controller.brokers.kraft.handing_back import HAND_BACK, REPLACED, write_folder
from controller.brokers.kraft.kafka_folder import FolderError, KafkaFolder, read_folder, refuse_if_in_use
from controller.brokers.kraft.metadata_log import MetadataLog
from controller.machine.apply import apply
from controller.runtime.settings import load_settings
from events.catalog import EVENT_VERSION, Cause, Event, MetadataHandedBack, Recorded, SettingsChanged
from events.codec import encode_event
from events.log import Commit, Entry, EventLog, LogError
from events.names import Offset, RequestId
from events.rocksdb_log import RocksDbLog
from projections.store import TopicStore
from projections.wording import many

DEFAULT_DATA = Path("topicwright-data")


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser], release: str) -> None:
    """Add the commands to the command line. `release` is noted beside the settings."""
    adopt = commands.add_parser("adopt", help="take over a running cluster from Kafka's own controller")
    adopt.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="METADATA_DIR",
        help="the metadata.log.dir (or log.dirs) of the stopped controller; nothing in it is changed",
    )
    restore = commands.add_parser("restore", help="rebuild a lost controller from a broker's copy of the metadata log")
    restore.add_argument(
        "--from",
        dest="sources",
        type=Path,
        action="append",
        required=True,
        metavar="BROKER_METADATA_DIR",
        help="the folder of a broker that has __cluster_metadata-0; of several, the one that is furthest counts",
    )
    for parser in (adopt, restore):
        _add_data(parser)
        parser.add_argument("--cluster-id", metavar="ID", help="refuse the folder of any other cluster")
        parser.add_argument(
            "--cut-torn-tail", action="store_true", help="leave out a batch at the very end that was not written whole"
        )
    adopt.set_defaults(func=_adopt, release=release)
    restore.set_defaults(func=_restore, release=release)
    handback = commands.add_parser("handback", help="give a cluster back to Kafka's own controller")
    handback.add_argument(
        "--to",
        type=Path,
        required=True,
        metavar="METADATA_DIR",
        help="the metadata.log.dir (or log.dirs) of Kafka's controller: an empty folder, or none yet",
    )
    _add_data(handback)
    handback.add_argument(
        "--replace", action="store_true", help=f"rename a folder of the same cluster to METADATA_DIR{REPLACED} first"
    )
    handback.set_defaults(func=_handback)


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, metavar="DIR", help="./%(default)s")


def _adopt(options: argparse.Namespace) -> int:
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

    return _told(run)


def _restore(options: argparse.Namespace) -> int:
    def run() -> None:
        folders = [read_folder(source, cut_torn_tail=options.cut_torn_tail) for source in options.sources]
        for each in folders:
            _check_cluster(each, options.cluster_id or folders[0].cluster_id)
        folder = max(folders, key=lambda each: (each.epoch, each.end_offset))
        _take(options, folder, adopted(folder, _request_id("restore")))

    return _told(run)


def _handback(options: argparse.Namespace) -> int:
    def run() -> None:
        if not (options.data / "CURRENT").is_file():
            raise FolderError(f"{options.data} holds no log: name the folder that `topicwright serve --data` was given")
        log = RocksDbLog.open(
            options.data, cluster_id=None, event_version=EVENT_VERSION, new_cluster_id=_no_new_cluster
        )
        try:
            quorum = TopicStore(log).durable_cluster.quorum
            metadata = MetadataLog(log)
            if quorum is None or not metadata.is_led:
                raise FolderError(f"{options.data} is not that of real brokers: there is nothing to give back")
            write_folder(
                options.to,
                metadata,
                log.cluster_id,
                quorum,
                replace=options.replace,
                before=lambda: _note_handback(log, options.to.absolute(), metadata),
            )
        finally:
            log.close()
        print(f"cluster {log.cluster_id} is written to {options.to}, up to offset {metadata.mark.end}")
        print(
            f"Start Kafka's controller as node {quorum.node_id} on the address that brokers know, with log.dirs="
            f"{options.to.absolute()}. {options.data} is not served any more: to come back, adopt into a new folder."
        )

    return _told(run)


def _note_handback(log: EventLog, folder: Path, metadata: MetadataLog) -> None:
    """Have the log say who leads from here on, so that it is not served: two would lead the same brokers.

    It is durable before the folder is there; what breaks off in between is done again by the same command.
    """
    event = MetadataHandedBack(str(folder), metadata.mark.epoch, metadata.mark.end)
    _write(log, Cause(HAND_BACK, _request_id("handback")), (event,), {})


def _told(run: Callable[[], None]) -> int:
    try:
        run()
    except (FolderError, BrokenBatch, LogError, OSError) as error:
        print(f"topicwright: {error}", file=sys.stderr)
        return 2
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
        settings = SettingsChanged(load_settings().decision_settings(), options.release)
        write_adopted(log, (settings, *taken.events), taken)
    finally:
        log.close()
    _say_what_was_taken(options, folder, taken)


def write_adopted(log: EventLog, events: Sequence[Event], taken: Adopted) -> None:
    """Write a cluster that was taken over into an empty log, in one commit. Raises LogError.

    The events are in no request's index: nobody asked for what was there.
    """
    _write(log, Cause(COMMAND, taken.request_id), events, taken.state)


def _write(log: EventLog, cause: Cause, events: Sequence[Event], more: Mapping[bytes, bytes]) -> None:
    """Append events, with the state that they lead to and `more` keys, in one commit."""
    at_ms = time.time_ns() // 1_000_000
    store = TopicStore(log)
    state = store.state()
    entries = []
    for offset, event in enumerate(events, log.next_offset):
        key = apply(state, Recorded(Offset(offset), at_ms, cause, event))
        entries.append(Entry(encode_event(at_ms, cause, event), key))
    log.write(Commit(entries, {**store.changes(state), **more}))
    log.flush()


def _say_what_was_taken(options: argparse.Namespace, folder: KafkaFolder, taken: Adopted) -> None:
    image, quorum = taken.image, taken.quorum
    counts = (
        (len(image.kept["TopicRecord"]), "topic"),
        (sum(map(len, image.partitions.values())), "partition"),
        (len(image.kept["RegisterBrokerRecord"]), "broker"),
    )
    print(
        f"cluster {folder.cluster_id} is in {options.data}: "
        + ", ".join(many(count, what) for count, what in counts)
        + f"; the metadata log ends at offset {folder.end_offset}, epoch {quorum.leader_epoch}"
    )
    if folder.cut:
        print(f"{folder.cut} bytes at the end of the log were left out: they are no whole batch")
    kraft = f" --set kraft.version={quorum.kraft_version}" if quorum.kraft_version else ""
    where = f"{quorum.host}:{quorum.port}" if quorum.port else "HOST:PORT"
    print(
        f"Lead it with: topicwright serve --brokers kraft --data {options.data} --set node.id={quorum.node_id}{kraft} "
        f"--kafka {where}, on the address that brokers know."
    )


def _request_id(what: str) -> RequestId:
    return RequestId(f"{what}-{time.time_ns() // 1_000_000:x}")


def _no_new_cluster() -> NoReturn:
    raise FolderError("the folder holds no log: name the folder that `topicwright serve --data` was given")
