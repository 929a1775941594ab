"""Control of simulated brokers: add, stop, start, and delay.

Each path answers at once with the broker's new settings. The controller's reaction follows in `/v1/brokers` and
`/v1/events`.
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
from projections.views.brokers import SimulatedBrokerView

DELAY_MS_MAX = 3_600_000  # an hour: more is a mistake
RACK_CHARACTERS_MAX = 249


class SimulatedBrokerState(Protocol):
    """The settings of a simulated broker."""

    @property
    def broker_id(self) -> BrokerId: ...
    @property
    def rack(self) -> str: ...
    @property
    def running(self) -> bool: ...
    @property
    def delay_ms(self) -> int: ...


@runtime_checkable
class BrokerControl(Protocol):
    """Simulated brokers: those of this process, or in a gateway those of the workers.

    All methods raise UnknownBroker; `set_delay` raises ValueError if brokers cannot be delayed.
    """

    @property
    def by_id(self) -> Mapping[BrokerId, SimulatedBrokerState]: ...
    def add(self, rack: str | None = None) -> SimulatedBrokerState: ...
    def stop_broker(self, broker_id: int) -> None: ...
    def start_broker(self, broker_id: int) -> None: ...
    def set_delay(self, broker_id: int, delay_ms: int) -> None: ...


_Brokers = NamedDependency[BrokerControl]
_Api = NamedDependency[ControllerApi]


class BrokerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A broker to add. The default rack is one of three in turn."""

    rack: Annotated[str, msgspec.Meta(min_length=1, max_length=RACK_CHARACTERS_MAX)] | None = None


class DelayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the broker waits before it applies a durable event."""

    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=DELAY_MS_MAX)]


@post("/simulated/brokers", status_code=201, operation_class=described(BrokerBody, required=False))
async def add(brokers: _Brokers, controller_api: _Api, request: HttpRequest) -> SimulatedBrokerView:
    """Add a broker, with the next free id."""
    need_cluster(controller_api, request, "Alter")
    body = await read_body(request, BrokerBody) if await request.body() else BrokerBody()
    if len(brokers.by_id) >= SIMULATED_BROKERS_MAX:
        raise refused(400, ErrorCode.INVALID_REQUEST, f"{SIMULATED_BROKERS_MAX} simulated brokers are the maximum")
    return _shape(brokers.add(body.rack))


@post("/simulated/brokers/{broker_id:int}/stop", status_code=200)
async def stop(
    broker_id: FromPath[int], request: HttpRequest, brokers: _Brokers, controller_api: _Api
) -> SimulatedBrokerView:
    """Stop a broker: it is fenced, and its partitions elect other leaders."""
    need_cluster(controller_api, request, "Alter")
    brokers.stop_broker(broker_id)
    return _shape(brokers.by_id[BrokerId(broker_id)])


@post("/simulated/brokers/{broker_id:int}/start", status_code=200)
async def start(
    broker_id: FromPath[int], request: HttpRequest, brokers: _Brokers, controller_api: _Api
) -> SimulatedBrokerView:
    """Start a broker: it catches up and rejoins the ISRs."""
    need_cluster(controller_api, request, "Alter")
    brokers.start_broker(broker_id)
    return _shape(brokers.by_id[BrokerId(broker_id)])


@put("/simulated/brokers/{broker_id:int}/delay", status_code=200, operation_class=described(DelayBody))
async def delay(
    broker_id: FromPath[int], request: HttpRequest, brokers: _Brokers, controller_api: _Api
) -> SimulatedBrokerView:
    """Delay when a broker applies events."""
    need_cluster(controller_api, request, "Alter")
    body = await read_body(request, DelayBody)
    try:
        brokers.set_delay(broker_id, body.delay_ms)
    except ValueError as error:
        raise refused(400, ErrorCode.INVALID_REQUEST, str(error)) from None
    return _shape(brokers.by_id[BrokerId(broker_id)])


def _shape(broker: SimulatedBrokerState) -> SimulatedBrokerView:
    return SimulatedBrokerView(
        broker_id=broker.broker_id, rack=broker.rack, running=broker.running, delay_ms=broker.delay_ms
    )
