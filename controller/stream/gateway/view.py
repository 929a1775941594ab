"""The nodes that a gateway shows to clients.

Where the brokers have addresses of their own (an existing cluster), clients get these and the live gateways. Where
they have none (simulated brokers), clients reach every broker at a gateway: the live gateways stand in for the brokers
in turn, in an order that all gateways agree on. Gateways that are left over are nodes of their own.
The controller is the node at which this very gateway is reached, so it is one that answers. Clients of a listener are
shown where the gateways listen under its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.access.authorizer import Authorizer
from controller.controller_api import ControllerApi, ControllerPort, Node
from controller.machine.state import Broker
from controller.stream.gateway.members import Announcement, Members, node_id_of, node_of
from events.catalog import Endpoint


class StreamGateway(ControllerApi):
    """One of several gateways as its handlers see it."""

    decides_here = False

    def __init__(
        self,
        controller: ControllerPort,
        members: Members,
        *,
        advertised: Endpoint,
        authorizer: Authorizer | None = None,
        partitions_per_response_max: int = 2000,
    ) -> None:
        super().__init__(
            controller,
            node_id=node_id_of(members.own.gateway_id),
            advertised=advertised,
            authorizer=authorizer,
            partitions_per_response_max=partitions_per_response_max,
        )
        self.members = members

    def nodes(self, include_fenced: bool = False) -> list[Node]:
        """The nodes that clients are shown, by id."""
        brokers = [broker for _, broker in sorted(self.cluster.brokers.items()) if include_fenced or not broker.fenced]
        if any(_has_address(broker) for broker in brokers):
            return [*map(self._own_node, brokers), *self._own_nodes()]
        return _stood_in_for(brokers, self.members.live(), self._listener)

    def _own_nodes(self) -> list[Node]:
        return [node_of(one, self._listener) for one in self.members.live()]

    def controller_id(self) -> int:
        """The node that clients are to send admin requests to: this gateway."""
        own = self.members.own.at(self._listener)
        for node in self.nodes():
            if (node.host, node.port) == own:
                return node.node_id
        return self.node_id

    def _own_node(self, broker: Broker) -> Node:
        endpoint = self._endpoint(broker) if broker.endpoints else Endpoint("PLAINTEXT", "", -1)
        return Node(broker.broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced)


def _has_address(broker: Broker) -> bool:
    return bool(broker.endpoints) and broker.endpoints[0].port > 0


def _stood_in_for(brokers: Sequence[Broker], gateways: Sequence[Announcement], listener: str | None) -> list[Node]:
    live = [broker for broker in brokers if not broker.fenced]
    nodes = []
    for broker in brokers:
        turn = live.index(broker) if not broker.fenced else 0
        host, port = gateways[turn % len(gateways)].at(listener)
        nodes.append(Node(broker.broker_id, host, port, broker.rack, broker.fenced))
    return [*nodes, *(node_of(gateway, listener) for gateway in gateways[len(live) :])]
