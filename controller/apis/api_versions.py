"""ApiVersions (KIP-35), generated from the table of the listener. It also checks that the client reached the cluster
and node that it expects (KIP-1242)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from controller.brokers.kraft.features import FeatureRange
from controller.kafka.handling import ApiHandler, RequestContext
from controller.kafka.messages import APIS, ApiKey, cluster
from controller.machine.errors import ErrorCode
from controller.machine.keeping import cut

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Allowed names and versions of client software (KIP-511)."""
NO_NODE: Final = -1
"""The node id of a request that expects no certain node."""


def with_api_versions(
    handlers: Mapping[int, ApiHandler],
    *,
    supported_features: tuple[cluster.SupportedFeatureKey, ...] = (),
    finalized: Callable[[], tuple[int, tuple[cluster.FinalizedFeatureKey, ...]]] = lambda: (-1, ()),
    is_node: Callable[[str, int], bool] = lambda *_: True,
) -> dict[int, ApiHandler]:
    """Add ApiVersions to the table of a listener; it lists the whole table and these features.

    `finalized` returns the epoch and the finalized features. `is_node` returns True if this listener belongs to this
    node of this cluster.
    """
    api = APIS[ApiKey.API_VERSIONS]
    table = dict(handlers)

    def answer(context: RequestContext, request: cluster.ApiVersionsRequest) -> cluster.ApiVersionsResponse:
        if context.api_version >= 3 and not _record_client(context, request):
            return cluster.ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        if request.cluster_id is not None and not is_node(request.cluster_id, request.node_id):
            return cluster.ApiVersionsResponse(error_code=int(ErrorCode.REBOOTSTRAP_REQUIRED))
        # Clients before version 4 cannot read a feature whose lowest level is 0 (KAFKA-17492).
        features = tuple(f for f in supported_features if context.api_version >= 4 or f.min_version > 0)
        epoch, levels = finalized()
        return cluster.ApiVersionsResponse(
            api_keys=api_keys,
            supported_features=features,
            finalized_features=levels,
            finalized_features_epoch=epoch,
        )

    table[ApiKey.API_VERSIONS] = ApiHandler(api.min_version, api.max_version, answer)
    api_keys = tuple(_advertised(key, handler) for key, handler in sorted(table.items()))
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


def _advertised(api_key: int, handler: ApiHandler) -> cluster.ApiVersion:
    lowest = handler.min_version if handler.min_version_advertised is None else handler.min_version_advertised
    return cluster.ApiVersion(api_key=api_key, min_version=lowest, max_version=handler.max_version)


def _record_client(context: RequestContext, request: cluster.ApiVersionsRequest) -> bool:
    """Record the client's name and version. Returns False for a request that Kafka rejects as invalid."""
    if (request.cluster_id is None) != (request.node_id == NO_NODE):
        return False
    name, version = request.client_software_name, request.client_software_version
    if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
        return False
    context.connection.software_name = cut(name)
    context.connection.software_version = cut(version)
    return True
