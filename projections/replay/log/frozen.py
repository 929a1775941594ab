"""The files of a log folder as of one instant, while a service writes to it.

RocksDB opens a folder step by step: first the manifest, which names the table files and the oldest write-ahead log that
is still needed, then those logs. If the service moves events from a write-ahead log to a new table file between two
steps, and deletes the log, the opening fails or misses these events.

Method. Open every file, so that it stays readable after it is deleted. Then check that CURRENT, the manifest and the
set of write-ahead logs have not changed since. RocksDB deletes no file that a manifest needs before it has appended to
that manifest, so unchanged files belong together. If they have changed, try again, which takes a millisecond. RocksDB
then opens a temporary folder with copies of the small files and links to the open files for the others. Nothing is
written to the log's folder, which may be read-only or belong to another user.

Non-goal: freezing the end of the newest write-ahead log. RocksDB reads it up to the last complete record, which is
always a prefix of what was written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from events.logs.log import LogCorrupted, LogError

_TRIES = 1000  # files are made and merged by the live process meanwhile
_MANIFEST = "MANIFEST-"
_COPIED = ("IDENTITY", "rocksdict-config.json")
_LINKED = (".sst", ".log")
_OPEN_FILES = Path("/proc/self/fd")
"""Where Linux lists the open files of a process, also deleted ones."""


class _Moved(Exception):
    """The writer has moved files while they were opened."""


class _Start(msgspec.Struct, frozen=True):
    """The files that decide which others belong to them; any move by the writer changes them."""

    current: bytes
    manifest_size: int
    logs: frozenset[str]


@contextmanager
def frozen(folder: Path) -> Iterator[Path]:
    """A temporary folder with the files of a log as of one instant; removed afterwards.

    Raises LogCorrupted if CURRENT names no manifest, LogError if the files change at every try, and OSError if a file
    cannot be read or there are more files than the process may open (`ulimit -n`).
    """
    with TemporaryDirectory(prefix="topicwright-look-") as temporary:
        for _ in range(_TRIES):
            place = Path(temporary) / "log"
            place.mkdir()
            with ExitStack() as opened:
                try:
                    _freeze(folder, place, opened)
                except _Moved:
                    _empty(place)
                    continue
                yield place
                return
    raise LogError(f"{folder} cannot be read: its files changed during each of {_TRIES} tries; try again")


def _freeze(folder: Path, place: Path, opened: ExitStack) -> None:
    """Fill `place`; files stay open as long as `opened`. Raises _Moved."""
    before = _start(folder)
    name = before.current.decode(errors="replace").strip()
    for file in sorted(os.listdir(folder)):
        if file.endswith(_LINKED):
            _link(folder / file, place / file, opened)
        elif file in _COPIED:
            (place / file).write_bytes(_read(folder / file))
    manifest = _read(folder / name)[: before.manifest_size]
    if _start(folder) != before:
        raise _Moved
    (place / name).write_bytes(manifest)
    (place / "CURRENT").write_bytes(before.current)


def _start(folder: Path) -> _Start:
    """The current state. Raises _Moved if it changes while it is read."""
    current = (folder / "CURRENT").read_bytes()
    name = current.decode(errors="replace").strip()
    if not name.startswith(_MANIFEST) or "/" in name:
        raise LogCorrupted(f"{folder} is damaged (CURRENT names no manifest); restore the folder from a copy")
    try:
        size = (folder / name).stat().st_size
    except FileNotFoundError:
        if (folder / "CURRENT").read_bytes() != current:
            raise _Moved from None
        raise LogCorrupted(f"{folder} is damaged ({name} is missing); restore the folder from a copy") from None
    return _Start(current, size, frozenset(one for one in os.listdir(folder) if one.endswith(".log")))


def _link(file: Path, link: Path, opened: ExitStack) -> None:
    """Link to an open file, which stays readable when it is deleted. A file that is missing already is ignored: no
    current manifest needs it, or the check of the manifest fails, or RocksDB reports it."""
    try:
        number = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return
    opened.callback(os.close, number)
    by_number = _OPEN_FILES / str(number)
    link.symlink_to(by_number if by_number.exists() else file.resolve())


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise _Moved from None


def _empty(place: Path) -> None:
    for one in place.iterdir():
        one.unlink()
    place.rmdir()
