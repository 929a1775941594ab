"""Checks BrokerRegistration requests like `ClusterControlManager.registerBroker` (KIP-631), for
`apis.kraft.broker_requests`.

Controllers register too (KIP-919): this module makes their request and record. These registrations are in the metadata
log only; Kafka's leader reads them before it raises a feature.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.kafka.messages import cluster as cluster_messages
from controller.kafka.messages.cluster import BrokerRegistrationRequest
from controller.kafka.messages.message import Feature, Listener
from controller.machine.errors import ErrorCode
from controller.machine.state import Broker, Cluster
from controller.quorum.features import SUPPORTED
from controller.quorum.log import metadata_records as kinds
from controller.quorum.log.record_kinds import METADATA_VERSION_FEATURE
from controller.quorum.raft.voters import Voter
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
    """The metadata record of a controller's registration."""
    return kinds.RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=request.listeners,
        features=request.features,
    )
