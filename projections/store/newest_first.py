"""Offsets in keys so that the newest come first: a scan goes forward only."""

from __future__ import annotations

from typing import Final

_LAST: Final = 2**64 - 1


def inverted(offset: int) -> bytes:
    """An offset as eight bytes of which the highest is the first in order."""
    return (_LAST - offset).to_bytes(8, "big")


def offset_at_end(key: bytes) -> int:
    """The offset of a key that ends with it inverted."""
    return _LAST - int.from_bytes(key[-8:], "big")
