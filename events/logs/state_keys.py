"""State keys: what reads them, be it a log or a snapshot of one, and which of them a prefix means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class StateKeys(Protocol):
    """The state keys of a log, as they are or as they were; `events.logs.log.EventLog` says what each promises."""

    def get(self, key: bytes) -> bytes | None: ...
    def scan(self, prefix: bytes = b"", start_after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]: ...


def key_range(prefix: bytes, start_after: bytes | None) -> tuple[bytes, bytes | None]:
    """The half-open range of keys of a scan; an upper bound of None means no bound."""
    lower = prefix if start_after is None or start_after < prefix else start_after + b"\0"
    stem = prefix.rstrip(b"\xff")
    upper = stem[:-1] + bytes((stem[-1] + 1,)) if stem else None
    return lower, upper
