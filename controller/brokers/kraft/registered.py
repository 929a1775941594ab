"""The controllers that are registered (KIP-919), as the metadata log says: no event does, for nothing depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from controller.brokers.kraft.log.batches import RecordBatch
from controller.brokers.kraft.log.metadata_codec import decode_record
from controller.brokers.kraft.log.metadata_records import RegisterControllerRecord, UnregisterControllerRecord
from controller.brokers.kraft.quorum.files import QuorumFiles
from controller.brokers.kraft.quorum.segment import FilePart

_HEADS: Final = (b"\x01\x1b", b"\x01\x1d")
"""What the values of the two kinds of records begin with: frame version and key. Others are not decoded."""


class RegisteredControllers:
    """Reads a voter's log when it is asked, which is seldom."""

    def __init__(self, files: QuorumFiles) -> None:
        self._files = files

    async def has(self, controller_id: int) -> bool:
        """Whether this controller is registered, counting what is not committed yet. Raises OSError, also where a
        newer snapshot replaced a file before it was read; and MalformedRecord, BrokenBatch."""
        files, end = self._files, self._files.end
        parts = (*files.newest_snapshot(), *files.since_snapshot(end))
        was = await asyncio.get_running_loop().run_in_executor(None, _read, parts, controller_id)
        return _after(was, files.batches(end), controller_id)  # what was appended meanwhile


def _read(parts: Sequence[FilePart], controller_id: int) -> bool:
    """In a thread."""
    return _after(False, chain.from_iterable(part.batches() for part in parts), controller_id)


def _after(registered: bool, batches: Iterable[RecordBatch], controller_id: int) -> bool:
    for batch in batches:
        for _, value in () if batch.is_control else batch.records:
            if value.startswith(_HEADS):
                match decode_record(value):
                    case RegisterControllerRecord(controller_id=found) if found == controller_id:
                        registered = True
                    case UnregisterControllerRecord(controller_id=found) if found == controller_id:
                        registered = False
    return registered
