"""Changing a log folder behind its service's back, as bugs and bad disks do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rocksdict import WriteBatch

from events.logs.log import read_one
from tests.replay.history import open_log


def put_view(path: Path, key: bytes, value: bytes | None) -> None:
    """Put, or with None delete, a key of the views; state keys begin with `s`."""
    log = open_log(path)
    database: Any = log._database
    batch = WriteBatch(raw_mode=True)
    if value is None:
        batch.delete(key, database.views_handle)
    else:
        batch.put(key, value, database.views_handle)
    database.write(batch)
    del batch
    log.close()


def put_event(path: Path, offset: int, value: bytes | None) -> None:
    """Replace, or with None delete, the bytes of an event."""
    log = open_log(path)
    database: Any = log._database
    batch, key = WriteBatch(raw_mode=True), offset.to_bytes(8, "big")
    if value is None:
        batch.delete(key)
    else:
        batch.put(key, value)
    database.write(batch)
    del batch
    log.close()


def event_bytes(path: Path, offset: int) -> bytes:
    """The bytes of an event."""
    log = open_log(path)
    value = read_one(log, offset)
    log.close()
    return value
