"""Stores the objects of an archive by name: in a folder, or in a bucket (S3, GCS, Azure) through pyarrow.

Objects are some megabytes large, and written whole. An object under its final name is complete, even if its writer
died: object stores list complete objects only, and in a folder `replacing` writes them.

Credentials come from the environment, as with the store's own tools (AWS_ACCESS_KEY_ID, …). URLs appear in log lines,
health answers, and the log's folder with its copies. So a URL is rejected unless each part is known to hold no secret.

Non-goals: retries (pyarrow makes a few), open connections.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from events.files import UNFINISHED, replacing
from events.logs.log import LogError, open_regular

OBJECT_BYTES_MAX: Final = 1 << 30
"""The maximum size of an object."""
FORM: Final = "a folder, s3://BUCKET/PATH, gs://BUCKET/PATH or abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
TRIED_S: Final = 10
"""The retry limit for a store that does not answer, if its client has such a setting."""
_LIMIT: Final = "retry_limit_seconds"
_ENVIRONMENT: Final = "give credentials in the environment, as AWS_SECRET_ACCESS_KEY"
_OPTIONS: Final = {
    "s3": "region scheme endpoint_override allow_bucket_creation allow_bucket_deletion force_virtual_addressing "
    "check_directory_existence_before_creation tls_ca_file_path tls_ca_dir_path tls_verify_certificates",
    "gs": "scheme endpoint_override retry_limit_seconds project_id",
    "abfs": "blob_storage_authority dfs_storage_authority blob_storage_scheme dfs_storage_scheme enable_tls "
    "credential_kind tenant_id client_id",
}
"""Query parameters of pyarrow's URLs that hold no secret."""
_ALIASES: Final = {"gcs": "gs", "abfss": "abfs"}
_OPTION_VALUE = re.compile(r"[A-Za-z0-9._:/\[\]-]*")
"""Names, numbers, addresses and paths: neither user info nor a query."""
_CONTAINER = re.compile(r"[a-z0-9-]{3,63}|\$[a-z]{3,10}")
_NAME = re.compile(r"_?[a-z0-9-]+(/[a-z0-9-]+)?\.[a-z]+")


class ArchiveError(LogError):
    """The archive cannot be used. The message names it and says what to do."""


class BadArchiveUrl(ArchiveError):
    """The URL of an archive is invalid or may hold a secret."""


class ArchiveAway(ArchiveError):
    """The store is unreachable, full, or denies access; the caller may retry."""


def open_store(url: str) -> ArchiveStore:
    """The store at a URL or folder path, without accessing it. Raises BadArchiveUrl."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _no_place(url) from None
    if parts.scheme in ("", "file"):
        folder = parts.path if parts.scheme else url
        if not folder or parts.netloc or "\0" in folder:
            raise _no_place(url)
        return Folder(Path(os.path.abspath(folder)))
    scheme = _ALIASES.get(parts.scheme, parts.scheme)
    if scheme not in _OPTIONS:
        raise _no_place(url)
    _refuse_secrets(scheme, parts)
    if not parts.netloc or ".." in parts.path.split("/"):
        raise _no_place(url)
    return Bucket(url)


def _refuse_secrets(scheme: str, parts: SplitResult) -> None:
    """Raise BadArchiveUrl for a URL that may hold a secret, without showing it."""
    user, at, _ = parts.netloc.rpartition("@")
    if at and not (_CONTAINER.fullmatch(user) if scheme == "abfs" else (scheme, user) == ("gs", "anonymous")):
        raise BadArchiveUrl(f"the part before @ in the URL of an archive may hold a secret: {_ENVIRONMENT}")
    if parts.fragment:
        raise BadArchiveUrl(f"the part after # in the URL of an archive may hold a secret: {_ENVIRONMENT}")
    allowed = sorted(_OPTIONS[scheme].split())
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in allowed:
            raise BadArchiveUrl(
                f"a parameter in the URL of an archive may hold a secret: {_ENVIRONMENT}; "
                f"parameters of {parts.scheme}:// may be {', '.join(allowed)}"
            )
        if not _OPTION_VALUE.fullmatch(value):
            raise BadArchiveUrl(
                f"the value of {name} in the URL of an archive may hold a secret: {_ENVIRONMENT}; "
                "a value may have letters, digits and the characters . _ : / [ ] -"
            )


def _no_place(url: str) -> BadArchiveUrl:
    """The error for an invalid URL, which it shows without query, fragment and user info."""
    shown = re.sub(r"//.*@", "//(hidden)@", re.split("[?#]", url, maxsplit=1)[0], flags=re.DOTALL)[:200]
    return BadArchiveUrl(f"{shown!r} is not a place for an archive: use {FORM}")


def within(url: str, name: str) -> str:
    """The URL of a subfolder of the store at `url`."""
    where, mark, options = url.partition("?")
    return f"{where.rstrip('/')}/{name}{mark}{options}"


def is_inside(store: ArchiveStore, folder: Path) -> bool:
    """True if the store lies inside the folder, so that both would be lost together."""
    return isinstance(store, Folder) and Path(store.url).resolve().is_relative_to(folder.resolve())


class Folder:
    """A store of objects by name, in a folder that only its owner can read, because events hold secrets. All methods
    raise ArchiveAway."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder)
        self._folder = folder

    def read(self, name: str, bytes_max: int = OBJECT_BYTES_MAX, start: int = 0) -> bytes | None:
        """The bytes of an object from position `start` on; None if it does not exist. ArchiveAway also if it is larger
        than `bytes_max`."""
        try:
            with open(open_regular(self._folder / _checked(name)), "rb") as file:
                size = _sized(self.url, name, os.fstat(file.fileno()).st_size, bytes_max)
                file.seek(start)
                return file.read(size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _away(self.url, error) from None

    def write(self, name: str, content: bytes | memoryview) -> None:
        """Write or replace an object atomically."""
        target = self._folder / _checked(name)
        try:
            target.parent.mkdir(0o700, parents=True, exist_ok=True)
            with replacing(target) as file:
                file.write(content)
        except OSError as error:
            raise _away(self.url, error) from None

    def names(self, folder: str) -> list[str]:
        """The names in a folder, in order."""
        try:
            return sorted(one for one in os.listdir(self._folder / folder) if not one.endswith(UNFINISHED))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _away(self.url, error) from None

    def remove(self, name: str) -> None:
        try:
            (self._folder / _checked(name)).unlink(missing_ok=True)
        except OSError as error:
            raise _away(self.url, error) from None


class Bucket:
    """A store in a bucket of an object store, with the methods of `Folder`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connected: tuple[Any, str] | None = None

    def read(self, name: str, bytes_max: int = OBJECT_BYTES_MAX, start: int = 0) -> bytes | None:
        try:
            with self._reached() as (system, path), system.open_input_file(f"{path}/{_checked(name)}") as file:
                size = _sized(self.url, name, file.size(), bytes_max)
                content: bytes = file.read_at(max(size - start, 0), min(start, size))
                return content
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes | memoryview) -> None:
        try:
            with self._reached() as (system, path), system.open_output_stream(f"{path}/{_checked(name)}") as stream:
                stream.write(content)
        except FileNotFoundError as error:
            raise _away(self.url, error) from None

    def names(self, folder: str) -> list[str]:
        from pyarrow import fs

        with self._reached() as (system, path):
            found = system.get_file_info(fs.FileSelector(f"{path}/{folder}", allow_not_found=True))
            return sorted(one.base_name for one in found if one.is_file)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError), self._reached() as (system, path):
            system.delete_file(f"{path}/{_checked(name)}")

    @contextmanager
    def _reached(self) -> Iterator[tuple[Any, str]]:
        """The filesystem and the path in it, connecting first if necessary. Its errors become ArchiveAway, except
        FileNotFoundError."""
        import pyarrow as pa  # takes long to load, and is not needed without an archive
        from pyarrow import fs

        try:
            if self._connected is None:
                url = self.url
                if url.startswith(("gs:", "gcs:")) and _LIMIT not in url:  # Google's client retries for 15 minutes
                    url += f"{'&' if '?' in url else '?'}{_LIMIT}={TRIED_S}"
                system, path = fs.FileSystem.from_uri(url)
                self._connected = system, path.rstrip("/")
            yield self._connected
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise _away(self.url, error) from None


ArchiveStore = Folder | Bucket


def _checked(name: str) -> str:
    assert _NAME.fullmatch(name), f"{name!r} is the name of no object of an archive"
    return name


def _sized(url: str, name: str, size: int, bytes_max: int) -> int:
    if size > bytes_max:
        raise ArchiveAway(f"the archive {url} cannot be used now: {name} has {size} bytes; allowed: {bytes_max}")
    return size


def _away(url: str, error: Exception) -> ArchiveAway:
    return ArchiveAway(f"the archive {url} cannot be used now: {error}")


fetched: ContextVar[list[str] | None] = ContextVar("fetched", default=None)
"""The names of the objects that the current HTTP query fetched, if set; `controller.http.query_threads` sets it."""
