"""The UpdateFeatures handler of a KRaft controller (KIP-584, KIP-778), and the supported and finalized features that
ApiVersions returns."""

from __future__ import annotations

from controller.apis import cluster
from controller.apis.kraft.broker_reports import broker_error
from controller.brokers.kraft.kraft_brokers import KraftBrokers
from controller.brokers.port import stamp
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages.cluster import (
    FeatureUpdateKey,
    FinalizedFeatureKey,
    SupportedFeatureKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from controller.machine.commands.commands import ChangeFeatures
from controller.machine.errors import ErrorCode
from controller.quorum.features import KRAFT_VERSION, PRIORITY, SUPPORTED, FeatureRange
from controller.quorum.log.batches import KRAFT_VERSION_MAX, BrokenBatch
from controller.quorum.log.metadata_codec import MalformedRecord
from controller.quorum.log.record_kinds import METADATA_VERSION_FEATURE
from controller.quorum.node import QuorumNode
from controller.quorum.raft.effects import NotLeader, Refused
from controller.quorum.registered import Registered, RegisteredControllers, why_unsupported

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""The upgrade types of a feature update, numbered as in Kafka's protocol."""
_FAILED_WITHOUT_RESULTS_SINCE = 2


def supported_features(priority: int) -> tuple[SupportedFeatureKey, ...]:
    """The features that this controller supports. The feature `topicwright.priority` reports its leader `priority`."""
    ranges = {**SUPPORTED, PRIORITY: FeatureRange(1, 1 + priority)}
    return cluster.supported_features(ranges)


def finalized_features(brokers: KraftBrokers) -> tuple[int, tuple[FinalizedFeatureKey, ...]]:
    """The newest applied metadata offset (the features epoch in ApiVersions), and the finalized features."""
    levels = dict(brokers.membership.cluster.features)
    if brokers.node.quorum.kraft_version:
        levels[KRAFT_VERSION] = brokers.node.quorum.kraft_version
    return brokers.replication.applied - 1, cluster.finalized_keys(levels.items())


class UpdateFeaturesHandler:
    """Answers UpdateFeatures: applies all changes of a request, or none. `registered` reads the features that the other
    controllers support."""

    def __init__(self, api: ControllerApi, node: QuorumNode, registered: RegisteredControllers) -> None:
        self._api = api
        self._node = node
        self._registered = registered

    async def __call__(self, context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        levels = dict(self._api.cluster.features)
        try:
            registered = await self._registered.all()
        except (OSError, BrokenBatch, MalformedRecord):  # a damaged disk, or a file replaced meanwhile
            return UpdateFeaturesResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        results: list[UpdatableFeatureResult] = []
        for update in request.feature_updates:
            why = self._why_refused(context.api_version, update, levels, registered)
            why = why and f"Invalid update version {update.max_version_level} for feature {why}"
            code = ErrorCode.NONE if why is None else ErrorCode.INVALID_UPDATE_VERSION
            results.append(UpdatableFeatureResult(feature=update.feature, error_code=int(code), error_message=why))
            levels[update.feature] = update.max_version_level
        failed = next((each for each in results if each.error_code), None)
        if failed is not None:
            return _failure(context.api_version, failed, results)
        if not request.validate_only:
            if any(each.feature == KRAFT_VERSION for each in request.feature_updates):
                failed_response = await self._raise_kraft_version()
                if failed_response is not None:
                    return failed_response
            features = tuple(sorted((name, level) for name, level in levels.items() if level and name != KRAFT_VERSION))
            stamped, reason = stamp(self._api.controller, "features"), f"requested by {context.principal}"
            (answer,) = await self._api.submit([ChangeFeatures(**stamped, features=features, reason=reason)])
            if answer.code:
                return UpdateFeaturesResponse(
                    error_code=broker_error(answer.code), error_message=answer.message or None
                )
        return UpdateFeaturesResponse(results=tuple(results))

    def _why_refused(
        self, version: int, update: FeatureUpdateKey, levels: dict[str, int], registered: Registered
    ) -> str | None:
        """The end of the error message, from the feature's name on; None if the update is allowed."""
        name, level, current = update.feature, update.max_version_level, levels.get(update.feature, 0)
        known = SUPPORTED.get(name)
        if known is None:
            return f"{name}. Local controller {self._node.quorum.me.id} does not support this feature."
        if name == KRAFT_VERSION:
            current = self._node.quorum.kraft_version
            if not current <= level <= KRAFT_VERSION_MAX:
                highest = f"{KRAFT_VERSION_MAX} is the highest supported version"
                return f"{name}. It is {current}, cannot be lowered, and {highest}."
        elif level != 0 and not known.lowest <= level <= known.highest:
            return f"{name}: {known.lowest} to {known.highest} are supported."
        elif level < current and _upgrade_type(version, update) == UPGRADE:
            return (
                f"{name}. Can't downgrade the version of this feature without setting the upgrade type to either safe "
                "or unsafe downgrade."
            )
        elif name == METADATA_VERSION_FEATURE and level < current:
            return f"{name}: a downgrade from {current} is not supported."
        for broker_id, broker in sorted(self._api.cluster.brokers.items()):
            if not broker.supports(name, level):
                return f"{name}. Broker {broker_id} does not support it."
        quorum = self._node.quorum
        controllers = {*registered, *quorum.voters.ids} - {quorum.me.id}
        why = why_unsupported(registered, controllers, name, level)
        return None if why is None else f"{name}. {why}"

    async def _raise_kraft_version(self) -> UpdateFeaturesResponse | None:
        """Raise kraft.version from 0 to 1 (KIP-853). Returns the response if that fails."""
        node = self._node
        if node.quorum.kraft_version:
            return None
        try:
            node.raise_kraft_version()
            await node.committed(node.quorum.log.end - 1)
        except (NotLeader, OSError):  # the disk is full, or failed and stopped the node
            return UpdateFeaturesResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        except Refused as why:
            return UpdateFeaturesResponse(error_code=int(ErrorCode.INVALID_UPDATE_VERSION), error_message=str(why))
        return None


def _upgrade_type(version: int, update: FeatureUpdateKey) -> int:
    """The upgrade type; version 0 has only `allow_downgrade`."""
    if version == 0:
        return UNSAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return update.upgrade_type


def _failure(
    version: int, failed: UpdatableFeatureResult, results: list[UpdatableFeatureResult]
) -> UpdateFeaturesResponse:
    if version >= _FAILED_WITHOUT_RESULTS_SINCE:
        message = f"The update failed for all features since the following feature had an error: {failed.error_message}"
        return UpdateFeaturesResponse(error_code=failed.error_code, error_message=message)
    return UpdateFeaturesResponse(results=tuple(results))
