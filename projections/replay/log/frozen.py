"""The files of a log folder as they were at one instant, whatever its writer does to them meanwhile.

What it is for: opening a log beside a service that writes at full speed. RocksDB opens a folder step by step: the
manifest, which lists the table files and says from which write-ahead log on they have to be made up for; then those
logs. A service that has moved a log's events into a new table file between two steps, and has deleted the log, makes
the opening miss them, or fail.

Method. Every file is opened, so that it stays readable whatever becomes of its name; then it is seen whether CURRENT,
the manifest and the set of write-ahead logs are still as they were before. RocksDB deletes nothing that a manifest
needs before it has added to it, so then these files are the ones that belong together; else it is done again, which
takes a millisecond. RocksDB is given a folder of its own, with copies of the small files and with links to the open
files for the others. Nothing is written to the log's folder, which may be of another user or read-only.

What it does not do: freeze the end of the newest write-ahead log. What the service adds to it is read or not; RocksDB
stops at the last whole record, so it always is a prefix of what was written.
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
"""Where Linux shows a process its open files, those without a name too."""


class _Moved(Exception):
    """The writer has moved files while they were opened."""


class _Start(msgspec.Struct, frozen=True):
    """What decides which files belong together. It changes whenever the writer has moved any."""

    current: bytes
    manifest_size: int
    logs: frozenset[str]


@contextmanager
def frozen(folder: Path) -> Iterator[Path]:
    """A folder with the files of a log as of one instant; removed afterwards.

    Raises LogCorrupted where CURRENT names no manifest, LogError where files never rest, OSError for what cannot be
    read, and where there are more files than the process may open (`ulimit -n`).
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
    raise LogError(f"{folder} cannot be looked at: its files have moved {_TRIES} times; try again")


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
    """How things stand now. Raises _Moved where they change just now."""
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
    """A link to a file that stays readable when it is deleted. One that is gone by now belonged to the past, or else
    the manifest has changed; where it is neither, RocksDB misses it."""
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
