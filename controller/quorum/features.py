"""Feature levels (KIP-584): which levels this controller supports, which belong to a metadata.version, and which all
brokers and all registered controllers support.

A leader raises a feature only to levels that every registered controller supports, even a stopped one. Controllers'
registrations are in the metadata log (KIP-919). Kafka removes a registration only from metadata.version 33 on
(KIP-1312), a level that the registration itself may block. So a controller that left is registered once more: without
listeners, and with ranges that contain every level.

If that controller still runs, this does no harm: a Kafka controller registers again when it sees another incarnation.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from controller.kafka.messages.cluster import ControllerRegistrationRequest, Feature, SupportedFeatureKey
from controller.kafka.messages.records import RegisterControllerRecord
from controller.machine.state import Broker
from controller.quorum.files import QuorumFiles
from controller.quorum.log.batches import RecordBatch
from controller.quorum.log.metadata_codec import decode_record
from controller.quorum.log.record_kinds import METADATA_VERSION_FEATURE
from controller.quorum.log_files import batches_of

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
    """The lowest and highest supported level of a feature (KIP-584)."""

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


LEVEL_MAX: Final = 32767
"""Levels are int16."""
_REGISTERS: Final = b"\1\x1b"
_UNREGISTERS: Final = b"\1\x1d"
"""The first bytes, frame version and key, of RegisterControllerRecord and UnregisterControllerRecord. Other records are
not decoded."""

Registered = dict[int, RegisterControllerRecord]
"""The newest registration of each controller, by node id."""


class RegisteredControllers:
    """Reads the registrations from a voter's log."""

    def __init__(self, files: QuorumFiles) -> None:
        self._files = files
        self._lock = asyncio.Lock()

    async def all(self) -> Registered:
        """The current registrations, uncommitted ones included. Raises MalformedRecord, BrokenBatch and OSError, also
        if a newer snapshot replaced a file before it was read."""
        files = self._files
        async with self._lock:  # each read uses a thread
            end = files.end
            parts = (*files.newest_snapshot(), *files.since_snapshot(end))
            found = await asyncio.to_thread(fold, {}, batches_of(parts))
        return fold(found, files.batches(end))  # batches appended meanwhile


def fold(found: Registered, batches: Iterable[RecordBatch]) -> Registered:
    """Apply the next batches of a log. Raises MalformedRecord, and errors of `batches`."""
    for batch in batches:
        for _, value in () if batch.is_control else batch.records:
            if value.startswith(_REGISTERS):
                record = decode_record(value)
                if isinstance(record, RegisterControllerRecord):
                    found[record.controller_id] = record
            elif value.startswith(_UNREGISTERS):
                found.pop(int.from_bytes(value[3:7], "big", signed=True), None)
    return found


def limits(registration: RegisterControllerRecord, features: Iterable[str]) -> dict[str, int]:
    """The highest level of each of `features` that a registration allows; 0 if the registration lacks the feature.
    Features without a limit are left out."""
    highest = {each.name: each.max_supported_version for each in registration.features}
    names = sorted({*highest, *features} - {PRIORITY})
    return {name: highest.get(name, 0) for name in names if highest.get(name, 0) < LEVEL_MAX}


def without_limits(node_id: int, features: Iterable[str]) -> ControllerRegistrationRequest:
    """The registration for a controller that left: it blocks no level of any feature in `features`."""
    names = sorted({*SUPPORTED, *features} - {PRIORITY})
    return ControllerRegistrationRequest(
        controller_id=node_id, features=tuple(Feature(name=name, max_supported_version=LEVEL_MAX) for name in names)
    )


def why_unsupported(
    registered: Mapping[int, RegisterControllerRecord], controllers: Iterable[int], name: str, level: int
) -> str | None:
    """Kafka's error text for the first of `controllers` that does not support a level of a feature; None if all do."""
    for node_id in sorted(controllers):
        if node_id not in registered:
            return f"controller {node_id} has not registered, and may not support this feature"
        features = registered[node_id].features
        ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in features}
        lowest, highest = ranges.get(name, (0, 0))
        if not lowest <= level <= highest:
            what = f"only supports versions {lowest}-{highest}" if highest else "does not support this feature."
            return f"Controller {node_id} {what}"
    return None
