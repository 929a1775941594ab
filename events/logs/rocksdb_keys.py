"""Makes the keys of a RocksDB log (`rocksdb_database` describes them), and searches for runs in its indexes.

A run is a range of consecutive events of one shard or one request. Its key is the shard key or request id, a NUL and
the first offset. Its value is the last offset.
"""

from __future__ import annotations

import struct

from rocksdict import Rdict, RdictIter, ReadOptions

STATE = b"s"
RETAINED = b"e"
"""The key prefix of an event that was retained when the events around it were dropped."""
NEXT_KEY = b"mnext"
START_KEY = b"mstart"

pack = struct.Struct(">Q").pack

_SKIPPED_MAX = 100
"""Maximum number of deleted keys that a backward seek skips, which takes about a tenth of a millisecond."""


def run_prefix(kind: bytes, name: str) -> bytes:
    """The key prefix of all runs of a shard key or request id (`name`)."""
    text = name.encode("utf-8", "surrogatepass")
    return kind + (text.replace(b"\0", b"\0\xff") if b"\0" in text else text) + b"\0"


def runs_of(views: Rdict, prefix: bytes, oldest: int, start: int, end: int, most: int) -> list[range]:
    """The first `most` runs that overlap [start, end), each limited to that range."""
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
    """The first offset of the last run that begins at or before `at_most`; None without one (`Database.last_run`).

    A backward seek in RocksDB skips deleted keys one by one, a microsecond each, and rocksdict's lower bound does not
    stop it (0.3.29). After `_SKIPPED_MAX` keys this function bisects with forward seeks from `oldest` on instead:
    there no keys are deleted.
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
    """Options that end an iterator before an offset. The caller must hold them as long as the iterator, because the
    iterator reads its bound from them."""
    options = ReadOptions()
    options.set_iterate_upper_bound(prefix + pack(offset))
    return options


def is_valid(at: RdictIter) -> bool:
    """True if an iterator is on a key. Raises if RocksDB could not read."""
    if at.valid():
        return True
    at.status()
    return False
