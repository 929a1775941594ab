"""Reading files that somebody else may have put there: a pipe or a device keeps a reader waiting, or never ends."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from events.logs.log import LogCorrupted


def open_regular(path: Path) -> int:
    """A descriptor for reading. Raises OSError, also where the file is none."""
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
