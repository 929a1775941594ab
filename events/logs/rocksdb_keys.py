"""The keys of a RocksDB log (`rocksdb_database` describes them), and its runs of consecutive events of one shard or one
request: keys of a name, a NUL and an offset, with the last offset as their value."""

from __future__ import annotations

import struct

from rocksdict import Rdict, RdictIter, ReadOptions

STATE = b"s"
KEPT = b"e"
"""The key prefix of an event that was retained when the events around it were dropped."""
NEXT_KEY = b"mnext"
START_KEY = b"mstart"

pack = struct.Struct(">Q").pack

_SKIPPED_MAX = 100
"""Limit of deleted keys to step over on the way back to a run: a tenth of a millisecond."""


def run_prefix(kind: bytes, name: str) -> bytes:
    """The common prefix of the keys of a name's runs."""
    text = name.encode("utf-8", "surrogatepass")
    return kind + (text.replace(b"\0", b"\0\xff") if b"\0" in text else text) + b"\0"


def runs_of(views: Rdict, prefix: bytes, oldest: int, start: int, end: int, most: int) -> list[range]:
    """The runs that reach into [start, end), at most `most`."""
    runs: list[range] = []
    before = last_run(views, prefix, oldest, start)
    options = _below(prefix, end)
    at = views.iter(options)
    at.seek(prefix + pack(start if before is None else before))
    while len(runs) < most and is_valid(at):
        first = int.from_bytes(at.key()[-8:], "big")
        after = int.from_bytes(at.value(), "big") + 1
        if after > start:
            runs.append(range(max(start, first), min(end, after)))
        at.next()
    return runs


def last_run(views: Rdict, prefix: bytes, oldest: int, at_most: int) -> int | None:
    """As `Database.last_run`.

    RocksDB steps over each deleted key on its way back, in a microsecond each, and rocksdict's lower bound does not
    stop it (0.3.29). After some steps this searches forward by bisection instead, where nothing is deleted.
    """
    options = ReadOptions()
    options.set_max_skippable_internal_keys(_SKIPPED_MAX)
    at = views.iter(options)
    at.seek_for_prev(prefix + pack(at_most))
    if at.valid():
        key = at.key()
        first = int.from_bytes(key[-8:], "big")
        return first if key[:-8] == prefix and first >= oldest else None
    try:
        at.status()
    except Exception as error:
        if "Too many internal keys skipped" not in str(error):
            raise
    else:
        return None
    found, below = None, at_most + 1
    lowest, reach = below, 1
    while found is None and lowest > oldest:
        lowest, reach = max(oldest, lowest - reach), reach * 8
        found = _first_run(views, prefix, lowest, below)
    while found is not None and found + 1 < below:
        middle = (found + 1 + below) // 2
        later = _first_run(views, prefix, middle, below)
        found, below = (found, middle) if later is None else (later, below)
    return found


def _first_run(views: Rdict, prefix: bytes, start: int, below: int) -> int | None:
    options = _below(prefix, below)
    at = views.iter(options)
    at.seek(prefix + pack(start))
    return int.from_bytes(at.key()[-8:], "big") if is_valid(at) else None


def _below(prefix: bytes, offset: int) -> ReadOptions:
    """Options that end an iterator before an offset. Keep them as long as the iterator, which reads the bound from
    them."""
    options = ReadOptions()
    options.set_iterate_upper_bound(prefix + pack(offset))
    return options


def is_valid(at: RdictIter) -> bool:
    """True if an iterator is on a key. Raises if it could not read."""
    if at.valid():
        return True
    at.status()
    return False
