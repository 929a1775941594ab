"""The event log: the port that deciding writes to and seeing reads from.

What a log is for. It holds events, numbered from 0 without gaps, and the state that they lead to, and moves both in
one atomic step: a `Commit`. So after any crash the state is the state of exactly the events that are there.

Method. The log knows bytes only. A commit carries each event's bytes with the two keys by which people ask for events
later (shard and request), and puts or deletes of opaque state keys. `write` makes a commit visible; `flush` makes
everything written so far survive a power cut, and may run in another thread, so that many commits share one sync.
Answer nobody before `durable_offset` has passed the events that the answer rests on.

When writing or flushing fails, the log refuses writes until `recover` has found out what is truly there.

What it does not do: it encodes no events, decides nothing, and is written by one thread at a time.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec


class LogError(Exception):
    """The log cannot do what was asked. The message names the folder and says what to do."""


class LogWriteError(LogError):
    """A commit was not written or not flushed. No write is taken until `recover` has succeeded."""


class LogDiskFull(LogWriteError):
    """There is no room for what was to be written. `recover` succeeds once there is room again."""


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
    """The folder was written by a newer release: this one would not understand all of it."""


class LogLocked(LogError):
    """Another process has the log open; `pid` is its process id, where it is known."""

    def __init__(self, path: str, pid: int | None) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(
            f"{path} is open in {holder}, and one process writes a log: stop that one, or choose another folder"
        )
        self.pid = pid


class LogCorrupted(LogError):
    """What is on the disk is not what was written. Nothing is skipped: a copy of the folder has to be restored."""


class LogNotAFolder(LogError):
    """The path, or a part of it, is something other than a folder."""


class LogAccessDenied(LogError):
    """This user may not read or write the folder."""


class LogClosed(LogError):
    """The log was closed, or a failed `recover` left it closed."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One event of a commit.

    `value` is the event's canonical bytes. `shard_key` is the shard that it concerns, "" for events that concern every
    shard. `request_id` is the request that led to it, "" if none did; such events are in no request's index.
    """

    value: bytes
    shard_key: str = ""
    request_id: str = ""


class Commit(msgspec.Struct, frozen=True, gc=False):
    """What is written in one atomic step: events, and the state keys that they change (None deletes a key).

    State changes through events only: a commit with state but without entries is refused.
    """

    entries: Sequence[Entry] = ()
    state: Mapping[bytes, bytes | None] = {}


def check_commit(commit: Commit) -> None:
    """Raise ValueError for a commit that changes state without an event."""
    if commit.state and not commit.entries:
        raise ValueError("a commit changes state only together with the events that say so")


def check_range(start: int, end: int | None) -> None:
    """Raise ValueError for a negative offset."""
    if start < 0 or (end is not None and end < 0):
        raise ValueError(f"offsets begin at 0: asked for {start} to {end}")


class StateKeys(Protocol):
    """The state keys of a log, as they are or as they were; `EventLog` says what each promises."""

    def get(self, key: bytes) -> bytes | None: ...
    def scan(self, prefix: bytes = b"", start_after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]: ...


class EventLog(Protocol):
    """Events and the state they lead to, in one store.

    `write`, `recover` and `close` belong to one thread. `flush` and all reading may run in other threads beside them.
    Iterators hold nothing open: they read in pages and may be kept across writes, or dropped, at will. One that is
    asked for more after `close` raises LogClosed.
    """

    @property
    def path(self) -> Path | None:
        """The folder of the log, where its snapshots are too; None for one in memory."""
        ...

    @property
    def cluster_id(self) -> str:
        """The cluster whose history this is."""
        ...

    @property
    def start_offset(self) -> int:
        """The first offset whose event is here; those before it are read from the archive, where there is one."""
        ...

    @property
    def next_offset(self) -> int:
        """The offset that the next event will have; the number of events there are."""
        ...

    @property
    def durable_offset(self) -> int:
        """Every event below it survives a power cut: `next_offset` as it was when the last `flush` began."""
        ...

    def write(self, commit: Commit) -> int:
        """Write a commit and return the offset of its first event. It can be read at once; it is durable after `flush`.

        An empty commit writes nothing and returns `next_offset`. Raises LogWriteError (LogDiskFull if that is why), and
        then nothing of the commit is there; ValueError for state without events.
        """
        ...

    def note(self, state: Mapping[bytes, bytes | None]) -> None:
        """Write state keys that say nothing new of the events: a reader's place in another log, what can be worked out
        again; None deletes. They are durable no sooner than the events before, and no later than those after.

        Raises LogWriteError.
        """
        ...

    def flush(self) -> int:
        """Make all that is written so far durable; blocks for the disk and returns the new `durable_offset`.

        Raises LogWriteError (LogDiskFull), and then what was written since the flush before may be there or not:
        `recover` finds out.
        """
        ...

    def vouch(self) -> None:
        """All that is written so far survives a power cut elsewhere, and can be written again from there: it counts as
        durable. The next `flush` flushes it all the same."""
        ...

    def recover(self) -> int:
        """Find out what is truly there after a failed write or flush, and return the new `next_offset`.

        Writes that were never flushed may be gone, with the state that came with them, so whatever was derived from
        them has to be read again. Everything that is there afterwards is durable. Raises LogError while the cause
        lasts, and can be tried again. Readers in other threads may meet LogClosed meanwhile.
        """
        ...

    def read(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The events at offsets from `start` up to but not including `end` (None: `next_offset` now), in order.

        Events that are not durable yet are among them; pass `durable_offset` as `end` to leave them out.
        """
        ...

    def read_one(self, offset: int) -> bytes:
        """The event at an offset. Raises IndexError if there is none."""
        ...

    def read_many(self, offsets: Sequence[int]) -> list[bytes]:
        """The events at some offsets, in the order asked for. Raises IndexError if there is none at one of them."""
        ...

    def shard_offsets(self, shard_key: str, start: int = 0, end: int | None = None) -> Iterator[int]:
        """The offsets, in order, of the events written under a shard key, from `start` up to but not including `end`.

        The key "" gives the events that concern every shard; they are not among those of the other keys.
        """
        ...

    def shard_runs(self, shard_keys: Sequence[str], start: int, end: int) -> list[list[range] | None]:
        """The same offsets as ranges, of each of some shard keys in one go. Where they are many, of fewer keys, from
        the first on; None for the first alone where it has too many itself. There is at least one key."""
        ...

    def shard_keys(self, after: str = "") -> Iterator[str]:
        """The shard keys that events were written under, in order, from the first one after a key; never ""."""
        ...

    def request_offsets(self, request_id: str, start: int = 0) -> Iterator[int]:
        """The offsets, in order, from `start` on, of the events written under a request id. Those under "" are not
        indexed."""
        ...

    def older_requests(self, end: int) -> Iterator[tuple[int, StateKeys]]:
        """State keys that are in the archive alone: those of the requests that began before an offset, of one segment
        after another with its start, the newest first. None without an archive."""
        ...

    def get(self, key: bytes) -> bytes | None:
        """The value of a state key, or None."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several state keys, in the order asked for."""
        ...

    def scan(self, prefix: bytes = b"", start_after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """The state keys that begin with `prefix`, in byte order, from the first one after `start_after`.

        No frozen picture: a key that is there throughout comes exactly once; one that is put or deleted meanwhile
        comes with its value of some moment during the scan, or not at all.
        """
        ...

    def close(self) -> None:
        """Flush, and let go of the log; closing twice is nothing. All else raises LogClosed from now on."""
        ...


def key_range(prefix: bytes, start_after: bytes | None) -> tuple[bytes, bytes | None]:
    """The half-open range of keys of a scan; an upper bound of None means no bound."""
    lower = prefix if start_after is None or start_after < prefix else start_after + b"\0"
    stem = prefix.rstrip(b"\xff")
    upper = stem[:-1] + bytes((stem[-1] + 1,)) if stem else None
    return lower, upper


def open_regular(path: Path) -> int:
    """A descriptor for reading a regular file. Raises OSError, also for a pipe or a device, which might never end."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.EINVAL, "is not a regular file", str(path))


def check_regular(folder: Path) -> None:
    """Raises LogCorrupted where a folder holds anything but files and folders, OSError."""
    with os.scandir(folder) as found:
        special = next((one for one in found if not (one.is_file() or one.is_dir())), None)
    if special is not None:
        raise LogCorrupted(f"{special.path} is not a regular file: restore the folder from a copy")


def read_text(path: Path, bytes_max: int) -> str:
    """A text in UTF-8, of a pipe too, as shells make them. Raises OSError, for a longer one too, UnicodeDecodeError."""
    with path.open("rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"is larger than {bytes_max} bytes", str(path))
    return content.decode()
