"""Feature levels (KIP-584): which levels this controller supports, which belong to a metadata.version, and which all
brokers support. Registration, UpdateFeatures and the first start of KRaft brokers use these tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from controller.kafka.messages.cluster import SupportedFeatureKey
from controller.machine.state import Broker
from controller.quorum.log.record_kinds import METADATA_VERSION_FEATURE

KRAFT_VERSION: Final = "kraft.version"
PRIORITY: Final = "topicwright.priority"
"""Topicwright voters report their leader priority as a feature: from level 1 to one above the priority."""
METADATA_VERSION_MIN: Final = 17
"""3.7-IV2, the first level with directories. Brokers of 3.7 and of 4.4 both support levels 17 to 19."""
METADATA_VERSION_MAX: Final = 33
"""4.4-IV2, the newest level of Kafka 4.4."""
METADATA_VERSION_SHARED: Final = 19
"""3.7-IV4, the highest level that all brokers from 3.7 to 4.4 support."""

Features = tuple[tuple[str, int], ...]


class FeatureRange(msgspec.Struct, frozen=True):
    lowest: int
    highest: int
    since: tuple[tuple[int, int], ...] = ()
    """(metadata.version, level) pairs, as Kafka's storage tool sets them when it formats a cluster."""


SUPPORTED: Final[dict[str, FeatureRange]] = {
    METADATA_VERSION_FEATURE: FeatureRange(METADATA_VERSION_MIN, METADATA_VERSION_MAX),
    KRAFT_VERSION: FeatureRange(0, 1),
    "transaction.version": FeatureRange(0, 2, ((25, 2),)),
    "group.version": FeatureRange(0, 1, ((25, 1),)),
    "eligible.leader.replicas.version": FeatureRange(0, 1, ((27, 1),)),
    "share.version": FeatureRange(0, 2, ((29, 1), (31, 2))),
    "streams.version": FeatureRange(0, 1, ((29, 1),)),
}


def priority_of(features: Iterable[SupportedFeatureKey]) -> int | None:
    """The leader priority of a controller with these features; None for Kafka's own controllers."""
    return next((each.max_version - 1 for each in features if each.name == PRIORITY), None)


def unsupported_feature(features: Features) -> str | None:
    """An error for the first unsupported feature level; None if all are supported."""
    if (level := dict(features).get(METADATA_VERSION_FEATURE, 0)) < METADATA_VERSION_MIN:
        return (
            f"metadata.version is {level}; it must be {METADATA_VERSION_MIN} (3.7) or higher: "
            "raise it with kafka-features.sh first"
        )
    for name, level in features:
        known = SUPPORTED.get(name)
        if known is None or not known.lowest <= level <= known.highest:
            allowed = "is unknown" if known is None else f"is not supported; allowed: {known.lowest} to {known.highest}"
            return f"feature {name} has level {level}, which {allowed}"
    return None


def features_at(metadata_version: int, brokers: Iterable[Broker] = ()) -> Features:
    """The features of a cluster at this level, as far as all brokers support them; sorted by name."""
    known = tuple(brokers)
    features = {METADATA_VERSION_FEATURE: metadata_version}
    for name, each in SUPPORTED.items():
        levels = [level for since, level in each.since if since <= metadata_version]
        if levels and all(broker.supports(name, levels[-1]) for broker in known):
            features[name] = levels[-1]
    return tuple(sorted(features.items()))


def shared_metadata_version(brokers: Iterable[Broker]) -> int | None:
    """The highest metadata.version that all brokers and this controller support; None if there is none."""
    lowest, highest = METADATA_VERSION_MIN, METADATA_VERSION_MAX
    for broker in brokers:
        for feature in broker.features:
            if feature.name == METADATA_VERSION_FEATURE:
                lowest, highest = max(lowest, feature.lowest), min(highest, feature.highest)
    return highest if lowest <= highest else None
