"""The handlers of BrokerRegistration and BrokerHeartbeat (KIP-631) and UnregisterBroker (KIP-746) in KRaft mode, for
`listener`. A change of a broker's state becomes a command; the response is sent when the change is durable."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import structlog

from controller.apis.kraft.broker_reports import broker_error
from controller.brokers.kraft import registration
from controller.brokers.kraft.membership import Membership
from controller.brokers.kraft.projection import details_of, endpoints_of
from controller.brokers.kraft.readiness import Confirmations
from controller.brokers.port import stamp
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages import cluster
from controller.machine.commands import commands
from controller.machine.errors import ErrorCode
from controller.machine.state import Broker
from controller.quorum.log.record_kinds import CORDONED_SINCE, METADATA_VERSION_FEATURE
from events.names import BrokerId

logger = structlog.get_logger("topicwright.kraft")


async def register_broker(
    api: ControllerApi, members: Membership, context: RequestContext, request: cluster.BrokerRegistrationRequest
) -> cluster.BrokerRegistrationResponse:
    """Answer BrokerRegistration with the broker epoch, when the registration is durable."""
    broker_id = BrokerId(request.broker_id)
    has_session = members.has_session(broker_id)
    rejected = registration.refusal(request, members.cluster, api.cluster_id, has_session=has_session)
    if rejected is not None:
        code, why = rejected
        logger.warning("broker rejected", broker=broker_id, peer=context.peer, code=int(code), why=why)
        return cluster.BrokerRegistrationResponse(error_code=int(code))
    if await _still_leads(api, members, broker_id, request.incarnation_id.hex()):
        return cluster.BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER)
    clean = members.shut_down_cleanly(broker_id, request.previous_broker_epoch)
    command = commands.RegisterBroker(
        **stamp(api.controller, "kraft"),
        broker_id=broker_id,
        incarnation=request.incarnation_id.hex(),
        rack=request.rack,
        endpoints=endpoints_of(request.listeners),
        details=details_of(request.listeners, request.features, request.log_dirs, clean=clean),
    )
    (answer,) = await api.submit([command])
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
    return await members.leads(broker_id)


class NextState(Enum):
    """The state of a broker after a heartbeat (`BrokerControlState` in Kafka)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "in controlled shutdown"
    SHUTDOWN_NOW = "shut down"


async def heartbeat(
    api: ControllerApi,
    members: Membership,
    confirmations: Confirmations,
    context: RequestContext,
    request: cluster.BrokerHeartbeatRequest,
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
    next_ = await _next(members, broker, request, caught_up)
    for command in _commands(api, members, broker, request, next_):
        (answer,) = await api.submit([command])
        if answer.code:
            return cluster.BrokerHeartbeatResponse(error_code=broker_error(answer.code))
    return cluster.BrokerHeartbeatResponse(
        is_caught_up=caught_up,
        is_fenced=next_ in (NextState.FENCED, NextState.SHUTDOWN_NOW),
        should_shut_down=next_ is NextState.SHUTDOWN_NOW,
    )


async def _next(
    members: Membership, broker: Broker, request: cluster.BrokerHeartbeatRequest, caught_up: bool
) -> NextState:
    """As `BrokerHeartbeatManager.calculateNextBrokerState`."""
    if broker.fenced:
        if request.want_shut_down or broker.leaving:
            return NextState.SHUTDOWN_NOW
        return (
            NextState.UNFENCED if caught_up and not request.want_fence and members.may_unfence() else NextState.FENCED
        )
    if broker.leaving:
        return (
            NextState.SHUTDOWN_NOW if await members.may_shut_down(broker.broker_id) else NextState.CONTROLLED_SHUTDOWN
        )
    if request.want_fence:
        return NextState.SHUTDOWN_NOW if request.want_shut_down else NextState.FENCED
    if request.want_shut_down:
        return NextState.CONTROLLED_SHUTDOWN if await members.leads(broker.broker_id) else NextState.SHUTDOWN_NOW
    return NextState.UNFENCED


def _commands(
    api: ControllerApi, members: Membership, broker: Broker, request: cluster.BrokerHeartbeatRequest, next_: NextState
) -> Iterator[commands.MembershipCommand]:
    """The commands that lead to the next state, in order."""

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


async def unregister_broker(
    api: ControllerApi, context: RequestContext, request: cluster.UnregisterBrokerRequest
) -> cluster.UnregisterBrokerResponse:
    """Answer UnregisterBroker: remove the registration. A live broker registers again."""
    broker_id = BrokerId(request.broker_id)
    stamped, reason = stamp(api.controller, "kraft"), f"requested by {context.principal}"
    (answer,) = await api.submit([commands.UnregisterBroker(**stamped, broker_id=broker_id, reason=reason)])
    message = answer.message or None
    if answer.code == ErrorCode.BROKER_ID_NOT_REGISTERED:
        message = f"Broker ID {broker_id} is not currently registered"
    return cluster.UnregisterBrokerResponse(error_code=broker_error(answer.code), error_message=message)
