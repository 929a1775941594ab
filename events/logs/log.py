"""The event log: the port to which the engine writes decisions, and from which queries and replays read events.

A log holds events, numbered from 0 without gaps, and the state that they lead to. It changes both in one atomic step, a
`Commit`. So after any crash the state is that of exactly the stored events.

Method. The log knows bytes only. A commit carries each event's bytes with the two keys of its indexes (shard and
request), and puts or deletes of opaque state keys. `write` makes a commit visible; `flush` makes everything written so
far survive a power cut, and may run in another thread, so that many commits share one sync. Callers must not answer a
client before `durable_offset` has passed the events that the answer depends on.

After a failed write or flush the log rejects writes until `recover` has found out what is stored.

Non-goals: encoding events, deciding, several writing threads.
"""

import errno
import os
import stat
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from events.errors import UserError


class LogError(UserError):
    """The log cannot do what was requested. The message names the folder and says what to do."""


class LogWriteError(LogError):
    """A commit was not written or not flushed. Writes are rejected until `recover` has succeeded."""


class LogDiskFull(LogWriteError):
    """The disk is full. `recover` succeeds once there is room again."""


class LogOfAnotherCluster(LogError):
    """The folder holds the log of cluster `found`, not of cluster `expected`."""

    def __init__(self, path: str, expected: str, found: str) -> None:
        super().__init__(
            f"{path} holds the log of cluster {found}, not of {expected}: "
            f"set cluster.id={found}, or choose another folder"
        )
        self.expected = expected
        self.found = found


class LogFromNewerVersion(LogError):
    """A newer release wrote the folder; this one would not understand all of it."""


class LogLocked(LogError):
    """Another process has the log open; `pid` is its process id as from `lock_holder`."""

    def __init__(self, path: str, pid: int | None) -> None:
        holder = "another process" if pid is None or pid <= 0 else f"process {pid}"
        super().__init__(
            f"{path} is open in {holder}, and one process writes a log: stop that one, or choose another folder"
        )


class LogCorrupted(LogError):
    """The data on disk is not what was written. Nothing is skipped: restore a copy of the folder."""


class LogClosed(LogError):
    """The log was closed by `close`, or by a `recover` that failed."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One event of a commit.

    `value` is the event's canonical bytes. `shard_key` is its shard, "" for events that concern every shard.
    `request_id` is the request that led to it, "" for none; such events are in no request index.
    """

    value: bytes
    shard_key: str = ""
    request_id: str = ""


class Commit(msgspec.Struct, frozen=True, gc=False):
    """One atomic write: events, and the state keys that they change (None deletes a key).

    A commit with `state` but without entries is rejected. `own` are state keys that are not derived from events, such
    as the position in another log; they need no events.
    """

    entries: Sequence[Entry] = ()
    state: Mapping[bytes, bytes | None] = {}
    own: Mapping[bytes, bytes | None] = {}


def end_of_range(start: int, end: int | None, next_offset: int) -> int:
    """The end of the range [start, end) in a log, whose default is `next_offset`. Raises ValueError for a negative
    offset."""
    if start < 0 or (end is not None and end < 0):
        raise ValueError(f"offsets begin at 0: requested {start} to {end}")
    return next_offset if end is None else min(end, next_offset)


class StateKeys(Protocol):
    """The state keys of a log, current or past."""

    def get(self, key: bytes) -> bytes | None: ...
    def scan(self, prefix: bytes = b"", start_after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """The state keys that begin with `prefix`, in byte order, from the first one after `start_after`.

        This is no snapshot: a key that exists throughout appears exactly once; one that changes meanwhile appears with
        a value from during the scan, or not at all.
        """


class MemoryKeys:
    """State keys in memory, which may change during a scan."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        """In order."""

    def put(self, changes: Mapping[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                if self._values.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
            else:
                if key not in self._values:
                    insort(self._keys, key)
                self._values[key] = value

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def scan(self, prefix: bytes = b"", start_after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        lower, upper = key_range(prefix, start_after)
        index = bisect_left(self._keys, lower)
        while index < len(self._keys):
            key = self._keys[index]
            if upper is not None and key >= upper:
                return
            yield key, self._values[key]
            index = bisect_right(self._keys, key)


SHARD, REQUEST = b"t", b"r"
"""The two indexes of events: by shard key, where "" has the events that concern every shard, and by request id, which
has no events under ""."""


class EventLog(StateKeys, Protocol):
    """Events and the resulting state, in one store.

    `write`, `recover` and `close` belong to one thread. `flush` and all reads may run concurrently in other threads.
    Iterators hold nothing open: they read in pages, and may outlive writes or be dropped. After `close` they raise
    LogClosed.
    """

    path: Path
    """The folder of the log and its snapshots."""
    cluster_id: str
    """The cluster whose history this is."""
    start_offset: int
    """The first offset in the log itself; earlier events are stored elsewhere."""
    next_offset: int
    """The offset of the next event, which is the number of events."""

    @property
    def durable_offset(self) -> int:
        """All events below it survive a power cut: `next_offset` when the last `flush` began."""

    def write(self, commit: Commit) -> int:
        """Write a commit and return the offset of its first event. It is readable at once and durable after `flush`,
        in the order of commits.

        An empty commit writes nothing and returns `next_offset`. Raises LogWriteError (LogDiskFull for a full disk),
        and then nothing is written; ValueError for state without events.
        """

    def flush(self) -> int:
        """Make everything written so far durable. Blocks for the disk and returns the new `durable_offset`.

        Raises LogWriteError (LogDiskFull); writes since the previous flush may then be lost or not: `recover` finds
        out.
        """

    def mark_durable(self) -> None:
        """Mark everything written so far as durable elsewhere, from where it can be written again. The next `flush`
        still flushes it."""

    def recover(self) -> int:
        """Find out what was written after a failed write or flush, and return the new `next_offset`.

        Unflushed writes may be gone with their state, so whatever was derived from them must be read again. Everything
        found is durable. Raises LogError while the cause lasts, and may be retried. Readers in other threads may get
        LogClosed.
        """

    def read(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The events in [start, end) in order; `end` defaults to the current `next_offset`.

        They may not be durable yet; pass `durable_offset` as `end` to exclude those.
        """

    def read_many(self, offsets: Sequence[int]) -> list[bytes]:
        """The events at some offsets, in the order requested. Raises IndexError if one is missing."""

    def runs(self, index: bytes, name: str, start: int = 0, end: int | None = None) -> Iterator[range]:
        """The events in [start, end) whose key in an index is `name`, as ranges of consecutive offsets (runs), in
        order."""

    def shard_keys(self, after: str = "") -> Iterator[str]:
        """The shard keys with events, in order, from the first one after a key; never ""."""

    def close(self) -> None:
        """Flush and close the log; closing twice is allowed. Everything else raises LogClosed from now on."""


_T = TypeVar("_T")


def grouped(
    items: Iterable[_T], room: int, size_of: Callable[[_T], int], count_max: int | None = None
) -> Iterator[list[_T]]:
    """Consecutive items in lists. A list ends with the item whose size fills `room`, or with `count_max` items."""
    group: list[_T] = []
    left = room
    for item in items:
        group.append(item)
        left -= size_of(item)
        if left <= 0 or len(group) == count_max:
            yield group
            group, left = [], room
    if group:
        yield group


def pair_size(pair: tuple[bytes, bytes]) -> int:
    return len(pair[0]) + len(pair[1])


def read_one(log: EventLog, offset: int) -> bytes:
    """The event at an offset. Raises IndexError if there is none."""
    return log.read_many((offset,))[0]


def shard_offsets(log: EventLog, shard_key: str, start: int = 0, end: int | None = None) -> Iterator[int]:
    """The offsets of a shard key's events in [start, end), in order."""
    return chain.from_iterable(log.runs(SHARD, shard_key, start, end))


def request_offsets(log: EventLog, request_id: str, start: int = 0) -> Iterator[int]:
    """The offsets of a request id's events from `start` on, in order."""
    return chain.from_iterable(log.runs(REQUEST, request_id, start))


RUNS_MAX = 1000


def shard_runs(log: EventLog, shard_keys: Sequence[str], start: int, end: int) -> list[list[range] | None]:
    """The events of several shard keys, at least one, as ranges.

    With more than RUNS_MAX ranges, returns those of the first keys only, and [None] if the first key alone has more.
    """
    found: list[list[range] | None] = []
    room = RUNS_MAX
    for shard_key in shard_keys:
        runs = list(islice(log.runs(SHARD, shard_key, start, end), room + 1))
        room -= len(runs)
        if room < 0:
            return found or [None]
        found.append(runs)
    return found


def key_range(prefix: bytes, start_after: bytes | None) -> tuple[bytes, bytes | None]:
    """The half-open range of keys of a scan; an upper bound of None means no bound."""
    lower = prefix if start_after is None or start_after < prefix else start_after + b"\0"
    stem = prefix.rstrip(b"\xff")
    upper = stem[:-1] + bytes((stem[-1] + 1,)) if stem else None
    return lower, upper


def open_regular(path: Path) -> int:
    """A descriptor of a regular file for reading. Raises OSError also for a pipe or a device, whose reads might never
    end."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.EINVAL, "is not a regular file", str(path))


def check_regular(folder: Path) -> None:
    """Raise LogCorrupted if a folder holds anything but files and folders. Raises OSError."""
    with os.scandir(folder) as found:
        special = next((one for one in found if not (one.is_file() or one.is_dir())), None)
    if special is not None:
        raise LogCorrupted(f"{special.path} is not a regular file: restore the folder from a copy")


def read_bytes(path: Path, bytes_max: int) -> bytes:
    """The content of a file; `path` may be a pipe, as from a shell's process substitution. Raises OSError, also for a
    longer content than `bytes_max`."""
    with path.open("rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"is larger than {bytes_max} bytes", str(path))
    return content


def read_text(path: Path, bytes_max: int) -> str:
    """The UTF-8 text in a file, as `read_bytes`. Raises also UnicodeDecodeError."""
    return read_bytes(path, bytes_max).decode()
