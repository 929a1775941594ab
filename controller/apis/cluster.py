"""The handlers of ApiVersions (KIP-35), of DescribeCluster for brokers (KIP-700) and controllers (KIP-919), and of
DescribeQuorum and UpdateFeatures without KRaft; `tables` and `kraft.listener` give them to listeners.

ApiVersions lists the listener's handlers, and checks that the client reached the expected cluster and node
(KIP-1242)."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from controller.apis import Call
from controller.controller_api import Node
from controller.kafka.handling import ApiHandler, RequestContext
from controller.kafka.messages import APIS, ApiKey, cluster, quorum
from controller.kafka.messages.cluster import Listener
from controller.kafka.messages.message import BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS, OPERATIONS_OMITTED
from controller.machine.errors import ErrorCode
from controller.quorum.features import METADATA_VERSION_MAX, FeatureRange, features_at
from controller.quorum.raft.consensus import Consensus
from controller.quorum.raft.role import the_partition, topics_of
from events.errors import CLIENT_TEXT_MAX, shortened

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Allowed names and versions of client software (KIP-511)."""
NEWEST: Final = features_at(METADATA_VERSION_MAX)
"""The finalized features of simulated brokers: always the newest levels."""
NO_NODE: Final = -1
"""The node id of a request that expects no particular node."""


def with_api_versions(
    handlers: Mapping[int, ApiHandler],
    *,
    supported_features: tuple[cluster.SupportedFeatureKey, ...] = (),
    finalized: Callable[[], tuple[int, tuple[cluster.FinalizedFeatureKey, ...]]] = lambda: (-1, ()),
    is_expected_node: Callable[[str, int], bool] = lambda *_: True,
) -> dict[int, ApiHandler]:
    """Add ApiVersions to the table of a listener (a handler by API key). Its response lists this table and features.

    `finalized` returns the epoch and the finalized features. `is_expected_node` returns True if this listener
    belongs to this node of this cluster.
    """
    api = APIS[ApiKey.API_VERSIONS]
    table = dict(handlers)

    def answer(context: RequestContext, request: cluster.ApiVersionsRequest) -> cluster.ApiVersionsResponse:
        if context.api_version >= 3 and not _record_client(context, request):
            return cluster.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if request.cluster_id is not None and not is_expected_node(request.cluster_id, request.node_id):
            return cluster.ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        # Clients before version 4 cannot read a feature whose lowest level is 0 (KAFKA-17492).
        features = tuple(f for f in supported_features if context.api_version >= 4 or f.min_version > 0)
        epoch, levels = finalized()
        return cluster.ApiVersionsResponse(
            api_keys=api_keys, supported_features=features, finalized_features=levels, finalized_features_epoch=epoch
        )

    table[ApiKey.API_VERSIONS] = ApiHandler(api.min_version, api.max_version, answer)
    api_keys = tuple(
        cluster.ApiVersion(
            api_key=key, min_version=0 if each.is_advertised_from_0 else each.min_version, max_version=each.max_version
        )
        for key, each in sorted(table.items())
    )
    return table


def supported_features(ranges: Mapping[str, FeatureRange]) -> tuple[cluster.SupportedFeatureKey, ...]:
    return tuple(
        cluster.SupportedFeatureKey(name=name, min_version=each.lowest, max_version=each.highest)
        for name, each in sorted(ranges.items())
    )


def finalized_keys(features: Iterable[tuple[str, int]]) -> tuple[cluster.FinalizedFeatureKey, ...]:
    return tuple(
        cluster.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in sorted(features)
    )


def _record_client(context: RequestContext, request: cluster.ApiVersionsRequest) -> bool:
    """Record the client's name and version. Returns False for a request that Kafka rejects as invalid."""
    if (request.cluster_id is None) != (request.node_id == NO_NODE):
        return False
    name, version = request.client_software_name, request.client_software_version
    if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
        return False
    context.connection.software = f"{shortened(name, CLIENT_TEXT_MAX)} {shortened(version, CLIENT_TEXT_MAX)}"
    return True


_ENDPOINT_TYPES = {BROKER_ENDPOINTS: "BROKER", CONTROLLER_ENDPOINTS: "CONTROLLER"}


def describe_cluster(
    consensus: Consensus | None, call: Call, request: cluster.DescribeClusterRequest
) -> cluster.DescribeClusterResponse:
    """Answer DescribeCluster with the brokers; fenced brokers only if requested (version 2). For clients with
    `bootstrap.controllers` (KIP-919), whose listener has a `consensus`: with the voters' endpoints and leader."""
    api, own = call.api, BROKER_ENDPOINTS if consensus is None else CONTROLLER_ENDPOINTS
    if request.endpoint_type != own:
        return _wrong_endpoint_type(request.endpoint_type, own)
    if consensus is None:
        list_nodes = api.nodes if api.broker_ports is None else api.admin_nodes
        controller_id, nodes = api.admin_controller_id(), list_nodes(request.include_fenced_brokers)
    else:
        controller_id = consensus.leader_id
        nodes = [Node(each.id, *consensus.address_of(each)) for each in consensus.voters]
    wants_operations = request.include_cluster_authorized_operations
    return cluster.DescribeClusterResponse(
        endpoint_type=own,
        cluster_id=api.cluster_id,
        controller_id=controller_id,
        brokers=tuple(
            cluster.DescribeClusterBroker(
                broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack, is_fenced=node.fenced
            )
            for node in nodes
        ),
        cluster_authorized_operations=api.cluster_operations(call.context) if wants_operations else OPERATIONS_OMITTED,
    )


def describe_quorum(call: Call, request: quorum.DescribeQuorumRequest) -> quorum.DescribeQuorumResponse:
    """Answer DescribeQuorum without KRaft: this process is the only voter, and its log the event log."""
    if the_partition(request.topics) is None:
        return quorum.DescribeQuorumResponse(error_code=ErrorCode.INVALID_REQUEST)
    api = call.api
    end, now_ms = api.controller.status().events_durable, api.controller.now_ms()
    voter = quorum.QuorumReplica(
        replica_id=api.node_id, log_end_offset=end, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms
    )
    part = quorum.DescribeQuorumPartitionResult(leader_id=api.node_id, high_watermark=end, current_voters=(voter,))
    at = Listener(name=api.advertised.name, host=api.advertised.host, port=api.advertised.port)
    node = quorum.QuorumNode(node_id=api.node_id, listeners=(at,))
    return quorum.DescribeQuorumResponse(topics=topics_of(part), nodes=(node,))


def update_features(call: Call, request: cluster.UpdateFeaturesRequest) -> cluster.UpdateFeaturesResponse:
    """Answer UpdateFeatures without KRaft: simulated brokers always have the newest levels (`NEWEST`), so any other
    level is refused."""
    levels = dict(NEWEST)
    for update in request.feature_updates:
        level = levels.get(update.feature)
        if update.max_version_level != level:
            only = "it is unknown" if level is None else f"simulated brokers have level {level}, which cannot change"
            message = f"Invalid update version {update.max_version_level} for feature {update.feature}: {only}."
            return cluster.UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=message)
    results = tuple(cluster.UpdatableFeatureResult(feature=each.feature) for each in request.feature_updates)
    return cluster.UpdateFeaturesResponse(results=results)


def _wrong_endpoint_type(requested: int, own: int) -> cluster.DescribeClusterResponse:
    """The error for a request about another endpoint type than this listener's."""
    if requested in _ENDPOINT_TYPES and requested != own:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = (
            f"The request was sent to an endpoint of type {_ENDPOINT_TYPES[own]}, but we wanted an endpoint of type "
            f"{_ENDPOINT_TYPES[requested]}"
        )
    else:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {requested}"
    return cluster.DescribeClusterResponse(error_code=code, error_message=message, endpoint_type=own)
