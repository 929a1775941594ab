"""A metadata log of Kafka's own controller, or of a lost one as a broker has it, as events.

The log itself is copied byte for byte, since brokers have it too; this controller goes on behind it in a higher epoch.
Beside it stand events that say all that the machine knows of: brokers, features, configs, topics
with their partitions, epochs and eligible leaders, access control entries, SCRAM credentials, quotas. What it knows
nothing of (delegation tokens, records of newer releases) is in `MetadataAdopted`, and stays in the metadata log, where
brokers act on it.

It reads no files and writes none: it is given what was read, and gives what is to be written in one commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from controller.brokers.kraft.features import METADATA_VERSION_MIN, SUPPORTED
from controller.brokers.kraft.log import batches
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.image import CannotFold, MetadataImage
from controller.brokers.kraft.log.metadata_codec import MalformedRecord, decode_control, encode_record
from controller.brokers.kraft.log.projection import TOPICS
from controller.brokers.kraft.log.projector import MARK, MetadataMark
from controller.brokers.kraft.moving.adopting_access import access_events, acl_id_keys
from controller.brokers.kraft.moving.kafka_folder import KafkaFolder
from controller.brokers.kraft.quorum.folder import FolderError
from events import catalog
from events.names import BrokerId, RequestId, TopicId, TopicName

C = TypeVar("C", bound=kinds.ControlMessage)

COMMAND = "AdoptMetadata"
"""The command that is the cause of all these events."""
_BY = "AdoptMetadata"
_PRODUCER_IDS_PER_BLOCK = 1000
_KEPT: Final = (kinds.RegisterControllerRecord, kinds.DelegationTokenRecord, kinds.ZkMigrationStateRecord)
"""Kinds of records that the machine knows nothing of."""


class Adopted(msgspec.Struct, frozen=True):
    """What is to be written for a metadata log that was taken over."""

    quorum: catalog.QuorumEpochBegun
    """The last epoch of the one who led before."""
    image: MetadataImage
    events: tuple[catalog.Event, ...]
    state: Mapping[bytes, bytes]
    """The keys of what brokers have of it."""
    request_id: RequestId
    """Of the command that takes it over."""


def adopted(folder: KafkaFolder, request_id: RequestId) -> Adopted:
    """The metadata log in a folder, as events and as state keys. Raises FolderError for one that cannot be led on."""
    image = image_in(folder)
    quorum = last_epoch(folder, image)
    _check(folder, image, quorum)
    events = (_whole(folder, image, quorum), *_cluster(image, quorum, request_id), *_topics(image, request_id))
    epochs = tuple(sorted((BrokerId(each.broker_id), each.broker_epoch) for each in _brokers(image)))
    mark = MetadataMark(folder.end_offset, epochs, adopted=True)
    return Adopted(quorum, image, events, {MARK: msgspec.msgpack.encode(mark), **acl_id_keys(image)}, request_id)


def image_in(folder: KafkaFolder) -> MetadataImage:
    """What the log in a folder says. Raises FolderError."""
    image = MetadataImage()
    try:
        if folder.checkpoint is not None:
            image.fold(folder.checkpoint.batches)
            image.fold(each for each in folder.batches if each.base_offset >= folder.checkpoint.end_offset)
        else:
            image.fold(folder.batches)
    except (CannotFold, MalformedRecord) as error:
        raise FolderError(f"{folder.path} holds a metadata log that contradicts itself: {error}") from error
    return image


# --- who led


def last_epoch(folder: KafkaFolder, image: MetadataImage) -> catalog.QuorumEpochBegun:
    """The newest epoch that is known, who voted in it, and where. Raises FolderError for more than one voter."""
    epoch = max(folder.epoch, folder.quorum_state.epoch)
    pair = image.quorum.get(batches.KRAFT_VERSION)
    kraft_version = 0 if pair is None else _read(folder, kinds.KRaftVersion, pair).k_raft_version
    if kraft_version == 0:
        leader = _leader(folder)
        return catalog.QuorumEpochBegun(
            epoch, leader, 0, "", 0, folder.directory_id if leader == folder.node_id else bytes(16)
        )
    record = image.quorum.get(batches.KRAFT_VOTERS)
    voters = () if record is None else _read(folder, kinds.Voters, record).voters
    _check_one_voter(folder, [each.voter_id for each in voters])
    voter = voters[0]
    places = {each.name: each for each in voter.endpoints}
    place = places.get(batches.CONTROLLER_LISTENER)
    if place is None:
        raise FolderError(
            f"{folder.path}: the controller's listener is called {', '.join(places) or 'nothing'}; "
            f"with kraft.version 1 only {batches.CONTROLLER_LISTENER} can be taken over"
        )
    return catalog.QuorumEpochBegun(
        epoch, voter.voter_id, kraft_version, place.host, place.port, voter.voter_directory_id
    )


def _leader(folder: KafkaFolder) -> int:
    for batch in reversed(folder.batches):
        if batch.is_control and batches.control_type(batch.records[0][0]) == batches.LEADER_CHANGE:
            change = _read(folder, kinds.LeaderChangeMessage, batch.records[0])
            _check_one_voter(folder, [each.voter_id for each in change.voters])
            return change.leader_id
    known = folder.quorum_state.leader_id
    return known if known >= 0 else folder.node_id


def _check_one_voter(folder: KafkaFolder, voters: list[int]) -> None:
    if len(voters) != 1:
        raise FolderError(
            f"{folder.path}: the quorum has the voters {voters}; only a cluster with one controller can be taken over"
        )


def _read(folder: KafkaFolder, kind: type[C], pair: batches.Pair) -> C:
    try:
        return decode_control(kind, pair[1])
    except MalformedRecord as error:
        raise FolderError(f"{folder.path} holds a metadata log that contradicts itself: {error}") from error


# --- what cannot be led on


def _check(folder: KafkaFolder, image: MetadataImage, quorum: catalog.QuorumEpochBegun) -> None:
    if image.in_transaction:
        raise FolderError(
            f"{folder.path}: the log ends within a transaction of Kafka's controller: start that once, to have it ended"
        )
    if image.level < METADATA_VERSION_MIN:
        raise FolderError(
            f"{folder.path}: metadata.version is {image.level}, and has to be {METADATA_VERSION_MIN} (3.7) or higher: "
            "raise it with kafka-features.sh first"
        )
    for name, level in _features(image):
        known = SUPPORTED.get(name)
        if known is None or not known.lowest <= level <= known.highest:
            allowed = "is not known" if known is None else f"is supported from {known.lowest} to {known.highest}"
            raise FolderError(f"{folder.path}: feature {name} has level {level}, and {allowed}")
    if any(each.broker_id == quorum.node_id for each in image.all(kinds.RegisterBrokerRecord)):
        raise FolderError(
            f"{folder.path}: node {quorum.node_id} is controller and broker; it has to be a controller alone"
        )


# --- events


def _whole(folder: KafkaFolder, image: MetadataImage, quorum: catalog.QuorumEpochBegun) -> catalog.MetadataAdopted:
    kept = [encode_record(record) for kind in _KEPT for record in image.all(kind)]
    kept += [record.value for record in image.unknown]
    return catalog.MetadataAdopted(folder.node_id, quorum.leader_epoch, folder.end_offset, tuple(kept))


def _cluster(image: MetadataImage, quorum: catalog.QuorumEpochBegun, request_id: RequestId) -> Iterator[catalog.Event]:
    yield quorum
    yield catalog.FeaturesChanged(_features(image), "as they were")
    numbered = {each.broker_id: number for number, each in enumerate(_brokers(image), 1)}
    for record in _brokers(image):
        yield from _broker(record, numbered[record.broker_id])
    for (kind, name), configs in sorted(_configs(image).items()):
        if kind != TOPICS:
            yield catalog.ResourceConfigsChanged(request_id, kind, name, configs, _BY, None)
    for block in image.all(kinds.ProducerIdsRecord):
        end = block.next_producer_id
        number = numbered.get(block.broker_id, 0)
        first = max(0, end - _PRODUCER_IDS_PER_BLOCK)
        yield catalog.ProducerIdsAllocated(BrokerId(block.broker_id), number, first, end)
    yield from access_events(image, request_id, _BY)


def _features(image: MetadataImage) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((each.name, each.feature_level) for each in image.all(kinds.FeatureLevelRecord)))


def _brokers(image: MetadataImage) -> list[kinds.RegisterBrokerRecord]:
    """The registered brokers, in the order in which they came."""
    return sorted(image.all(kinds.RegisterBrokerRecord), key=lambda each: each.broker_epoch)


def _broker(record: kinds.RegisterBrokerRecord, epoch: int) -> Iterator[catalog.Event]:
    broker_id = BrokerId(record.broker_id)
    yield catalog.BrokerRegistered(
        broker_id,
        epoch,
        record.incarnation_id.hex(),
        record.rack,
        tuple(catalog.Endpoint(each.name, each.host, each.port) for each in record.end_points),
        catalog.BrokerDetails(
            tuple(each.security_protocol for each in record.end_points),
            tuple(
                catalog.SupportedFeature(each.name, each.min_supported_version, each.max_supported_version)
                for each in record.features
            ),
            record.log_dirs,
        ),
    )
    if not record.fenced:
        yield catalog.BrokerUnfenced(broker_id, epoch, "it was")
        if record.in_controlled_shutdown:
            yield catalog.BrokerLeaving(broker_id, epoch)


def _configs(image: MetadataImage) -> dict[tuple[int, str], catalog.Configs]:
    found: dict[tuple[int, str], dict[str, str]] = {}
    for each in image.all(kinds.ConfigRecord):
        assert each.value is not None, "a record without a value removes one"
        found.setdefault((each.resource_type, each.resource_name), {})[each.name] = each.value
    return {key: tuple(sorted(pairs.items())) for key, pairs in found.items()}


def _topics(image: MetadataImage, request_id: RequestId) -> Iterator[catalog.Event]:
    configs = _configs(image)
    live = tuple(
        sorted(
            BrokerId(each.broker_id) for each in _brokers(image) if not each.fenced and not each.in_controlled_shutdown
        )
    )
    for topic in image.all(kinds.TopicRecord):
        partitions = [_partition(one) for _, one in sorted(image.partitions[topic.topic_id].items())]
        yield catalog.TopicCreated(
            request_id,
            TopicName(topic.name),
            TopicId(topic.topic_id),
            tuple(partitions),
            len(partitions[0].replicas) if partitions else 0,
            configs.get((TOPICS, topic.name), ()),
            None,
            live,
            catalog.ADOPTED_DEADLINE_MS,
        )


def _partition(record: kinds.PartitionRecord) -> catalog.Partition:
    return catalog.Partition(
        _ids(record.replicas),
        _ids(record.isr),
        BrokerId(record.leader),
        record.leader_epoch,
        record.partition_epoch,
        catalog.Upkeep(
            record.directories,
            _ids(record.adding_replicas),
            _ids(record.removing_replicas),
            _ids(record.eligible_leader_replicas),
            _ids(record.last_known_elr),
            bool(record.leader_recovery_state),
        ),
    )


def _ids(ids: tuple[int, ...] | None) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids or ()))
