"""What people do to simulated brokers: add one, stop and start one, make one slow.

Each answers at once with what the broker was told. What the controller makes of it is in `/brokers` and `/events` a
moment later.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath

from controller.brokers.simulated import SimulatedBroker, SimulatedFleet
from controller.http.bodies import described, read_body
from controller.http.permissions import need_cluster
from controller.http.shapes import SimulatedBrokerShape
from controller.runtime.front import Front
from events.names import BrokerId

DELAY_MS_MAX = 3_600_000
RACK_CHARACTERS_MAX = 249

_Fleet = NamedDependency[SimulatedFleet]
_Front = NamedDependency[Front]


class BrokerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A broker to add. Without a rack it gets one of three in turn."""

    rack: Annotated[str, msgspec.Meta(min_length=1, max_length=RACK_CHARACTERS_MAX)] | None = None


class DelayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long after an event is durable the broker applies it."""

    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=DELAY_MS_MAX)]


@post("/simulated/brokers", status_code=201, operation_class=described(BrokerBody, required=False))
async def add(fleet: _Fleet, front: _Front, request: Request[Any, Any, Any]) -> SimulatedBrokerShape:
    """A further broker joins, with the next free id."""
    need_cluster(front, request, "Alter")
    body = await read_body(request, BrokerBody) if await request.body() else BrokerBody()
    return _shape(fleet.add(body.rack))


@post("/simulated/brokers/{broker_id:int}/stop", status_code=200)
async def stop(
    broker_id: FromPath[int], request: Request[Any, Any, Any], fleet: _Fleet, front: _Front
) -> SimulatedBrokerShape:
    """A broker dies: it is fenced and its partitions get other leaders."""
    need_cluster(front, request, "Alter")
    fleet.stop_broker(broker_id)
    return _shape(fleet.brokers[BrokerId(broker_id)])


@post("/simulated/brokers/{broker_id:int}/start", status_code=200)
async def start(
    broker_id: FromPath[int], request: Request[Any, Any, Any], fleet: _Fleet, front: _Front
) -> SimulatedBrokerShape:
    """A broker comes back, applies what it missed and joins the in-sync sets again."""
    need_cluster(front, request, "Alter")
    fleet.start_broker(broker_id)
    return _shape(fleet.brokers[BrokerId(broker_id)])


@put("/simulated/brokers/{broker_id:int}/delay", status_code=200, operation_class=described(DelayBody))
async def delay(
    broker_id: FromPath[int], request: Request[Any, Any, Any], fleet: _Fleet, front: _Front
) -> SimulatedBrokerShape:
    """From now on a broker applies events so long after they are durable."""
    need_cluster(front, request, "Alter")
    body = await read_body(request, DelayBody)
    fleet.set_delay(broker_id, body.delay_ms)
    return _shape(fleet.brokers[BrokerId(broker_id)])


def _shape(broker: SimulatedBroker) -> SimulatedBrokerShape:
    return SimulatedBrokerShape(
        broker_id=broker.broker_id, rack=broker.rack, running=broker.running, delay_ms=broker.delay_ms
    )
