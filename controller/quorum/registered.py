"""Reads controllers' registrations from the metadata log (KIP-919), and frees upgrades from nodes that left.

A leader raises a feature only to levels that every registered controller supports, even a stopped one. Kafka
removes a registration only from metadata.version 33 on (KIP-1312), a level that the registration itself may block. So
a controller that left is registered once more: without listeners, and with ranges that contain every level.

If that controller still runs, this does no harm: a Kafka controller registers again when it sees another incarnation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from controller.kafka.messages.cluster import ControllerRegistrationRequest
from controller.kafka.messages.message import Feature
from controller.quorum.features import PRIORITY, SUPPORTED
from controller.quorum.files import QuorumFiles
from controller.quorum.log.batches import RecordBatch
from controller.quorum.log.metadata_codec import decode_record
from controller.quorum.log.metadata_records import RegisterControllerRecord
from controller.quorum.segment import FilePart

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
            found = await asyncio.to_thread(read_registered, parts)
        fold(found, files.batches(end))  # batches appended meanwhile
        return found


def read_registered(parts: Sequence[FilePart]) -> Registered:
    """The registrations in these parts of the log. Raises OSError, MalformedRecord, BrokenBatch."""
    found: Registered = {}
    for part in parts:
        fold(found, part.batches())
    return found


def fold(found: Registered, batches: Iterable[RecordBatch]) -> None:
    """Apply the next batches of a log. Raises MalformedRecord, and errors of `batches`."""
    for batch in batches:
        for _, value in () if batch.is_control else batch.records:
            if value.startswith(_REGISTERS):
                record = decode_record(value)
                if isinstance(record, RegisterControllerRecord):
                    found[record.controller_id] = record
            elif value.startswith(_UNREGISTERS):
                found.pop(int.from_bytes(value[3:7], "big", signed=True), None)


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
        controller_id=node_id,
        features=tuple(Feature(name=name, max_supported_version=LEVEL_MAX) for name in names),
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
