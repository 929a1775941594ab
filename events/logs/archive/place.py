"""Where an archive is: a folder, or a bucket of an object store (S3, GCS, Azure), through pyarrow's filesystems.

What it is for: objects of some megabytes that are written whole and read whole. One that is there under its name is
whole, whenever who wrote it has died: object stores show an object once all of it is there, and in a folder it is
written under another name, synced and renamed.

Credentials come from the environment, as the store's own tools have them (AWS_ACCESS_KEY_ID, …): one in the URL would
stand in logs, in the log's folder and in copies of it, so it is refused.

What it does not do: try again (pyarrow does, a few times), and keep anything open.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import parse_qsl, urlsplit

from events.logs.log import LogError

OBJECT_BYTES_MAX: Final = 1 << 30
"""No object of an archive is larger: one that says so is not read."""
FORM: Final = "a folder, s3://BUCKET/PATH, gs://BUCKET/PATH or abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
_SCHEMES: Final = ("s3", "gs", "gcs", "abfs", "abfss")
TRIED_S: Final = 10
"""So long a store is tried that does not answer, where its client lets us say so."""
_LIMIT: Final = "retry_limit_seconds"
_T = TypeVar("_T")
_UNFINISHED: Final = ".unfinished"
_SECRET = re.compile(r"secret|password|token|key", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9-]+(/[a-z0-9-]+)?\.[a-z]+")


class ArchiveError(LogError):
    """The archive cannot do what was wanted. The message names it and says what to do."""


class BadPlace(ArchiveError):
    """What was given as the place of an archive is none."""


class ArchiveAway(ArchiveError):
    """The store cannot be reached, has no room, or does not let us: to be tried again."""


class Place(Protocol):
    """A place for objects under names of one or two words."""

    url: str

    def read(self, name: str) -> bytes | None:
        """An object, None where there is none. Raises ArchiveAway."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Put an object, or another in its place: whole, or not at all. Raises ArchiveAway."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names of what is in a folder, in order. Raises ArchiveAway."""
        ...

    def remove(self, name: str) -> None:
        """Let an object go, if it is there. Raises ArchiveAway."""
        ...


def open_place(url: str) -> Place:
    """The place that a URL, or the path of a folder, names; nothing is done there yet. Raises BadPlace."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        folder = parts.path if parts.scheme else url
        if not folder or parts.netloc or "\0" in folder:
            raise BadPlace(f"{_shown(url)!r} is no place for an archive: give {FORM}")
        return Folder(Path(os.path.abspath(folder)))
    if parts.scheme not in _SCHEMES:
        raise BadPlace(f"{_shown(url)!r} is no place for an archive: give {FORM}")
    named = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if parts.password is not None or (parts.scheme == "s3" and "@" in parts.netloc) or any(map(_SECRET.search, named)):
        raise BadPlace("the URL of an archive holds a secret: give that in the environment, as AWS_SECRET_ACCESS_KEY")
    if not parts.netloc or ".." in parts.path.split("/"):
        raise BadPlace(f"{_shown(url)!r} is no place for an archive: give {FORM}")
    return Bucket(url)


def within(url: str, name: str) -> str:
    """The URL of the place of that name in the place at `url`."""
    where, mark, options = url.partition("?")
    return f"{where.rstrip('/')}/{name}{mark}{options}"


def is_inside(place: Place, folder: Path) -> bool:
    """Whether what is put there goes with the folder when that is lost."""
    return isinstance(place, Folder) and Path(place.url).resolve().is_relative_to(folder.resolve())


def _shown(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//(hidden)@", url.partition("?")[0])[:200]


class Folder:
    """A place in a folder, which its owner alone can read: there are secrets in events."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder)
        self._folder = folder

    def read(self, name: str) -> bytes | None:
        """As `Place` has it."""
        try:
            with (self._folder / _checked(name)).open("rb") as file:
                return file.read(_sized(self.url, name, os.fstat(file.fileno()).st_size))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _away(self.url, error) from None

    def write(self, name: str, content: bytes) -> None:
        """As `Place` has it."""
        target = self._folder / _checked(name)
        fresh = target.with_name(target.name + _UNFINISHED)
        try:
            target.parent.mkdir(0o700, parents=True, exist_ok=True)
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(target)
            _sync(target.parent)
        except OSError as error:
            with suppress(OSError):
                fresh.unlink()
            raise _away(self.url, error) from None

    def names(self, folder: str) -> list[str]:
        """As `Place` has it."""
        try:
            return sorted(one for one in os.listdir(self._folder / folder) if not one.endswith(_UNFINISHED))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _away(self.url, error) from None

    def remove(self, name: str) -> None:
        """As `Place` has it."""
        try:
            (self._folder / _checked(name)).unlink(missing_ok=True)
        except OSError as error:
            raise _away(self.url, error) from None


class Bucket:
    """A place in an object store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._reached: tuple[Any, str] | None = None

    def read(self, name: str) -> bytes | None:
        """As `Place` has it."""

        def read(system: Any, path: str) -> bytes:
            with system.open_input_file(f"{path}/{_checked(name)}") as file:
                content: bytes = file.read(_sized(self.url, name, file.size()))
                return content

        try:
            return self._guarded(read)
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """As `Place` has it."""

        def write(system: Any, path: str) -> None:
            with system.open_output_stream(f"{path}/{_checked(name)}") as stream:
                stream.write(content)

        try:
            self._guarded(write)
        except FileNotFoundError as error:
            raise _away(self.url, error) from None

    def names(self, folder: str) -> list[str]:
        """As `Place` has it."""

        def names(system: Any, path: str) -> list[str]:
            from pyarrow import fs

            found = system.get_file_info(fs.FileSelector(f"{path}/{folder}", allow_not_found=True))
            return sorted(one.base_name for one in found if one.is_file)

        return self._guarded(names)

    def remove(self, name: str) -> None:
        """As `Place` has it."""
        with suppress(FileNotFoundError):
            self._guarded(lambda system, path: system.delete_file(f"{path}/{_checked(name)}"))

    def _guarded(self, call: Callable[[Any, str], _T]) -> _T:
        """What a call gives that is made with the store and the path in it. Raises ArchiveAway, FileNotFoundError.

        To find the region of a bucket it is reached out for already.
        """
        import pyarrow as pa  # what only looks whether something is archived goes without it
        from pyarrow import fs

        try:
            if self._reached is None:
                system, path = fs.FileSystem.from_uri(_bounded(self.url))
                self._reached = system, path.rstrip("/")
            return call(*self._reached)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise _away(self.url, error) from None


def _bounded(url: str) -> str:
    """The URL with a limit to how long Google's client tries again, which is a quarter of an hour otherwise: whoever
    waits for the store is to be shown why."""
    if not url.startswith(("gs:", "gcs:")) or _LIMIT in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}{_LIMIT}={TRIED_S}"


def _checked(name: str) -> str:
    assert _NAME.fullmatch(name), f"{name!r} is the name of no object of an archive"
    return name


def _sized(url: str, name: str, size: int) -> int:
    if size > OBJECT_BYTES_MAX:
        raise ArchiveAway(f"the archive {url} cannot be used now: {name} has {size} bytes: no object of an archive has")
    return size


def _away(url: str, error: Exception) -> ArchiveAway:
    return ArchiveAway(f"the archive {url} cannot be used now: {error}")


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
