"""A data folder that one process uses at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

LOCK = "process.lock"


class FolderHeld(OSError):
    """Another process uses the folder."""


def hold_folder(folder: Path) -> IO[str]:
    """Make the folder if it is missing, and hold it for as long as the returned file is open. Raises FolderHeld, and
    OSError where the folder cannot be used."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    file = (folder / LOCK).open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "another process"
        file.close()
        raise FolderHeld(f"{folder} is used by process {holder}: stop it, or choose another with --data") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
