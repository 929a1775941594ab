"""Imports the metadata log of a Kafka controller, or a broker's copy of a lost controller's log, as events.

The log itself is copied byte for byte, because brokers have it too; this controller continues it in a higher epoch. The
events cover everything that the state machine knows: brokers, features, configs, topics with their partitions, epochs
and eligible leaders, ACLs, SCRAM credentials, quotas. Everything else (delegation tokens, records of newer releases) is
in `MetadataAdopted` and stays in the metadata log, where brokers apply it.

`topicwright adopt` and `restore` call `adopted`. This module neither reads nor writes files: it gets a `KafkaFolder`
and returns everything that one commit must write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from controller.brokers.kraft.importing import import_all
from controller.brokers.kraft.importing_cluster import EventCollector, Imported
from controller.brokers.kraft.kafka_folder import KafkaFolder
from controller.brokers.kraft.projector import MARK, MetadataMark, ProtocolIds, acl_keys
from controller.quorum.features import unsupported_feature
from controller.quorum.folder import FolderError
from controller.quorum.log import batches
from controller.quorum.log import metadata_records as kinds
from controller.quorum.log.image import MetadataImage, RecordMismatch
from controller.quorum.log.metadata_codec import MalformedRecord, decode_control, encode_record
from controller.quorum.log.record_kinds import Author
from events import catalog
from events.names import BrokerId, RequestId

COMMAND = "AdoptMetadata"
"""The name of the command that the log records as cause of all imported events."""
_UNKNOWN_TO_MACHINE: Final = (kinds.RegisterControllerRecord, kinds.DelegationTokenRecord, kinds.ZkMigrationStateRecord)
"""Record types that the machine does not know."""


class Adopted(msgspec.Struct, frozen=True):
    """The events and state to write for an adopted metadata log."""

    quorum: catalog.QuorumEpochBegun
    """The last epoch of the adopted log, and the only voter of its quorum."""
    image: MetadataImage
    events: tuple[catalog.Event, ...]
    state: Mapping[bytes, bytes | None]
    """Keys of the projector's state: the `MetadataMark` with the broker epochs, and the ACL ids."""
    request_id: RequestId
    """The id of the adopting command."""


def adopted(folder: KafkaFolder, request_id: RequestId) -> Adopted:
    """The metadata log in a folder as events and state keys. Raises FolderError if it cannot be continued."""
    image = read_image(folder)
    quorum = last_epoch(folder, image)
    _check(folder, image, quorum)
    found = import_all(EventCollector(Author(request_id, COMMAND, "as it was"), image))
    unknown = [encode_record(record) for kind in _UNKNOWN_TO_MACHINE for record in image.all(kind)]
    unknown += [record.value for record in image.unknown]
    begun = catalog.MetadataAdopted(folder.node_id, quorum.leader_epoch, folder.end_offset, tuple(unknown))
    events = (begun, quorum, *_events(image, found, request_id))
    epochs = ProtocolIds().after(found.ids).broker_epochs
    mark = MetadataMark(folder.end_offset, tuple(sorted(epochs.items())), adopted=True)
    return Adopted(quorum, image, events, {MARK: msgspec.msgpack.encode(mark), **acl_keys(found.ids.acls)}, request_id)


def read_image(folder: KafkaFolder) -> MetadataImage:
    """The image of the log in a folder. Raises FolderError."""
    image = MetadataImage()
    try:
        image.fold(folder.checkpoint_batches)
        image.fold(each for each in folder.batches if each.base_offset >= folder.checkpoint.end_offset)
    except (RecordMismatch, MalformedRecord) as error:
        raise FolderError(f"{folder.path} has an inconsistent metadata log: {error}") from error
    return image


# --- the last leader


def last_epoch(folder: KafkaFolder, image: MetadataImage) -> catalog.QuorumEpochBegun:
    """The newest known epoch and the only voter. Raises FolderError for more than one voter."""
    epoch = max(folder.epoch, folder.quorum_state.epoch)
    pair = image.quorum.get(batches.KRAFT_VERSION)
    kraft_version = 0 if pair is None else decode_control(kinds.KRaftVersion, pair[1]).k_raft_version
    if kraft_version == 0:
        leader = _leader(folder)
        return catalog.QuorumEpochBegun(
            epoch, leader, 0, "", 0, folder.directory_id if leader == folder.node_id else bytes(16)
        )
    record = image.quorum.get(batches.KRAFT_VOTERS)
    voters = () if record is None else decode_control(kinds.Voters, record[1]).voters
    _check_one_voter(folder, [each.voter_id for each in voters])
    voter = voters[0]
    places = {each.name: each for each in voter.endpoints}
    place = places.get(batches.CONTROLLER_LISTENER)
    if place is None:
        raise FolderError(
            f"{folder.path}: the controller's listener is called {', '.join(places) or 'nothing'}; "
            f"with kraft.version 1 it must be called {batches.CONTROLLER_LISTENER}"
        )
    return catalog.QuorumEpochBegun(
        epoch, voter.voter_id, kraft_version, place.host, place.port, voter.voter_directory_id
    )


def _leader(folder: KafkaFolder) -> int:
    for batch in reversed(folder.batches):
        if batch.is_control and batches.control_type(batch.records[0][0]) == batches.LEADER_CHANGE:
            change = decode_control(kinds.LeaderChangeMessage, batch.records[0][1])
            _check_one_voter(folder, [each.voter_id for each in change.voters])
            return change.leader_id
    known = folder.quorum_state.leader_id
    return known if known >= 0 else folder.node_id


def _check_one_voter(folder: KafkaFolder, voters: list[int]) -> None:
    if len(voters) != 1:
        raise FolderError(
            f"{folder.path}: the quorum has the voters {voters}; only a cluster with one controller can be adopted"
        )


# --- logs that cannot be continued


def _check(folder: KafkaFolder, image: MetadataImage, quorum: catalog.QuorumEpochBegun) -> None:
    if image.transactions.begun_at is not None:
        raise FolderError(f"{folder.path}: the log ends within a transaction: start Kafka's controller once to end it")
    if (why := unsupported_feature(image.features)) is not None:
        raise FolderError(f"{folder.path}: {why}")
    if any(each.broker_id == quorum.node_id for each in image.all(kinds.RegisterBrokerRecord)):
        raise FolderError(
            f"{folder.path}: node {quorum.node_id} is both controller and broker; only a node with "
            "process.roles=controller can be adopted"
        )


# --- events


def _events(image: MetadataImage, found: Imported, request_id: RequestId) -> Iterator[catalog.Event]:
    """Topics become TopicCreated events: in an adopted cluster they existed before."""
    brokers = image.all(kinds.RegisterBrokerRecord)
    live = sorted(BrokerId(each.broker_id) for each in brokers if not each.fenced and not each.in_controlled_shutdown)
    for event in found.events:
        if not isinstance(event, catalog.TopicDiscovered):
            yield event
            continue
        yield catalog.TopicCreated(
            request_id,
            event.topic,
            event.topic_id,
            event.partitions,
            len(event.partitions[0].replicas),
            event.configs,
            None,
            tuple(live),
            catalog.ADOPTED_DEADLINE_MS,
        )
