"""What people do to simulated brokers: add one, stop and start one, make one slow.

Each answers at once with the broker as it is to be. What the controller makes of it is in `/brokers` and `/events` a
moment later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Protocol, runtime_checkable

import msgspec
from litestar import post, put
from litestar.di import NamedDependency
from litestar.params import FromPath

from controller.brokers.simulated import SIMULATED_BROKERS_MAX
from controller.controller_api import ControllerApi
from controller.http.errors import HttpRequest, refused
from controller.http.permissions import need_cluster
from controller.http.requests import described, read_body
from controller.machine.errors import ErrorCode
from events.names import BrokerId
from projections.views.json_types import SimulatedBrokerView

DELAY_MS_MAX = 3_600_000  # an hour: more is a mistake
RACK_CHARACTERS_MAX = 249


class BrokerShown(Protocol):
    """What a simulated broker is set to be."""

    @property
    def broker_id(self) -> BrokerId: ...
    @property
    def rack(self) -> str: ...
    @property
    def running(self) -> bool: ...
    @property
    def delay_ms(self) -> int: ...


@runtime_checkable
class SimulatedBrokers(Protocol):
    """Brokers that can be controlled: a fleet in the process, or a gateway's remote control of the workers' fleet.

    All raise UnknownBroker; `set_delay` raises ValueError where brokers cannot be made slow.
    """

    @property
    def brokers(self) -> Mapping[BrokerId, BrokerShown]: ...
    def add(self, rack: str | None = None) -> BrokerShown: ...
    def stop_broker(self, broker_id: int) -> None: ...
    def start_broker(self, broker_id: int) -> None: ...
    def set_delay(self, broker_id: int, delay_ms: int) -> None: ...


_Fleet = NamedDependency[SimulatedBrokers]
_Gateway = NamedDependency[ControllerApi]


class BrokerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A broker to add. Without a rack it gets one of three in turn."""

    rack: Annotated[str, msgspec.Meta(min_length=1, max_length=RACK_CHARACTERS_MAX)] | None = None


class DelayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long after an event is durable the broker applies it."""

    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=DELAY_MS_MAX)]


@post("/simulated/brokers", status_code=201, operation_class=described(BrokerBody, required=False))
async def add(fleet: _Fleet, api: _Gateway, request: HttpRequest) -> SimulatedBrokerView:
    """A further broker joins, with the next free id."""
    need_cluster(api, request, "Alter")
    body = await read_body(request, BrokerBody) if await request.body() else BrokerBody()
    if len(fleet.brokers) >= SIMULATED_BROKERS_MAX:
        raise refused(400, ErrorCode.INVALID_REQUEST, f"{SIMULATED_BROKERS_MAX} brokers are the most that can be")
    return _shape(fleet.add(body.rack))


@post("/simulated/brokers/{broker_id:int}/stop", status_code=200)
async def stop(broker_id: FromPath[int], request: HttpRequest, fleet: _Fleet, api: _Gateway) -> SimulatedBrokerView:
    """A broker dies: it is fenced and its partitions get other leaders."""
    need_cluster(api, request, "Alter")
    fleet.stop_broker(broker_id)
    return _shape(fleet.brokers[BrokerId(broker_id)])


@post("/simulated/brokers/{broker_id:int}/start", status_code=200)
async def start(broker_id: FromPath[int], request: HttpRequest, fleet: _Fleet, api: _Gateway) -> SimulatedBrokerView:
    """A broker comes back, applies what it missed and joins the in-sync sets again."""
    need_cluster(api, request, "Alter")
    fleet.start_broker(broker_id)
    return _shape(fleet.brokers[BrokerId(broker_id)])


@put("/simulated/brokers/{broker_id:int}/delay", status_code=200, operation_class=described(DelayBody))
async def delay(broker_id: FromPath[int], request: HttpRequest, fleet: _Fleet, api: _Gateway) -> SimulatedBrokerView:
    """From now on a broker applies events so long after they are durable."""
    need_cluster(api, request, "Alter")
    body = await read_body(request, DelayBody)
    try:
        fleet.set_delay(broker_id, body.delay_ms)
    except ValueError as error:
        raise refused(400, ErrorCode.INVALID_REQUEST, str(error)) from None
    return _shape(fleet.brokers[BrokerId(broker_id)])


def _shape(broker: BrokerShown) -> SimulatedBrokerView:
    return SimulatedBrokerView(
        broker_id=broker.broker_id, rack=broker.rack, running=broker.running, delay_ms=broker.delay_ms
    )
