"""The handlers of requests that Kafka brokers send to the controller in KRaft mode, for `listener`: BrokerRegistration
and BrokerHeartbeat (KIP-631), AlterPartition (KIP-497), AssignReplicasToDirs (KIP-858), AllocateProducerIds (KIP-730)
and UnregisterBroker (KIP-746). A change becomes a command; the response is sent when the change is durable.

Broker epochs on the wire are offsets in the metadata log (KIP-631). The state machine (`controller.machine`) numbers
registrations instead; these handlers convert.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Any

import structlog
from msgspec.structs import replace

from controller.apis import Call
from controller.brokers.kraft import membership
from controller.brokers.kraft.membership import Membership
from controller.brokers.kraft.projection import details_of, endpoints_of
from controller.brokers.kraft.readiness import Confirmations
from controller.brokers.port import stamp
from controller.controller_api import ControllerApi, in_portions
from controller.kafka.messages import cluster
from controller.machine.commands import commands
from controller.machine.commands.commands import AllocateProducerIds, AlterPartition, AssignDirectories, IsrReport
from controller.machine.decision import PartitionAnswer
from controller.machine.errors import ErrorCode
from controller.machine.partitions.placement import replica_metadata_of
from controller.machine.partitions.requests import PRODUCER_IDS_PER_BLOCK
from controller.machine.state import Broker
from controller.quorum.log.record_kinds import CORDONED_SINCE, METADATA_VERSION_FEATURE
from events.names import BrokerId, TopicId, TopicName


def broker_error(code: int) -> int:
    """The top-level error for a broker: NOT_CONTROLLER while the log cannot be written, so that the broker retries."""
    retry = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR)
    return int(ErrorCode.NOT_CONTROLLER) if code in retry else code


async def alter_partition(
    members: Membership, call: Call, request: cluster.AlterPartitionRequest
) -> cluster.AlterPartitionResponse:
    """Answer AlterPartition: submit one command for each topic, in portions. Unknown topics get UNKNOWN_TOPIC_ID."""
    found = {topic.topic_id: call.api.store.durable_name_of(topic.topic_id) for topic in request.topics}
    names = {topic_id: name for topic_id, name in found.items() if name is not None}
    known = [(topic, topic.partitions) for topic in request.topics if topic.topic_id in names]
    answers: dict[bytes, list[PartitionAnswer]] = {topic.topic_id: [] for topic in request.topics}
    for topic in request.topics:
        if topic.topic_id not in names:
            code = int(ErrorCode.UNKNOWN_TOPIC_ID)
            answers[topic.topic_id] = [PartitionAnswer(one.partition_index, code) for one in topic.partitions]
    epoch = members.machine_epoch(request.broker_id, request.broker_epoch)
    for portion in in_portions(known):
        stamped = stamp(call.api.controller, "isr")
        commands = [
            AlterPartition(
                **stamped,
                topic=names[topic.topic_id],
                topic_id=TopicId(topic.topic_id),
                broker_id=BrokerId(request.broker_id),
                broker_epoch=epoch,
                reports=tuple(_report(members, one) for one in partitions),
            )
            for topic, partitions in portion
        ]
        for (topic, _), answer in zip(portion, await call.api.submit(commands), strict=True):
            if answer.code:
                return cluster.AlterPartitionResponse(error_code=broker_error(answer.code))
            answers[topic.topic_id] += answer.partitions
    return cluster.AlterPartitionResponse(
        topics=tuple(
            cluster.AlterPartitionTopicResult(topic_id=topic_id, partitions=tuple(map(_partition, parts)))
            for topic_id, parts in answers.items()
        )
    )


def _report(members: Membership, one: cluster.AlterPartitionData) -> IsrReport:
    """From version 3 each member of the ISR has its epoch (KIP-903); before, `new_isr` has only ids."""
    with_epochs = one.new_isr_with_epochs
    isr = tuple(map(BrokerId, one.new_isr or [member.broker_id for member in with_epochs]))
    epochs = tuple(members.machine_epoch(member.broker_id, member.broker_epoch) for member in with_epochs)
    return IsrReport(
        one.partition_index, isr, one.leader_epoch, one.partition_epoch, one.leader_recovery_state == 1, epochs
    )


def _partition(answer: PartitionAnswer) -> cluster.AlterPartitionResult:
    state = answer.state
    if state is None:
        return cluster.AlterPartitionResult(partition_index=answer.partition, error_code=answer.code)
    return cluster.AlterPartitionResult(
        partition_index=answer.partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        leader_recovery_state=int(replica_metadata_of(state).recovering),
        partition_epoch=state.partition_epoch,
    )


_Codes = dict[tuple[bytes, int], int]
"""The error code of each partition, by topic id and index."""


async def assign_replicas_to_dirs(
    members: Membership, call: Call, request: cluster.AssignReplicasToDirsRequest
) -> cluster.AssignReplicasToDirsResponse:
    """Answer AssignReplicasToDirs: submit one command for each topic, in portions."""
    if any(members.is_unknown_directory(request.broker_id, directory.id) for directory in request.directories):
        # A second process uses the broker's id, and has read the broker's epoch from the metadata log. The two
        # would overwrite each other's assignments forever.
        return cluster.AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    epoch = members.machine_epoch(request.broker_id, request.broker_epoch)
    codes: _Codes = {}
    for portion in in_portions(_by_topic(request).items()):
        stamped = stamp(call.api.controller, "directories")
        commands = [
            AssignDirectories(
                **stamped,
                broker_id=BrokerId(request.broker_id),
                broker_epoch=epoch,
                # Missing topics are submitted too, so that a stale broker epoch is rejected as such.
                topic=call.api.store.durable_name_of(topic_id) or TopicName(topic_id.hex()),
                topic_id=TopicId(topic_id),
                directories=tuple(pairs),
            )
            for topic_id, pairs in portion
        ]
        for command, answer in zip(commands, await call.api.submit(commands), strict=True):
            if answer.code:
                return cluster.AssignReplicasToDirsResponse(error_code=broker_error(answer.code))
            codes.update({(command.topic_id, one.partition): one.code for one in answer.partitions})
    directories = tuple(
        replace(directory, topics=tuple(_coded(topic, codes) for topic in directory.topics))
        for directory in request.directories
    )
    return cluster.AssignReplicasToDirsResponse(directories=directories)


def _by_topic(request: cluster.AssignReplicasToDirsRequest) -> dict[bytes, list[tuple[int, bytes]]]:
    """By topic id: the partitions, each with the log directory of the broker's replica."""
    found: dict[bytes, list[tuple[int, bytes]]] = {}
    for directory in request.directories:
        for topic in directory.topics:
            pairs = [(one.partition_index, directory.id) for one in topic.partitions]
            found.setdefault(topic.topic_id, []).extend(pairs)
    return found


def _coded(topic: cluster.AssignReplicasTopic, codes: _Codes) -> cluster.AssignReplicasTopic:
    partitions = (replace(one, error_code=codes[topic.topic_id, one.partition_index]) for one in topic.partitions)
    return replace(topic, partitions=tuple(partitions))


async def allocate_producer_ids(
    members: Membership, call: Call, request: cluster.AllocateProducerIdsRequest
) -> cluster.AllocateProducerIdsResponse:
    command = AllocateProducerIds(
        **stamp(call.api.controller, "producers"),
        broker_id=BrokerId(request.broker_id),
        broker_epoch=members.machine_epoch(request.broker_id, request.broker_epoch),
    )
    (answer,) = await call.api.submit([command])
    if answer.code:
        return cluster.AllocateProducerIdsResponse(error_code=broker_error(answer.code))
    return cluster.AllocateProducerIdsResponse(producer_id_start=answer.number, producer_id_len=PRODUCER_IDS_PER_BLOCK)


logger = structlog.get_logger("topicwright.kraft")


async def register_broker(
    members: Membership, call: Call, request: cluster.BrokerRegistrationRequest
) -> cluster.BrokerRegistrationResponse:
    """Answer BrokerRegistration with the broker epoch, when the registration is durable."""
    broker_id = BrokerId(request.broker_id)
    has_session = members.has_session(broker_id)
    rejected = membership.refusal(request, members.cluster, call.api.cluster_id, has_session=has_session)
    if rejected is not None:
        code, why = rejected
        logger.warning("broker rejected", broker=broker_id, peer=call.context.peer, code=int(code), why=why)
        return cluster.BrokerRegistrationResponse(error_code=int(code))
    if await _still_leads(call.api, members, broker_id, request.incarnation_id.hex()):
        return cluster.BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER)
    clean = members.shut_down_cleanly(broker_id, request.previous_broker_epoch)
    command = commands.RegisterBroker(
        **stamp(call.api.controller, "kraft"),
        broker_id=broker_id,
        incarnation=request.incarnation_id.hex(),
        rack=request.rack,
        endpoints=endpoints_of(request.listeners),
        details=details_of(request.listeners, request.features, request.log_dirs, clean=clean),
    )
    (answer,) = await call.api.submit([command])
    if answer.code:
        return cluster.BrokerRegistrationResponse(error_code=broker_error(answer.code))
    epoch = members.wire_epoch(broker_id, answer.number)
    if epoch is None:  # another incarnation has registered since
        return cluster.BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER)
    members.touch(broker_id)
    return cluster.BrokerRegistrationResponse(broker_epoch=epoch)


async def _still_leads(api: ControllerApi, members: Membership, broker_id: BrokerId, incarnation: str) -> bool:
    """True if the previous process of a restarted broker still leads partitions. The broker would continue to lead
    these partitions without the records that it may have lost, and followers would truncate. So the broker is fenced
    first, and retries its registration until other brokers lead."""
    known = members.cluster.brokers.get(broker_id)
    if known is None or known.incarnation == incarnation:
        return False
    if not known.fenced:
        stamped, epoch = stamp(api.controller, "kraft"), known.broker_epoch
        fence = commands.FenceBroker(**stamped, broker_id=broker_id, reason="registered again", broker_epoch=epoch)
        await api.submit([fence])
        return True
    return members.leads(broker_id)


class NextState(Enum):
    """The state of a broker after a heartbeat (`BrokerControlState` in Kafka)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "in controlled shutdown"
    SHUTDOWN_NOW = "shut down"


async def heartbeat(
    members: Membership, confirmations: Confirmations, call: Call, request: cluster.BrokerHeartbeatRequest
) -> cluster.BrokerHeartbeatResponse:
    """Answer BrokerHeartbeat with the next state of the broker, when the change to that state is durable."""
    if BrokerId(request.broker_id) not in members.cluster.brokers:
        return cluster.BrokerHeartbeatResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    broker = members.broker(request.broker_id, request.broker_epoch)
    if broker is None:
        return cluster.BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    applied_end = request.current_metadata_offset + 1
    members.applied(broker.broker_id, applied_end)
    if not broker.fenced:
        confirmations.confirm_applied(broker.broker_id, applied_end)
    caught_up = request.current_metadata_offset >= request.broker_epoch
    next_ = _next(members, broker, request, caught_up)
    for command in _commands(call.api, members, broker, request, next_):
        (answer,) = await call.api.submit([command])
        if answer.code:
            return cluster.BrokerHeartbeatResponse(error_code=broker_error(answer.code))
    return cluster.BrokerHeartbeatResponse(
        is_caught_up=caught_up,
        is_fenced=next_ in (NextState.FENCED, NextState.SHUTDOWN_NOW),
        should_shut_down=next_ is NextState.SHUTDOWN_NOW,
    )


def _next(members: Membership, broker: Broker, request: cluster.BrokerHeartbeatRequest, caught_up: bool) -> NextState:
    """As `BrokerHeartbeatManager.calculateNextBrokerState`."""
    if broker.fenced:
        if request.want_shut_down or broker.leaving:
            return NextState.SHUTDOWN_NOW
        return (
            NextState.UNFENCED if caught_up and not request.want_fence and members.may_unfence() else NextState.FENCED
        )
    if broker.leaving:
        return NextState.SHUTDOWN_NOW if members.may_shut_down(broker.broker_id) else NextState.CONTROLLED_SHUTDOWN
    if request.want_fence:
        return NextState.SHUTDOWN_NOW if request.want_shut_down else NextState.FENCED
    if request.want_shut_down:
        return NextState.CONTROLLED_SHUTDOWN if members.leads(broker.broker_id) else NextState.SHUTDOWN_NOW
    return NextState.UNFENCED


def _commands(
    api: ControllerApi, members: Membership, broker: Broker, request: cluster.BrokerHeartbeatRequest, next_: NextState
) -> Iterator[commands.MembershipCommand]:
    def of_broker(kind: type[commands.RegisteredCommand], **fields: Any) -> commands.RegisteredCommand:
        stamped, epoch = stamp(api.controller, "kraft"), broker.broker_epoch
        return kind(**stamped, broker_id=broker.broker_id, broker_epoch=epoch, **fields)

    offline = frozenset(request.offline_log_dirs)
    online = tuple(each for each in broker.log_dirs if each not in offline)
    if online != broker.log_dirs:
        logger.warning("log directories failed", broker=broker.broker_id, online=len(online))
    cordoned = _cordoned(members, broker, request, online)
    if (online, cordoned) != (broker.log_dirs, broker.cordoned):
        yield of_broker(commands.ChangeLogDirs, log_dirs=online, cordoned=cordoned)
    if broker.fenced and next_ is NextState.UNFENCED:
        yield of_broker(commands.UnfenceBroker, reason="caught up")
    elif not broker.fenced and next_ in (NextState.FENCED, NextState.SHUTDOWN_NOW):
        reason = "controlled shutdown" if next_ is NextState.SHUTDOWN_NOW else "requested to be fenced"
        yield of_broker(commands.FenceBroker, reason=reason)
    elif not broker.leaving and next_ is NextState.CONTROLLED_SHUTDOWN:
        yield of_broker(commands.BeginShutdown)


def _cordoned(
    members: Membership, broker: Broker, request: cluster.BrokerHeartbeatRequest, online: tuple[bytes, ...]
) -> tuple[bytes, ...]:
    """The online log directories that are cordoned (KIP-1066). A broker reports null until it has caught up."""
    level = members.cluster.feature(METADATA_VERSION_FEATURE)
    reported = request.cordoned_log_dirs
    if reported is None or level < CORDONED_SINCE:
        return broker.cordoned
    requested = frozenset(reported)
    return tuple(each for each in online if each in requested)


async def unregister_broker(call: Call, request: cluster.UnregisterBrokerRequest) -> cluster.UnregisterBrokerResponse:
    """Answer UnregisterBroker: remove the registration. A live broker registers again."""
    broker_id = BrokerId(request.broker_id)
    stamped, reason = stamp(call.api.controller, "kraft"), f"requested by {call.context.principal}"
    (answer,) = await call.api.submit([commands.UnregisterBroker(**stamped, broker_id=broker_id, reason=reason)])
    message = answer.message or None
    if answer.code == ErrorCode.BROKER_ID_NOT_REGISTERED:
        message = f"Broker ID {broker_id} is not currently registered"
    return cluster.UnregisterBrokerResponse(error_code=broker_error(answer.code), error_message=message)
