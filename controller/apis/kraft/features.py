"""The UpdateFeatures handler of a KRaft controller (KIP-584, KIP-778), and the finalized features that ApiVersions
returns."""

from __future__ import annotations

from controller.apis.cluster import finalized_keys
from controller.apis.kraft.broker_requests import broker_error
from controller.brokers.kraft.kraft_brokers import KraftBrokers
from controller.brokers.port import stamp
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages import cluster as messages
from controller.machine.commands.commands import ChangeFeatures
from controller.machine.errors import ErrorCode
from controller.quorum.features import (
    KRAFT_VERSION,
    SUPPORTED,
    Registered,
    RegisteredControllers,
    why_unsupported,
)
from controller.quorum.log.batches import KRAFT_VERSION_MAX, BrokenBatch
from controller.quorum.log.metadata_codec import MalformedRecord
from controller.quorum.log.record_kinds import METADATA_VERSION_FEATURE
from controller.quorum.node import QuorumNode
from controller.quorum.raft.effects import NotLeader, Refused

UPGRADE = 1
"""The upgrade type of a feature update that may not lower the level; version 0 has only `allow_downgrade`."""
_FAILED_WITHOUT_RESULTS_SINCE = 2


def finalized_features(brokers: KraftBrokers) -> tuple[int, tuple[messages.FinalizedFeatureKey, ...]]:
    """The newest applied metadata offset (the features epoch in ApiVersions), and the finalized features."""
    levels = dict(brokers.membership.cluster.features)
    if brokers.node.quorum.kraft_version:
        levels[KRAFT_VERSION] = brokers.node.quorum.kraft_version
    return brokers.replication.applied - 1, finalized_keys(levels.items())


async def update_features(
    api: ControllerApi,
    node: QuorumNode,
    registered: RegisteredControllers,
    context: RequestContext,
    request: messages.UpdateFeaturesRequest,
) -> messages.UpdateFeaturesResponse:
    """Answer UpdateFeatures: apply all changes of a request, or none. `registered` reads the features that the other
    controllers support."""
    levels = dict(api.cluster.features)
    try:
        controllers = await registered.all()
    except (OSError, BrokenBatch, MalformedRecord):  # a damaged disk, or a file replaced meanwhile
        return messages.UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER)
    results: list[messages.UpdatableFeatureResult] = []
    for update in request.feature_updates:
        why = _why_refused(api, node, update, levels, controllers)
        why = why and f"Invalid update version {update.max_version_level} for feature {why}"
        code = ErrorCode.NONE if why is None else ErrorCode.INVALID_UPDATE_VERSION
        results.append(messages.UpdatableFeatureResult(feature=update.feature, error_code=code, error_message=why))
        levels[update.feature] = update.max_version_level
    failed = next((each for each in results if each.error_code), None)
    if failed is not None and context.api_version >= _FAILED_WITHOUT_RESULTS_SINCE:
        message = f"The update failed for all features since the following feature had an error: {failed.error_message}"
        return messages.UpdateFeaturesResponse(error_code=failed.error_code, error_message=message)
    if failed is None and not request.validate_only:
        if any(each.feature == KRAFT_VERSION for each in request.feature_updates):
            failed_response = await _raise_kraft_version(node)
            if failed_response is not None:
                return failed_response
        features = tuple(sorted((name, level) for name, level in levels.items() if level and name != KRAFT_VERSION))
        stamped, reason = stamp(api.controller, "features"), f"requested by {context.principal}"
        (answer,) = await api.submit([ChangeFeatures(**stamped, features=features, reason=reason)])
        if answer.code:
            return messages.UpdateFeaturesResponse(
                error_code=broker_error(answer.code), error_message=answer.message or None
            )
    return messages.UpdateFeaturesResponse(results=tuple(results))


def _why_refused(
    api: ControllerApi,
    node: QuorumNode,
    update: messages.FeatureUpdateKey,
    levels: dict[str, int],
    registered: Registered,
) -> str | None:
    """The end of the error message, from the feature's name on; None if the update is allowed."""
    name, level, current, quorum = update.feature, update.max_version_level, levels.get(update.feature, 0), node.quorum
    is_upgrade = update.upgrade_type == UPGRADE and not update.allow_downgrade
    known = SUPPORTED.get(name)
    if known is None:
        return f"{name}. Local controller {quorum.me.id} does not support this feature."
    if name == KRAFT_VERSION:
        current = quorum.kraft_version
        if not current <= level <= KRAFT_VERSION_MAX:
            highest = f"{KRAFT_VERSION_MAX} is the highest supported version"
            return f"{name}. It is {current}, cannot be lowered, and {highest}."
    elif level != 0 and not known.lowest <= level <= known.highest:
        return f"{name}: {known.lowest} to {known.highest} are supported."
    elif level < current and is_upgrade:
        return (
            f"{name}. Can't downgrade the version of this feature without setting the upgrade type to either safe "
            "or unsafe downgrade."
        )
    elif name == METADATA_VERSION_FEATURE and level < current:
        return f"{name}: a downgrade from {current} is not supported."
    for broker_id, broker in sorted(api.cluster.brokers.items()):
        if not broker.supports(name, level):
            return f"{name}. Broker {broker_id} does not support it."
    controllers = {*registered, *quorum.voters.ids} - {quorum.me.id}
    why = why_unsupported(registered, controllers, name, level)
    return None if why is None else f"{name}. {why}"


async def _raise_kraft_version(node: QuorumNode) -> messages.UpdateFeaturesResponse | None:
    """Raise kraft.version from 0 to 1 (KIP-853). Returns the response if that fails."""
    if node.quorum.kraft_version:
        return None
    try:
        node.raise_kraft_version()
        await node.committed(node.quorum.log.end - 1)
    except (NotLeader, OSError):  # the disk is full, or failed and stopped the node
        return messages.UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER)
    except Refused as why:
        return messages.UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=str(why))
    return None
