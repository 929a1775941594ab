"""The port through which Kafka APIs, HTTP and pages use the controller.

`ControllerPort` submits commands and reads durable state. Two classes implement it: `Controller` in the process that
decides, and `GatewayNode`, which sends commands to the workers and follows their events. Handlers do not know which of
the two they work with. `ControllerApi` wraps a port and adds the nodes in responses to clients, and permission checks.
`ControllerApi` decides nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final, Protocol, TypeVar

import msgspec

from controller.access.authorizer import OPERATION_CODES, Operation, Requester, ResourceType, StandardAuthorizer
from controller.access.refusals import RefusalRecords, Stamps
from controller.machine.access.requests import CLUSTER_NAME
from controller.machine.commands.access import ClusterCommand
from controller.machine.commands.commands import ClientCommand, TopicCommand
from controller.machine.decision import Answer, Detail
from controller.machine.errors import ErrorCode
from controller.machine.state import Broker, Cluster, Topic
from controller.store.partitioned_store import TopicReader
from events.catalog import Endpoint
from events.names import BrokerId, TopicId
from projections.views.overviews import QuorumView

TOPIC_ID_BYTES = 16
TOPIC_IDS_DRAWN: Final = 256
CHANGE_TIMEOUT_MS = 30_000
"""Default time for a target cluster to carry out a change: the default `request.timeout.ms` of Kafka clients."""
_OF_BOTH: tuple[Operation, ...] = ("Create", "Alter", "Describe", "DescribeConfigs", "AlterConfigs")
_TOPIC_OPERATIONS: tuple[Operation, ...] = (*_OF_BOTH, "Read", "Write", "Delete")
_CLUSTER_OPERATIONS: tuple[Operation, ...] = (*_OF_BOTH, "ClusterAction", "IdempotentWrite")


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The answers to the commands of a request, in the order of the commands.

    If the request exceeds its sender's mutation quota (KIP-599), the sender is throttled until `throttled_until_s` on
    the clock of the event loop.
    """

    answers: tuple[Answer, ...] = ()
    throttled_until_s: float = 0.0

    @property
    def throttle_time_ms(self) -> int:
        return max(0, round((self.throttled_until_s - asyncio.get_running_loop().time()) * 1000))

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)


PARTITIONS_PER_PORTION = 500
"""A large request is decided in portions of at most this many partitions, so that other requests are decided between
them."""
K = TypeVar("K")
V = TypeVar("V")


def in_portions(wanted: Iterable[tuple[K, Sequence[V]]]) -> Iterator[list[tuple[K, Sequence[V]]]]:
    """Split items by topic into portions of at most `PARTITIONS_PER_PORTION` items. `wanted` must have each topic once;
    a portion has each topic at most once."""
    portion: list[tuple[K, Sequence[V]]] = []
    room = PARTITIONS_PER_PORTION
    for topic, each in wanted:
        for start in range(0, max(1, len(each)), PARTITIONS_PER_PORTION):
            part = each[start : start + PARTITIONS_PER_PORTION]
            if len(part) > room or not room:
                yield portion
                portion, room = [], PARTITIONS_PER_PORTION
            portion.append((topic, part))
            room -= max(1, len(part))
    if portion:
        yield portion


class ControllerStatus(msgspec.Struct, frozen=True):
    """The current status of a controller, for health and metrics.

    `storage_error` is the reason why the log cannot be written now, `failure` the error that ended deciding. Both are
    None while the controller is healthy.
    """

    events_durable: int
    topics_waiting: int
    requests_open: int
    storage_error: str | None
    failure: BaseException | None


class ControllerPort(Stamps, Protocol):
    """Submits commands for a decision, and reads durable state."""

    @property
    def store(self) -> TopicReader:
        """Topics, brokers and settings as of the newest visible event."""

    @property
    def cluster_id(self) -> str:
        """The id of the cluster whose log this is."""

    def status(self) -> ControllerStatus:
        """The current status, for health and metrics."""

    @property
    def refusals(self) -> RefusalRecords:
        """The recorder of denied requests for which no command is submitted; it only counts similar denials."""

    def submit(self, commands: Sequence[ClientCommand], timeout_ms: int = 0) -> asyncio.Future[Reply]:
        """Submit the commands of one request, one per topic. With `timeout_ms` above 0, commands without an answer by
        then are answered REQUEST_TIMED_OUT."""


class Node(msgspec.Struct, frozen=True):
    """A broker or controller in the node list of a response, such as Metadata."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False


class ControllerApi:
    """The controller as the handlers of Kafka APIs and HTTP use it.

    `node_id` is the controller's own, `advertised` its address for clients. With `broker_listeners` the brokers have
    their own ports and the controller is one more node. Without this option clients reach every broker at the
    controller's address, and responses name a live broker as controller, as in KRaft mode.
    """

    decides_here = True
    """True if this process has the settings that decisions depend on; False in a gateway."""

    def __init__(
        self,
        controller: ControllerPort,
        *,
        node_id: int,
        advertised: Endpoint,
        broker_listeners: bool = False,
        authorizer: StandardAuthorizer | None = None,
        partitions_per_response_max: int = 2000,
    ) -> None:
        self.controller = controller
        self.cluster_id = controller.cluster_id
        """The id of the cluster whose log this is."""
        self.node_id = node_id
        self.advertised = advertised
        self._listener: str | None = None
        self._topic_ids: list[TopicId] = []
        self.broker_listeners = broker_listeners
        self.authorizer = authorizer
        """None if everything is allowed, as in Kafka without `authorizer.class.name`."""
        self.partitions_per_response_max = partitions_per_response_max
        self._applied: Callable[[], int] | None = None
        self.turns = asyncio.Lock()
        """Held for each slice of a long response, so that one iteration of the event loop runs at most one slice."""
        self.static_configs: Mapping[str, str] = {}
        """The configured settings by Kafka's keys: a broker's static configs in DescribeConfigs."""
        self.broker_ports: Callable[[Endpoint, BrokerId], Endpoint | None] | None = None
        """Returns the address at which admin clients of a listener reach a broker of the target cluster through this
        process. None without such ports or without a target cluster."""
        self.brokers_error: Callable[[], str | None] = lambda: None
        """Returns the reason why decisions cannot be carried out now; None if they can."""
        self.archive_error: Callable[[], str | None] = lambda: None
        """Returns the reason why the archive cannot be written now; None if it can."""
        self.quorum: Callable[[], QuorumView] | None = None
        """The quorum of which this controller is a voter; None without a quorum."""

    def as_of(self, applied: Callable[[], int]) -> ControllerApi:
        """The API of a node that knows only the topics whose creation it has applied. `applied` returns the offset
        that the node has reached. Later changes of a known topic are visible at once."""
        api = copy(self)
        api._applied = applied
        return api

    def at_listener(self, advertised: Endpoint) -> ControllerApi:
        """The API for clients of one listener: responses have the nodes' addresses of that listener."""
        api = copy(self)
        api.advertised, api._listener = advertised, advertised.name
        return api

    def _endpoint(self, broker: Broker) -> Endpoint:
        """The broker's endpoint for this listener, or its first endpoint if it has none for it."""
        return next((each for each in broker.endpoints if each.name == self._listener), broker.endpoints[0])

    # --- reading

    def knows(self, topic: Topic) -> bool:
        """True if this node has applied the creation of the topic."""
        return self._applied is None or topic.created_offset <= self._applied()

    def topic(self, name: str) -> Topic | None:
        """The topic of exactly this name, if this node knows it."""
        topic = self.store.durable_named(name)
        return topic if topic is not None and self.knows(topic) else None

    @property
    def store(self) -> TopicReader:
        return self.controller.store

    @property
    def cluster(self) -> Cluster:
        """Brokers and settings as of the last durable commit."""
        return self.controller.store.durable_cluster

    def nodes(self, include_fenced: bool = False) -> list[Node]:
        """The nodes in responses to clients, by id; with the controller if it is a node itself."""
        nodes = self._brokers_at(self._endpoint, include_fenced)
        return [*self._own_nodes(), *nodes] if self._is_a_node_itself() else nodes

    def _brokers_at(self, endpoint_of: Callable[[Broker], Endpoint | None], include_fenced: bool) -> list[Node]:
        return [
            Node(broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
            for broker_id, broker in sorted(self.cluster.brokers.items())
            if include_fenced or not broker.fenced
            for endpoint in (endpoint_of(broker),)
            if endpoint is not None
        ]

    def admin_nodes(self, include_fenced: bool = False) -> list[Node]:
        """The nodes in responses to admin clients. With a target cluster these are its brokers, at the ports that this
        process opens for them: a broker at its own address would name another controller and change topics itself."""
        if not self.cluster.settings.has_target_cluster:
            return self.nodes(include_fenced)
        ports = self.broker_ports
        if ports is None:
            return self._own_nodes()
        brokers = self._brokers_at(lambda broker: ports(self.advertised, broker.broker_id), include_fenced)
        return brokers or self._own_nodes()

    def admin_controller_id(self) -> int:
        """The node to which admin clients send changes: any broker of the target cluster, at the port that this process
        opens for it."""
        if self.broker_ports is None:
            return self.controller_id()
        return next(each.node_id for each in self.admin_nodes())

    def _own_nodes(self) -> list[Node]:
        return [Node(self.node_id, self.advertised.host, self.advertised.port)]

    def is_expected_node(self, cluster_id: str, node_id: int) -> bool:
        """True if responses to clients of this listener have this node, in this cluster, at this listener's address."""
        if cluster_id != self.cluster_id:
            return False
        here = (self.advertised.host, self.advertised.port)
        shown = ((each.host, each.port) for each in self.nodes(include_fenced=True) if each.node_id == node_id)
        return node_id == self.node_id or here in shown

    def controller_id(self) -> int:
        """The node to which clients send admin requests."""
        return self.node_id if self._is_a_node_itself() else self.cluster.live[0]

    def _is_a_node_itself(self) -> bool:
        return self.broker_listeners or not self.cluster.live

    # --- permissions

    def allows(
        self, requester: Requester, operation: Operation, name: str | None = None, kind: ResourceType = "Topic"
    ) -> bool:
        """True if the requester may do this to a resource, or to the cluster if `name` is None."""
        if self.authorizer is None:
            return True
        resource: tuple[ResourceType, str] = ("Cluster", CLUSTER_NAME) if name is None else (kind, name)
        return self.authorizer.allows(requester, operation, *resource)

    def grants(
        self, requester: Requester, operation: Operation, name: str | None = None, kind: ResourceType = "Topic"
    ) -> bool:
        """Like `allows`, for an operation that the client explicitly requests: a denial is recorded in the log."""
        if self.allows(requester, operation, name, kind):
            return True
        denied, name = ("Cluster", CLUSTER_NAME) if name is None else (kind, name)
        code = ErrorCode[f"{denied.upper()}_AUTHORIZATION_FAILED"]
        self.controller.refusals.record_denial(requester, operation, f"{denied}:{name}", int(code))
        return False

    def denial_of_create(self, requester: Requester, topic: str) -> int:
        """The error code if the requester may not create the topic, else 0. This needs `Create` on the cluster or on
        the topic (KIP-277)."""
        return 0 if self.allows(requester, "Create") else self.denial(requester, "Create", topic)

    def denial(self, requester: Requester, operation: Operation, topic: str) -> int:
        """The error code if the requester may not do this to the topic, else 0."""
        return 0 if self.allows(requester, operation, topic) else int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def denial_of_delete(self, requester: Requester, topic: str, *, by_id: bool = False) -> int:
        """The error code if the requester may not delete the topic, else 0. This needs `Delete` on the cluster or on
        the topic. A request by name also needs `Describe`, so that nobody can probe names; an id cannot be guessed."""
        if self.allows(requester, "Delete"):
            return 0
        is_granted = self.allows(requester, "Delete", topic) and (by_id or self.allows(requester, "Describe", topic))
        return 0 if is_granted else int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def topic_operations(self, requester: Requester, topic: str) -> int:
        """The requester's allowed operations on a topic, as KIP-430's bit field."""
        return self._operations(requester, _TOPIC_OPERATIONS, topic)

    def cluster_operations(self, requester: Requester) -> int:
        """The requester's allowed operations on the cluster, as KIP-430's bit field; 0 without `Describe`."""
        return self._operations(requester, _CLUSTER_OPERATIONS, None) if self.grants(requester, "Describe") else 0

    def _operations(self, requester: Requester, operations: Sequence[Operation], topic: str | None) -> int:
        return sum(1 << OPERATION_CODES[each] for each in operations if self.allows(requester, each, topic))

    # --- submitting

    def submit(self, commands: Sequence[ClientCommand], timeout_ms: int = 0) -> asyncio.Future[Reply]:
        """Submit the commands of one request; without commands the reply is empty and done at once."""
        if commands:
            return self.controller.submit(commands, timeout_ms)
        nothing = asyncio.get_running_loop().create_future()
        nothing.set_result(Reply())
        return nothing

    async def submit_cluster(self, command: ClusterCommand, parts: int) -> Sequence[Detail]:
        """Submit a command that concerns the cluster, such as ACLs. Returns a detail for each of its `parts`, also if
        the whole command failed."""
        (answer,) = await self.submit([command])
        return [Detail(int(answer.code), answer.message)] * parts if answer.code else answer.details

    def submit_change(
        self, commands: Sequence[TopicCommand], timeout_ms: int = CHANGE_TIMEOUT_MS
    ) -> asyncio.Future[Reply]:
        """Submit the changes of one request. Each is answered once decided; with a target cluster, once the cluster has
        applied it, or with REQUEST_TIMED_OUT after the timeout."""
        carried_out = self.cluster.settings.has_target_cluster
        return self.submit(commands, max(1, timeout_ms) if carried_out else 0)

    def new_topic_ids(self, count: int) -> list[TopicId]:
        """Random topic ids (KIP-516). Many are drawn at once, because a system call releases the interpreter's lock and
        may have to wait for it."""
        stock = self._topic_ids
        if len(stock) < count:
            stock += new_topic_ids(count + TOPIC_IDS_DRAWN)
        taken = stock[:count]
        del stock[:count]
        return taken


def new_topic_ids(count: int) -> list[TopicId]:
    """Random topic ids (KIP-516). As in Kafka none begins with `-` in base64, so that command lines accept it."""
    size = TOPIC_ID_BYTES * count
    drawn = int.from_bytes(os.urandom(size), "big") & int.from_bytes(_RANDOM_BITS * count, "big")
    ids = (drawn | int.from_bytes(_UUID4_BITS * count, "big")).to_bytes(size, "big")
    return [TopicId(ids[at : at + TOPIC_ID_BYTES]) for at in range(0, size, TOPIC_ID_BYTES)]


_RANDOM_BITS: Final = bytes.fromhex("7fffffffffff0fff3fffffffffffffff")
_UUID4_BITS: Final = bytes.fromhex("00000000000040008000000000000000")
"""The random bits of a topic id, and the constant bits that mark it as a UUID of version 4."""
