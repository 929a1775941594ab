"""Registrations of brokers and controllers, and the registered brokers: their epochs, sessions and log directories, and
how far each has applied the metadata log. The handlers of heartbeats and reports (`apis.kraft`) use this module.

BrokerRegistration requests are checked like `ClusterControlManager.registerBroker` (KIP-631). Controllers register too
(KIP-919): this module makes their request and record. These registrations are in the metadata log only; Kafka's leader
reads them before it raises a feature.

In requests a broker's epoch is the offset of its registration in the metadata log (wire epoch); the state machine
counts registrations. This module translates.

A second process with a broker's id cannot register, but it follows the metadata log and reads the registered broker's
epoch there. Its directory reports pass Kafka's checks, so the two processes would undo each other's reports forever. A
report about a directory that the registered broker never had comes from the other process. A directory that failed
after the registration still counts as the broker's own: brokers report the failure (KIP-858). For brokers that
registered before this process started, directories are unknown and not checked.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from controller.brokers.kraft.projector import MetadataProjector
from controller.brokers.kraft.replication import QuorumReplication
from controller.brokers.port import CommandSink
from controller.kafka.messages import cluster as cluster_messages
from controller.kafka.messages import records as kinds
from controller.kafka.messages.cluster import BrokerRegistrationRequest, Feature, Listener
from controller.machine.errors import ErrorCode
from controller.machine.state import Broker, Cluster
from controller.quorum.features import SUPPORTED
from controller.quorum.log.record_kinds import METADATA_VERSION_FEATURE
from controller.quorum.raft.voters import Voter
from events.catalog import BrokerFenced, BrokerRegistered, BrokerUnfenced, BrokerUnregistered
from events.names import BrokerId

OLDEST_METADATA_VERSION = 1
RESERVED_DIRECTORIES = frozenset(number.to_bytes(16, "big") for number in range(100))
"""Directory ids that no broker may use, as in Kafka's `DirectoryId.reserved`."""
NAMED_MAX = 100
"""The limit on the listeners and on the features of one node; Kafka nodes have a few of each."""
DIRECTORIES_MAX = 256
"""The limit on the log directories of one broker: a registration compares its directories with those of all brokers,
and each partition's directory is searched among them."""


def refusal(
    request: BrokerRegistrationRequest, cluster: Cluster, cluster_id: str, *, has_session: bool
) -> tuple[ErrorCode, str] | None:
    """Kafka's error code if a registration is refused, and the reason for the log; None if it is accepted.
    `has_session` is true if the broker id sent a heartbeat within the session timeout."""
    if request.cluster_id != cluster_id:
        why = f"the broker belongs to cluster {request.cluster_id}, not to {cluster_id}"
        return ErrorCode.INCONSISTENT_CLUSTER_ID, why
    known = cluster.brokers.get(BrokerId(request.broker_id))
    if known is not None and has_session and not known.fenced and known.incarnation != request.incarnation_id.hex():
        why = "another broker with this id has a session: register again when that session has ended"
        return ErrorCode.DUPLICATE_BROKER_REGISTRATION, why
    if request.is_migrating_zk_broker:
        return ErrorCode.BROKER_ID_NOT_REGISTERED, "brokers in ZooKeeper mode cannot register"
    if (invalid := _invalid(request, cluster.brokers.values())) is not None:
        return ErrorCode.INVALID_REGISTRATION, invalid
    unsupported = _unsupported(request, dict(cluster.features))
    return None if unsupported is None else (ErrorCode.UNSUPPORTED_VERSION, unsupported)


def _invalid(request: BrokerRegistrationRequest, brokers: Iterable[Broker]) -> str | None:
    directories = request.log_dirs
    if request.broker_id < 0:
        return f"invalid broker id {request.broker_id}"
    if not request.listeners:
        return "the broker has no listeners"
    if max(len(request.listeners), len(request.features)) > NAMED_MAX or len(directories) > DIRECTORIES_MAX:
        return f"more than {NAMED_MAX} listeners or features, or more than {DIRECTORIES_MAX} log directories"
    if not directories:
        return "No directories specified in request"
    if any(directory in RESERVED_DIRECTORIES for directory in directories):
        return "Reserved directory ID in request"
    distinct = set(directories)
    if len(distinct) != len(directories):
        return "Duplicate directory ID in request"
    for broker in brokers:
        shared = distinct.intersection(broker.log_dirs) if broker.broker_id != request.broker_id else ()
        if shared:
            return f"Broker {broker.broker_id} is already registered with directory {min(shared).hex()}"
    return None


def _unsupported(request: BrokerRegistrationRequest, finalized: Mapping[str, int]) -> str | None:
    ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    ranges.setdefault(METADATA_VERSION_FEATURE, (OLDEST_METADATA_VERSION, OLDEST_METADATA_VERSION))
    for name, level in sorted(finalized.items()):
        lowest, highest = ranges.get(name, (0, 0))
        if level and not lowest <= level <= highest:
            return f"the broker supports {name} {lowest} to {highest}; the cluster has level {level}"
    return None


def controller_registration(
    me: Voter, incarnation: bytes, security_protocol: int
) -> cluster_messages.ControllerRegistrationRequest:
    """The registration request of this controller: its listeners and supported features."""
    return cluster_messages.ControllerRegistrationRequest(
        controller_id=me.id,
        incarnation_id=incarnation,
        listeners=tuple(
            Listener(name=each.name, host=each.host, port=each.port, security_protocol=security_protocol)
            for each in me.listeners
        ),
        features=tuple(
            Feature(name=name, min_supported_version=each.lowest, max_supported_version=each.highest)
            for name, each in sorted(SUPPORTED.items())
        ),
    )


def controller_record(request: cluster_messages.ControllerRegistrationRequest) -> kinds.RegisterControllerRecord:
    return kinds.RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=request.listeners,
        features=request.features,
    )


ANY_EPOCH: Final = -1
"""Sent by a broker that does not know another broker's epoch (KIP-903)."""
NO_EPOCH: Final = -2
"""An epoch that no broker has."""

logger = structlog.get_logger("topicwright.kraft")


class Membership:
    """The registered brokers as of the last durable commit, and their sessions (`broker.session.timeout.ms`, KIP-631).
    `clock` is monotonic, in seconds."""

    def __init__(
        self,
        controller: CommandSink,
        projector: MetadataProjector,
        replication: QuorumReplication,
        session_timeout_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._projector = projector
        self._replication = replication
        self._clock = clock
        self._session_timeout_s = session_timeout_s
        self._seen: dict[BrokerId, float] = {}
        """The time of each broker's last heartbeat. A broker without one has a whole session from `_since` on."""
        self._since = self._checked = self._changed_at = clock()
        self._directories: dict[BrokerId, frozenset[bytes]] = {}
        """The log directory ids of each broker, as of its registration."""
        self._applied_ends: dict[BrokerId, int] = {}
        """For each broker, the metadata log end that the broker reported as applied."""
        self._leaving: dict[BrokerId, int] = {}
        """For each broker in controlled shutdown, the metadata log end when the broker no longer led any partition."""

    @property
    def cluster(self) -> Cluster:
        return self._controller.store.durable_cluster

    # --- epochs

    def broker(self, broker_id: int, epoch: int) -> Broker | None:
        """The registered broker if `epoch`, as on the wire, is its own; else None."""
        broker = self.cluster.brokers.get(BrokerId(broker_id))
        return broker if broker is not None and self._projector.broker_epoch(broker_id) == epoch else None

    def machine_epoch(self, broker_id: int, epoch: int) -> int:
        """The machine's epoch for a wire epoch; NO_EPOCH if that is outdated."""
        if epoch == ANY_EPOCH:
            return ANY_EPOCH
        broker = self.broker(broker_id, epoch)
        return NO_EPOCH if broker is None else broker.broker_epoch

    def wire_epoch(self, broker_id: BrokerId, machine_epoch: int) -> int | None:
        """The wire epoch of a registration; None if the broker unregistered or registered again since."""
        broker = self.cluster.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != machine_epoch:
            return None
        return self._projector.broker_epoch(broker_id)

    def shut_down_cleanly(self, broker_id: BrokerId, epoch: int) -> bool:
        """True if a registering broker lost no data: all its directories show a clean shutdown in `epoch`, the wire
        epoch of its newest registration (KIP-966). `epoch` is -1 before version 3 and after an unclean shutdown. Kafka
        trusts no unregistered broker; here a broker without replicas cannot have lost anything."""
        if broker_id in self.cluster.brokers:
            return self._projector.broker_epoch(broker_id) == epoch
        return broker_id not in self._controller.store.durable_tallies.brokers

    # --- sessions

    def has_session(self, broker_id: BrokerId) -> bool:
        return self._clock() - self._seen.get(broker_id, self._since) < self._session_timeout_s

    def resume(self) -> None:
        """This process now leads: sessions start again, and applied offsets must be reported again."""
        self._since = self._checked = self._clock()
        self._seen.clear()
        self._applied_ends.clear()
        self._leaving.clear()
        self.restart_unchanged()

    def touch(self, broker_id: BrokerId) -> None:
        self._seen[broker_id] = self._clock()

    def expired(self) -> list[BrokerId]:
        """The unfenced brokers whose session has expired.

        If this process was stopped or starved meanwhile, all sessions are extended by that time, because heartbeats may
        wait to be read.
        """
        now = self._clock()
        held_up, self._checked = now - self._checked - self._session_timeout_s / 4, now
        if held_up > 0:
            self._since += held_up
            self._seen = {broker_id: seen + held_up for broker_id, seen in self._seen.items()}
        return [
            broker_id
            for broker_id, each in self.cluster.brokers.items()
            if not each.fenced and not self.has_session(broker_id)
        ]

    # --- applied offsets

    def applied(self, broker_id: BrokerId, end: int) -> None:
        """Handle a heartbeat of a broker that has applied the metadata log below `end`."""
        self.touch(broker_id)
        self._applied_ends[broker_id] = end

    def may_unfence(self) -> bool:
        """True if all topics were reconciled since the broker was fenced."""
        return self._controller.is_reconciled()

    def leads(self, broker_id: BrokerId) -> bool:
        return self._controller.store.durable_tallies.brokers.get(broker_id, (0, 0))[0] > 0

    def may_shut_down(self, broker_id: BrokerId) -> bool:
        """True if a broker in controlled shutdown leads nothing, and every live broker has applied that."""
        if not self._controller.is_reconciled() or self.leads(broker_id):
            return False
        end = self._replication.applied
        applied = min((self._applied_ends.get(each, 0) for each in self.cluster.live), default=end)
        return self._leaving.setdefault(broker_id, end) <= applied

    def is_unknown_directory(self, broker_id: int, directory: bytes) -> bool:
        """True if the broker is known not to have this log directory. Logs a warning."""
        own = self._directories.get(BrokerId(broker_id), frozenset())
        is_unknown = bool(own) and directory not in own and directory not in RESERVED_DIRECTORIES
        if is_unknown:
            logger.warning(
                "a broker reports replicas in an unknown log directory: a second process with its id?",
                broker=broker_id,
                directory=directory.hex(),
            )
        return is_unknown

    # --- registrations

    def unchanged_for_s(self) -> float:
        """Seconds since a broker last registered or was unfenced."""
        return self._clock() - self._changed_at

    def restart_unchanged(self) -> None:
        self._changed_at = self._clock()

    def on_event(self, event: BrokerRegistered | BrokerUnfenced | BrokerFenced | BrokerUnregistered) -> None:
        """Update directories and applied offsets after a durable event of a broker."""
        broker_id = event.broker_id
        match event:
            case BrokerRegistered(details=details):
                self._directories[broker_id] = frozenset(() if details is None else details.log_dirs)
                self._leaving.pop(broker_id, None)
                self._applied_ends.pop(broker_id, None)
                self.restart_unchanged()
            case BrokerUnfenced():
                self.restart_unchanged()
            case BrokerUnregistered():
                self._directories.pop(broker_id, None)
                self._seen[broker_id] = float("-inf")
                self._applied_ends.pop(broker_id, None)
