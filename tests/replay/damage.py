"""Changes to a log's database without its service, like those of bugs and failing disks."""

from pathlib import Path
from typing import Any

from rocksdict import WriteBatch

from events.logs.log import read_one
from tests.replay.history import open_log


def put_view(path: Path, key: bytes, value: bytes | None) -> None:
    """Set a key of the views, or delete it if `value` is None. Keys of state begin with `s`."""
    _put(path, "views", key, value)


def put_event(path: Path, offset: int, value: bytes | None) -> None:
    """Replace the bytes of an event, or delete it if `value` is None."""
    _put(path, "default", offset.to_bytes(8, "big"), value)


def _put(path: Path, family: str, key: bytes, value: bytes | None) -> None:
    log = open_log(path)
    database: Any = log._database
    batch, handle = WriteBatch(raw_mode=True), database._events.get_column_family_handle(family)
    if value is None:
        batch.delete(key, handle)
    else:
        batch.put(key, value, handle)
    database.write(batch)
    del batch, handle
    log.close()


def event_bytes(path: Path, offset: int) -> bytes:
    log = open_log(path)
    value = read_one(log, offset)
    log.close()
    return value
