"""Replaces a file atomically and durably, for snapshots, archives in a folder, quorum state and the users file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

UNFINISHED: Final = ".tmp"
"""The suffix of a file that is being written, or that a dead process left. The next write replaces the file."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends; only its owner can read it.

    After an exception `path` is unchanged. Raises OSError.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make new, renamed and deleted names in a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
