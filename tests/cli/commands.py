"""Runs commands in the process of the tests."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from controller.cli.main import main
from events.logs.rocksdb_log import RocksDbLog

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class Outcome(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]
Printed = Callable[..., str]


def ended(*arguments: object) -> int:
    """Run a command as `topicwright` does; returns its exit code."""
    try:
        code: object = main([str(one) for one in arguments])
    except SystemExit as end:
        code = end.code
    assert isinstance(code, int)
    return code


def open_log(folder: Path) -> RocksDbLog:
    """Opens the log in a service's folder."""
    return RocksDbLog(folder, cluster_id=CLUSTER_ID, new_cluster_id=lambda: CLUSTER_ID)


def columns(text: str) -> list[list[str]]:
    """The words of each line, split at blanks."""
    return [line.split() for line in text.splitlines()]
