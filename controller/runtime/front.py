"""What the fronts (Kafka's wire and HTTP) use of the controller: asks with time, ids and permissions stamped on them.

A front never decides. It turns a request into commands, puts them, and turns the answers into a response.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from copy import copy

import msgspec

from controller.machine.commands import Asked
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.machine.state import Cluster, Topic
from controller.runtime.authorizer import CLUSTER_NAME, AllowAll, Authorizer, Operation
from controller.runtime.embedded import Controller
from events.catalog import Endpoint
from events.names import BrokerId, TopicId
from projections.store import TopicStore

TOPIC_ID_BYTES = 16


class Node(msgspec.Struct, frozen=True):
    """A node as clients are told of it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False


class Front:
    """One controller as its fronts see it.

    `node_id` is the controller's own, `advertised` the address at which clients reach it. With `broker_listeners` the
    brokers have ports of their own and the controller is a node beside them; else clients reach every broker at the
    controller's address, and a live broker is named as controller, as KRaft does.
    """

    def __init__(
        self,
        controller: Controller,
        *,
        node_id: int,
        advertised: Endpoint,
        broker_listeners: bool = False,
        authorizer: Authorizer | None = None,
        partitions_per_response_max: int = 2000,
    ) -> None:
        self.controller = controller
        self.node_id = node_id
        self.advertised = advertised
        self.broker_listeners = broker_listeners
        self.authorizer: Authorizer = authorizer or AllowAll()
        self.partitions_per_response_max = partitions_per_response_max
        self._applied: Callable[[], int] | None = None

    def as_of(self, applied: Callable[[], int]) -> Front:
        """The front of a node that knows only the topics whose creation it has applied; `applied` tells how far it
        is. What a topic became later is shown at once."""
        front = copy(self)
        front._applied = applied
        return front

    # --- reading

    def knows(self, topic: Topic) -> bool:
        """Whether this node has applied the creation of the topic."""
        return self._applied is None or topic.created_offset <= self._applied()

    def topic(self, name: str) -> Topic | None:
        """The topic of exactly this name, if this node knows it."""
        topic = self.store.durable_named(name)
        return topic if topic is not None and self.knows(topic) else None

    @property
    def store(self) -> TopicStore:
        """The durable view of topics and brokers."""
        return self.controller.store

    @property
    def cluster(self) -> Cluster:
        """Brokers and settings as of the last durable commit."""
        return self.controller.store.durable_cluster

    @property
    def cluster_id(self) -> str:
        """The id of the cluster whose log this is."""
        return self.controller.log.cluster_id

    def nodes(self, include_fenced: bool = False) -> list[Node]:
        """The nodes that clients are told of, by id; the controller itself where it is a node of its own."""
        brokers = self.cluster.brokers
        nodes = [
            Node(broker_id, broker.endpoints[0].host, broker.endpoints[0].port, broker.rack, broker.fenced)
            for broker_id, broker in sorted(brokers.items())
            if include_fenced or not broker.fenced
        ]
        if self._is_a_node_itself():
            nodes.insert(0, Node(self.node_id, self.advertised.host, self.advertised.port))
        return nodes

    def controller_id(self) -> int:
        """The node that clients are to send admin requests to."""
        return self.node_id if self._is_a_node_itself() else self.cluster.live[0]

    def _is_a_node_itself(self) -> bool:
        return self.broker_listeners or not self.cluster.live

    def allows(self, principal: str, operation: Operation, topic: str | None = None) -> bool:
        """Whether a principal may do this to a topic, or (None) to the cluster."""
        if topic is None:
            return self.authorizer.allows(principal, operation, "Cluster", CLUSTER_NAME)
        return self.authorizer.allows(principal, operation, "Topic", topic)

    def denial_of_create(self, principal: str, topic: str) -> int:
        """0, or the error of one who may not create: `Create` on the cluster or on the topic is needed (KIP-277)."""
        if self.allows(principal, "Create") or self.allows(principal, "Create", topic):
            return 0
        return int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def denial(self, principal: str, operation: Operation, topic: str) -> int:
        """0, or the error of one who may not do this to the topic."""
        return 0 if self.allows(principal, operation, topic) else int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    # --- asking

    def ask(self, commands: Sequence[Asked], timeout_ms: int = 0) -> asyncio.Future[list[Answer]]:
        """Put the commands of one request; their answers come in the same order."""
        return self.controller.ask(commands, timeout_ms)


def new_topic_ids(count: int) -> list[TopicId]:
    """Random topic ids (KIP-516). As in Kafka none begins with `-` in base64, so that command lines take it."""
    drawn = os.urandom(TOPIC_ID_BYTES * count)
    return [_as_uuid4(drawn[at : at + TOPIC_ID_BYTES]) for at in range(0, len(drawn), TOPIC_ID_BYTES)]


def _as_uuid4(drawn: bytes) -> TopicId:
    first = drawn[0] & 0x7F
    return TopicId(
        bytes((first,)) + drawn[1:6] + bytes((drawn[6] & 0x0F | 0x40, drawn[7], drawn[8] & 0x3F | 0x80)) + drawn[9:]
    )


def is_internal(topic: str) -> bool:
    """Whether Kafka marks the topic as its own."""
    return topic in {"__consumer_offsets", "__transaction_state", "__share_group_state"}


def offline_replicas(replicas: Sequence[BrokerId], live: Sequence[BrokerId]) -> tuple[BrokerId, ...]:
    """The replicas that do not serve: those on brokers that are not live, placeholders included."""
    return tuple(replica for replica in replicas if replica not in live)
