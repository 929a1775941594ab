"""AssignReplicasToDirs (KIP-858): a broker reports in which of its log directories replicas lie."""

from __future__ import annotations

from collections.abc import Sequence

from controller.apis.kraft.epochs import BrokerEpochs, as_brokers_take_it
from controller.brokers.port import stamp
from controller.controller_api import ControllerApi, in_portions
from controller.kafka.handling import RequestContext
from controller.kafka.messages import assign_replicas_to_dirs
from controller.machine.commands.commands import AssignDirectories
from controller.machine.errors import ErrorCode
from events.names import BrokerId, TopicId, TopicName

_Pair = tuple[int, bytes]
"""A partition, and the directory that the broker's replica of it lies in."""
_Codes = dict[tuple[bytes, int], int]
"""The error code of each partition, by topic id and index."""


class AssignReplicasToDirsHandler:
    """Answers AssignReplicasToDirs of real brokers."""

    def __init__(self, api: ControllerApi, epochs: BrokerEpochs) -> None:
        self._api = api
        self._epochs = epochs

    async def __call__(
        self, context: RequestContext, request: assign_replicas_to_dirs.AssignReplicasToDirsRequest
    ) -> assign_replicas_to_dirs.AssignReplicasToDirsResponse:
        """Put what the broker reports in portions, one command a topic."""
        if not self._api.grants(context, "ClusterAction"):
            return assign_replicas_to_dirs.AssignReplicasToDirsResponse(
                error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            )
        if any(
            self._epochs.is_unknown_directory(request.broker_id, directory.id_) for directory in request.directories
        ):
            # A second process with the broker's id: it follows the metadata log, and takes the broker's epoch from
            # there. The two would undo each other's word for ever.
            return assign_replicas_to_dirs.AssignReplicasToDirsResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        codes: _Codes = {}
        for portion in in_portions(_by_topic(request).items()):
            commands = self._commands(request, portion)
            for command, answer in zip(commands, await self._api.submit(commands), strict=True):
                if answer.code:
                    code = as_brokers_take_it(answer.code)
                    return assign_replicas_to_dirs.AssignReplicasToDirsResponse(error_code=code)
                codes.update({(command.topic_id, one.partition): one.code for one in answer.partitions})
        directories = tuple(
            assign_replicas_to_dirs.ResponseDirectoryData(
                id_=directory.id_, topics=tuple(_coded(topic, codes) for topic in directory.topics)
            )
            for directory in request.directories
        )
        return assign_replicas_to_dirs.AssignReplicasToDirsResponse(directories=directories)

    def _commands(
        self,
        request: assign_replicas_to_dirs.AssignReplicasToDirsRequest,
        portion: Sequence[tuple[bytes, Sequence[_Pair]]],
    ) -> list[AssignDirectories]:
        stamped = stamp(self._api.controller, "directories")
        epoch = self._epochs.machine_epoch(request.broker_id, request.broker_epoch)
        return [
            AssignDirectories(
                **stamped,
                broker_id=BrokerId(request.broker_id),
                broker_epoch=epoch,
                # A topic that is not there is put too, so that a broker of another epoch is refused as such.
                topic=self._api.store.durable_name_of(topic_id) or TopicName(topic_id.hex()),
                topic_id=TopicId(topic_id),
                directories=tuple(pairs),
            )
            for topic_id, pairs in portion
        ]


def _by_topic(request: assign_replicas_to_dirs.AssignReplicasToDirsRequest) -> dict[bytes, list[_Pair]]:
    found: dict[bytes, list[_Pair]] = {}
    for directory in request.directories:
        for topic in directory.topics:
            pairs = [(one.partition_index, directory.id_) for one in topic.partitions]
            found.setdefault(topic.topic_id, []).extend(pairs)
    return found


def _coded(topic: assign_replicas_to_dirs.RequestTopicData, codes: _Codes) -> assign_replicas_to_dirs.ResponseTopicData:
    return assign_replicas_to_dirs.ResponseTopicData(
        topic_id=topic.topic_id,
        partitions=tuple(
            assign_replicas_to_dirs.ResponsePartitionData(
                partition_index=one.partition_index, error_code=codes[topic.topic_id, one.partition_index]
            )
            for one in topic.partitions
        ),
    )
