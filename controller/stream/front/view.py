"""The nodes that a front shows to clients.

Where the brokers have addresses of their own (an existing cluster), clients get these, and the live fronts beside them.
Where they have none (simulated brokers), clients reach every broker at a front: the live fronts stand
in for the brokers in turn, in an order that all fronts agree on, and those that are left over are nodes of their own.
The controller is the node at which this very front is reached, so it is one that answers. Clients of a listener are
shown where the fronts listen under its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.access.authorizer import Authorizer
from controller.front.front import Front, Node
from controller.front.port import ControllerPort
from controller.machine.state import Broker
from controller.stream.front.members import Announcement, Members, node_id_of, node_of
from events.catalog import Endpoint


class StreamFront(Front):
    """One of several fronts as its handlers see it."""

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
            node_id=node_id_of(members.own.front_id),
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
        """The node that clients are to send admin requests to: this front."""
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


def _stood_in_for(brokers: Sequence[Broker], fronts: Sequence[Announcement], listener: str | None) -> list[Node]:
    live = [broker for broker in brokers if not broker.fenced]
    nodes = []
    for broker in brokers:
        turn = live.index(broker) if not broker.fenced else 0
        host, port = fronts[turn % len(fronts)].at(listener)
        nodes.append(Node(broker.broker_id, host, port, broker.rack, broker.fenced))
    return [*nodes, *(node_of(front, listener) for front in fronts[len(live) :])]
