"""BrokerRegistration, BrokerHeartbeat and UnregisterBroker: how brokers come, live, and go (KIP-631, KIP-746)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TypedDict

import structlog

from controller.apis.kraft.epochs import as_brokers_take_it
from controller.brokers.kraft import registration
from controller.brokers.kraft.log.projection import CORDONED_SINCE, METADATA_VERSION_FEATURE
from controller.brokers.kraft.membership import Membership
from controller.brokers.kraft.readiness import Confirmations
from controller.brokers.port import stamp
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from controller.kafka.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from controller.kafka.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from controller.machine.commands import commands
from controller.machine.errors import ErrorCode
from controller.machine.state import Broker
from events.names import BrokerId

logger = structlog.get_logger("topicwright.kraft")


class BrokerRegistrationHandler:
    """Answers BrokerRegistration."""

    def __init__(self, api: ControllerApi, membership: Membership) -> None:
        self._api = api
        self._membership = membership

    async def __call__(self, context: RequestContext, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        """The broker's epoch once its registration is durable, or the error that Kafka gives."""
        membership = self._membership
        broker_id = BrokerId(request.broker_id)
        has_session = membership.has_session(broker_id)
        refused = registration.refusal(request, membership.cluster, self._api.cluster_id, has_session=has_session)
        if refused is not None:
            code, why = int(refused.code), refused.why
            logger.warning("broker refused", broker=broker_id, peer=context.peer, code=code, why=why)
            return BrokerRegistrationResponse(error_code=code)
        if await self._leads_on(broker_id, request.incarnation_id.hex()):
            return BrokerRegistrationResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        clean = membership.shut_down_cleanly(broker_id, request.previous_broker_epoch)
        command = commands.RegisterBroker(
            **stamp(self._api.controller, "kraft"),
            broker_id=broker_id,
            incarnation=request.incarnation_id.hex(),
            rack=request.rack,
            endpoints=registration.endpoints_of(request),
            details=registration.details_of(request, clean=clean),
        )
        (answer,) = await self._api.submit([command])
        if answer.code:
            return BrokerRegistrationResponse(error_code=as_brokers_take_it(answer.code))
        epoch = membership.wire_epoch(broker_id, answer.number)
        if epoch is None:  # another incarnation has registered since
            return BrokerRegistrationResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        membership.touch(broker_id)
        return BrokerRegistrationResponse(broker_epoch=epoch)

    async def _leads_on(self, broker_id: BrokerId, incarnation: str) -> bool:
        """Whether a broker that registers anew leads partitions as the process that it was before. It would lead them
        on as soon as it has read of its registration, with what it may have lost, and its followers would let go of
        the same. So it is fenced first, where it is not, and tries again until others lead."""
        known = self._membership.cluster.brokers.get(broker_id)
        if known is None or known.incarnation == incarnation:
            return False
        if not known.fenced:
            stamped, epoch = stamp(self._api.controller, "kraft"), known.broker_epoch
            fence = commands.FenceBroker(**stamped, broker_id=broker_id, reason="registered anew", broker_epoch=epoch)
            await self._api.submit([fence])
            return True
        return await self._membership.leads(broker_id)


class OfBroker(TypedDict):
    """Which registration a heartbeat is of."""

    broker_id: BrokerId
    broker_epoch: int


class Next(Enum):
    """What a broker is to be after a heartbeat (`BrokerControlState` in Kafka)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    LEAVING = "in controlled shutdown"
    GONE = "shut down"


class BrokerHeartbeatHandler:
    """Answers BrokerHeartbeat."""

    def __init__(self, api: ControllerApi, membership: Membership, confirmations: Confirmations) -> None:
        self._api = api
        self._membership = membership
        self._confirmations = confirmations

    async def __call__(self, context: RequestContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """Whether the broker is caught up, is fenced, and may end; the change that leads to it is durable."""
        membership = self._membership
        if BrokerId(request.broker_id) not in membership.cluster.brokers:
            return BrokerHeartbeatResponse(error_code=int(ErrorCode.BROKER_ID_NOT_REGISTERED))
        broker = membership.broker(request.broker_id, request.broker_epoch)
        if broker is None:
            return BrokerHeartbeatResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        applied_end = request.current_metadata_offset + 1
        membership.applied(broker.broker_id, applied_end)
        if not broker.fenced:
            self._confirmations.confirm_applied(broker.broker_id, applied_end)
        caught_up = request.current_metadata_offset >= request.broker_epoch
        next_ = await self._next(broker, request, caught_up)
        for command in self._commands(broker, request, next_):
            (answer,) = await self._api.submit([command])
            if answer.code:
                return BrokerHeartbeatResponse(error_code=as_brokers_take_it(answer.code))
        return BrokerHeartbeatResponse(
            is_caught_up=caught_up,
            is_fenced=next_ in (Next.FENCED, Next.GONE),
            should_shut_down=next_ is Next.GONE,
        )

    async def _next(self, broker: Broker, request: BrokerHeartbeatRequest, caught_up: bool) -> Next:
        """As `BrokerHeartbeatManager.calculateNextBrokerState`."""
        membership = self._membership
        if broker.fenced:
            if request.want_shut_down or broker.leaving:
                return Next.GONE
            return Next.UNFENCED if caught_up and not request.want_fence and membership.may_unfence() else Next.FENCED
        if broker.leaving:
            return Next.GONE if await membership.may_shut_down(broker.broker_id) else Next.LEAVING
        if request.want_fence:
            return Next.GONE if request.want_shut_down else Next.FENCED
        if request.want_shut_down:
            return Next.LEAVING if await membership.leads(broker.broker_id) else Next.GONE
        return Next.UNFENCED

    def _commands(
        self, broker: Broker, request: BrokerHeartbeatRequest, next_: Next
    ) -> Iterator[commands.MembershipCommand]:
        """What leads to the next state, one after the other."""
        of: OfBroker = {"broker_id": broker.broker_id, "broker_epoch": broker.broker_epoch}
        controller, broker_id = self._api.controller, broker.broker_id
        offline = frozenset(request.offline_log_dirs)
        online = tuple(each for each in broker.log_dirs if each not in offline)
        if online != broker.log_dirs:
            logger.warning("log directories failed", broker=broker_id, online=len(online))
        cordoned = self._cordoned(broker, request, online)
        if (online, cordoned) != (broker.log_dirs, broker.cordoned):
            yield commands.ChangeLogDirs(**stamp(controller, "kraft"), **of, log_dirs=online, cordoned=cordoned)
        if broker.fenced and next_ is Next.UNFENCED:
            yield commands.UnfenceBroker(**stamp(controller, "kraft"), **of, reason="caught up")
        elif not broker.fenced and next_ in (Next.FENCED, Next.GONE):
            reason = "shut down in order" if next_ is Next.GONE else "asked to be fenced"
            yield commands.FenceBroker(**stamp(controller, "kraft"), **of, reason=reason)
        elif not broker.leaving and next_ is Next.LEAVING:
            yield commands.BeginShutdown(**stamp(controller, "kraft"), **of)

    def _cordoned(
        self, broker: Broker, request: BrokerHeartbeatRequest, online: tuple[bytes, ...]
    ) -> tuple[bytes, ...]:
        """The online directories that are cordoned. A broker reports them once it has caught up, and null before."""
        level = self._membership.cluster.feature(METADATA_VERSION_FEATURE)
        reported = request.cordoned_log_dirs
        if reported is None or level < CORDONED_SINCE:
            return broker.cordoned
        wanted = frozenset(reported)
        return tuple(each for each in online if each in wanted)


class UnregisterBrokerHandler:
    """Answers UnregisterBroker."""

    def __init__(self, api: ControllerApi) -> None:
        self._api = api

    async def __call__(self, context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        """The broker is forgotten; one that lives registers anew."""
        broker_id = BrokerId(request.broker_id)
        stamped, reason = stamp(self._api.controller, "kraft"), f"asked by {context.principal}"
        (answer,) = await self._api.submit([commands.UnregisterBroker(**stamped, broker_id=broker_id, reason=reason)])
        message = answer.message or None
        if answer.code == ErrorCode.BROKER_ID_NOT_REGISTERED:
            message = f"Broker ID {broker_id} is not currently registered"
        return UnregisterBrokerResponse(error_code=as_brokers_take_it(answer.code), error_message=message)
