"""The port through which Kafka APIs, HTTP and pages use the controller.

`ControllerPort` submits commands and reads durable state. Two classes implement it: `Controller` in the process that
decides, and `GatewayNode`, which sends commands to the workers and follows their events. Handlers do not know which of
the two they work with. `ControllerApi` adds what every handler needs: which nodes a client is shown, permissions, and
the time, id and permission stamps of a command. It decides nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Protocol, TypeVar

import msgspec

from controller.access.authorizer import OPERATION_CODES, AllowAll, Authorizer, Operation, Requester, ResourceType
from controller.access.refusals import RefusalRecords
from controller.machine.access.permissions import CLUSTER_NAME
from controller.machine.commands.access import ClusterCommand
from controller.machine.commands.commands import ClientCommand, TopicCommand
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.machine.state import Broker, Cluster, Topic
from controller.policy.interface import PolicyInForce
from events.catalog import Endpoint
from events.names import BrokerId, RequestId, TopicId
from projections.store.store import TopicReader
from projections.views.overviews import QuorumView

TOPIC_ID_BYTES = 16
CHANGE_TIMEOUT_MS = 30_000
"""How long a change without a timeout of its own waits to be carried out by a cluster: `request.timeout.ms`."""
_OF_BOTH: tuple[Operation, ...] = ("Create", "Alter", "Describe", "DescribeConfigs", "AlterConfigs")
_TOPIC_OPERATIONS: tuple[Operation, ...] = (*_OF_BOTH, "Read", "Write", "Delete")
_CLUSTER_OPERATIONS: tuple[Operation, ...] = (*_OF_BOTH, "ClusterAction", "IdempotentWrite")


class Reply(msgspec.Struct, frozen=True, gc=False):
    """What a request is answered: an answer to each of its commands, in their order.

    Where it went beyond its sender's mutation quota (KIP-599), the sender is to be silent until `throttled_until_s` by
    the clock of the event loop.
    """

    answers: tuple[Answer, ...] = ()
    throttled_until_s: float = 0.0

    @property
    def throttle_time_ms(self) -> int:
        """For how long from now the sender is to be silent."""
        return max(0, round((self.throttled_until_s - asyncio.get_running_loop().time()) * 1000))

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)


PARTITIONS_PER_PORTION = 500
"""Of so many partitions a request's parts are decided at once: others get in between."""
K = TypeVar("K")
V = TypeVar("V")


def in_portions(wanted: Iterable[tuple[K, Sequence[V]]]) -> Iterator[list[tuple[K, Sequence[V]]]]:
    """What is wanted of partitions of some topics, each topic once, in portions of which none has more than
    `PARTITIONS_PER_PORTION`, and each names a topic once."""
    portion: list[tuple[K, Sequence[V]]] = []
    room = PARTITIONS_PER_PORTION
    for topic, each in wanted:
        for start in range(0, max(1, len(each)), PARTITIONS_PER_PORTION):
            piece = each[start : start + PARTITIONS_PER_PORTION]
            if len(piece) > room or not room:
                yield portion
                portion, room = [], PARTITIONS_PER_PORTION
            portion.append((topic, piece))
            room -= max(1, len(piece))
    if portion:
        yield portion


class ControllerStatus(msgspec.Struct, frozen=True):
    """How a controller stands at this moment, for health and figures.

    `storage_error` is why the log cannot be written now, `failure` what ended deciding; both are None while all is
    well.
    """

    events_durable: int
    topics_waiting: int
    requests_open: int
    storage_error: str | None
    failure: BaseException | None


class ControllerPort(Protocol):
    """Who has commands decided, and shows what is durable."""

    @property
    def store(self) -> TopicReader:
        """Topics, brokers and settings as of the newest event that may be seen."""
        ...

    @property
    def cluster_id(self) -> str:
        """The id of the cluster whose log this is."""
        ...

    def status(self) -> ControllerStatus:
        """Its status at this moment, for health and figures."""
        ...

    @property
    def refusals(self) -> RefusalRecords:
        """Where denials are counted that lead to no command."""
        ...

    def now_ms(self) -> int:
        """The time to stamp on a command."""
        ...

    def new_request_id(self, origin: str = "") -> RequestId:
        """An id that no other request has; `origin` says where it comes from."""
        ...

    def submit(self, commands: Sequence[ClientCommand], timeout_ms: int = 0) -> asyncio.Future[Reply]:
        """Put the commands of one request, one a topic. With `timeout_ms` above 0 what is not answered by then is
        answered REQUEST_TIMED_OUT."""
        ...


class Node(msgspec.Struct, frozen=True):
    """A node as clients are shown it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False


class ControllerApi:
    """One controller as its gateways see it.

    `node_id` is the controller's own, `advertised` the address at which clients reach it. With `broker_listeners` the
    brokers have ports of their own and the controller is a node beside them; else clients reach every broker at the
    controller's address, and a live broker is named as controller, as KRaft does.
    """

    decides_here = True
    """Whether this very process has the settings that decide."""

    def __init__(
        self,
        controller: ControllerPort,
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
        self._listener: str | None = None
        self.broker_listeners = broker_listeners
        self.authorizer: Authorizer = authorizer or AllowAll()
        self.partitions_per_response_max = partitions_per_response_max
        self._applied: Callable[[], int] | None = None
        self.turns = asyncio.Lock()
        """Held for each slice of a long answer, so that the loop does one of them in a round."""
        self.static_configs: Mapping[str, str] = {}
        """The settings that were given, by Kafka's keys: what DescribeConfigs shows as a broker's static configs."""
        self.policies: tuple[PolicyInForce, ...] | None = None
        """The policies that judge in this process, in their order; None where they judge elsewhere."""
        self.broker_ports: Callable[[Endpoint, BrokerId], Endpoint | None] | None = None
        """Where admin clients of a listener reach a broker of the target cluster through this process; None without
        such ports, and where brokers are no cluster of their own."""
        self.brokers_error: Callable[[], str | None] = lambda: None
        self.archive_error: Callable[[], str | None] = lambda: None
        """Why what is decided cannot be carried out now; None when it can."""
        self.quorum: Callable[[], QuorumView] | None = None
        """The quorum of controllers that this one votes in, as it sees it; None without one."""

    def as_of(self, applied: Callable[[], int]) -> ControllerApi:
        """The gateway of a node that knows only the topics whose creation it has applied; `applied` says how far it
        is. What a topic became later is shown at once."""
        api = copy(self)
        api._applied = applied
        return api

    def at_listener(self, advertised: Endpoint) -> ControllerApi:
        """The gateway as clients of one listener see it: they are shown the addresses of nodes for theirs."""
        api = copy(self)
        api.advertised, api._listener = advertised, advertised.name
        return api

    def _endpoint(self, broker: Broker) -> Endpoint:
        """Where clients find a broker: at the endpoint of their own listener, or its first where it has none such."""
        for endpoint in broker.endpoints:
            if endpoint.name == self._listener:
                return endpoint
        return broker.endpoints[0]

    # --- reading

    def knows(self, topic: Topic) -> bool:
        """Whether this node has applied the creation of the topic."""
        return self._applied is None or topic.created_offset <= self._applied()

    def topic(self, name: str) -> Topic | None:
        """The topic of exactly this name, if this node knows it."""
        topic = self.store.durable_named(name)
        return topic if topic is not None and self.knows(topic) else None

    @property
    def store(self) -> TopicReader:
        """The durable view of topics and brokers."""
        return self.controller.store

    @property
    def cluster(self) -> Cluster:
        """Brokers and settings as of the last durable commit."""
        return self.controller.store.durable_cluster

    @property
    def cluster_id(self) -> str:
        """The id of the cluster whose log this is."""
        return self.controller.cluster_id

    def nodes(self, include_fenced: bool = False) -> list[Node]:
        """The nodes that clients are shown, by id; the controller itself where it is a node of its own."""
        brokers = self.cluster.brokers
        nodes = [
            Node(broker_id, self._endpoint(broker).host, self._endpoint(broker).port, broker.rack, broker.fenced)
            for broker_id, broker in sorted(brokers.items())
            if include_fenced or not broker.fenced
        ]
        return [*self._own_nodes(), *nodes] if self._is_a_node_itself() else nodes

    def admin_nodes(self, include_fenced: bool = False) -> list[Node]:
        """The nodes that admin clients are shown. In front of a cluster these are its brokers at their listeners here:
        at its own address a broker would name another controller, and change topics itself."""
        if not self.cluster.settings.has_target_cluster:
            return self.nodes(include_fenced)
        if self.broker_ports is None:
            return self._own_nodes()
        at = {broker_id: self.broker_ports(self.advertised, broker_id) for broker_id in sorted(self.cluster.brokers)}
        brokers = [
            Node(broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
            for broker_id, endpoint in at.items()
            for broker in (self.cluster.brokers[broker_id],)
            if endpoint is not None and (include_fenced or not broker.fenced)
        ]
        return brokers or self._own_nodes()

    def admin_controller_id(self) -> int:
        """The node that admin clients are to send changes to: any of the cluster's brokers, at its listener here."""
        if self.broker_ports is None:
            return self.controller_id()
        return next(each.node_id for each in self.admin_nodes())

    def _own_nodes(self) -> list[Node]:
        return [Node(self.node_id, self.advertised.host, self.advertised.port)]

    def is_node(self, cluster_id: str, node_id: int) -> bool:
        """True if clients of this listener are shown the node of this id, in the cluster of this id, at its address."""
        if cluster_id != self.cluster_id:
            return False
        here = (self.advertised.host, self.advertised.port)
        shown = ((each.host, each.port) for each in self.nodes(include_fenced=True) if each.node_id == node_id)
        return node_id == self.node_id or here in shown

    def controller_id(self) -> int:
        """The node that clients are to send admin requests to."""
        return self.node_id if self._is_a_node_itself() else self.cluster.live[0]

    def _is_a_node_itself(self) -> bool:
        return self.broker_listeners or not self.cluster.live

    # --- permissions

    @property
    def has_authorizer(self) -> bool:
        """Whether permissions are looked at; without an authorizer there are no access control entries to manage."""
        return not isinstance(self.authorizer, AllowAll)

    def allows(self, requester: Requester, operation: Operation, topic: str | None = None) -> bool:
        """Whether the requester may do this to a topic, or (None) to the cluster."""
        if topic is None:
            return self.authorizer.allows(requester, operation, "Cluster", CLUSTER_NAME)
        return self.authorizer.allows(requester, operation, "Topic", topic)

    def grants(self, requester: Requester, operation: Operation, topic: str | None = None) -> bool:
        """The same of something that was requested outright: that it is not allowed goes to the log."""
        if topic is None:
            return self.grants_on(requester, operation, "Cluster", CLUSTER_NAME, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return self.grants_on(requester, operation, "Topic", topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def grants_on(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str, refusal: ErrorCode
    ) -> bool:
        """The same for any resource; `refusal` is the error that is answered where it is not allowed."""
        if self.authorizer.allows(requester, operation, resource_type, name):
            return True
        self.controller.refusals.record_denial(requester, operation, f"{resource_type}:{name}", int(refusal))
        return False

    def may_create(self, requester: Requester, topic: str) -> bool:
        """Whether the requester may create a topic: `Create` on the cluster or on the topic is needed (KIP-277)."""
        return self.allows(requester, "Create") or self.allows(requester, "Create", topic)

    def denial_of_create(self, requester: Requester, topic: str) -> int:
        """0, or the error of one who may not create."""
        return 0 if self.may_create(requester, topic) else int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def denial(self, requester: Requester, operation: Operation, topic: str) -> int:
        """0, or the error of one who may not do this to the topic."""
        return 0 if self.allows(requester, operation, topic) else int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def denial_of_delete(self, requester: Requester, topic: str, *, by_id: bool = False) -> int:
        """0, or the error of one who may not delete: `Delete` on the cluster or on the topic is needed. Who names a
        topic must be able to see it too, or its name could be tried; an id cannot be guessed."""
        if self.allows(requester, "Delete"):
            return 0
        is_granted = self.allows(requester, "Delete", topic) and (by_id or self.allows(requester, "Describe", topic))
        return 0 if is_granted else int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def topic_operations(self, requester: Requester, topic: str) -> int:
        """What the requester may do to a topic, as KIP-430's bit field."""
        return self._operations(requester, _TOPIC_OPERATIONS, topic)

    def cluster_operations(self, requester: Requester) -> int:
        """What the requester may do to the cluster, as KIP-430's bit field; 0 for one who may not describe it."""
        return self._operations(requester, _CLUSTER_OPERATIONS, None) if self.grants(requester, "Describe") else 0

    def _operations(self, requester: Requester, operations: Sequence[Operation], topic: str | None) -> int:
        return sum(1 << OPERATION_CODES[each] for each in operations if self.allows(requester, each, topic))

    # --- submitting

    def submit(self, commands: Sequence[ClientCommand], timeout_ms: int = 0) -> asyncio.Future[Reply]:
        """Put the commands of one request; where there are none, the reply is there at once, and empty."""
        if commands:
            return self.controller.submit(commands, timeout_ms)
        nothing = asyncio.get_running_loop().create_future()
        nothing.set_result(Reply())
        return nothing

    async def submit_cluster(self, command: ClusterCommand) -> Answer:
        """Put what concerns no topic; the answer has a detail for each of its parts, unless all of it failed."""
        (answer,) = await self.submit([command])
        return answer

    def submit_change(
        self, commands: Sequence[TopicCommand], timeout_ms: int = CHANGE_TIMEOUT_MS
    ) -> asyncio.Future[Reply]:
        """Put the changes of one request. They are answered when decided; where a cluster carries them out, when that
        is done, or REQUEST_TIMED_OUT when the time is up."""
        carried_out = self.cluster.settings.has_target_cluster
        return self.submit(commands, max(1, timeout_ms) if carried_out else 0)


def new_topic_ids(count: int) -> list[TopicId]:
    """Random topic ids (KIP-516). As in Kafka none begins with `-` in base64, so that command lines take it."""
    drawn = os.urandom(TOPIC_ID_BYTES * count)
    return [_as_uuid4(drawn[at : at + TOPIC_ID_BYTES]) for at in range(0, len(drawn), TOPIC_ID_BYTES)]


def _as_uuid4(drawn: bytes) -> TopicId:
    first = drawn[0] & 0x7F
    return TopicId(
        bytes((first,)) + drawn[1:6] + bytes((drawn[6] & 0x0F | 0x40, drawn[7], drawn[8] & 0x3F | 0x80)) + drawn[9:]
    )


def offline_replicas(replicas: Sequence[BrokerId], live: Sequence[BrokerId]) -> tuple[BrokerId, ...]:
    """The replicas that do not serve: those on brokers that are not live, placeholders included."""
    return tuple(replica for replica in replicas if replica not in live)
