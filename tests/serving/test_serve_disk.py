"""A disk without room under a running process: nothing answered is lost, and it goes on when there is room."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.serving.service import CREATE, Serving, Talk, check_log, codes, create, serving, wait_until

STORAGE_ERROR = 56
FILE_BYTES_MAX = 200_000


def test_a_limit_on_file_sizes(tmp_path: Path) -> None:
    """RLIMIT_FSIZE, which any user can set: writes fail as they do on a full disk, in the very same places."""
    with serving(tmp_path) as server:
        _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)

        def fill() -> None:
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, hard))

        def make_room() -> None:
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))

        created = starve(server, fill, make_room)
    check_after(tmp_path, server.data, created)


def test_a_file_system_without_room(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "disk") as disk:
        ballast = disk / "ballast"
        with serving(tmp_path, disk / "data") as server:

            def fill() -> None:
                room = os.statvfs(disk)
                with ballast.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize - 2_000_000)

            created = starve(server, fill, ballast.unlink)
        check_after(tmp_path, server.data, created)


@contextmanager
def small_file_system(path: Path) -> Iterator[Path]:
    """128 MiB of memory as a disk; skips the test where this user may not mount it."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("only root can mount a small file system; the limit on file sizes stands for it")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def starve(server: Serving, fill: Callable[[], None], make_room: Callable[[], None]) -> set[str]:
    """Create until there is no room, look at the answers, make room, create again. The topics answered with NONE."""
    created: set[str] = set()
    with Talk(server.kafka) as talk:
        created |= create_all(talk, "before")
        assert server.get("/health/ready")[0] == 200
        fill()
        refused = create_until_refused(talk, created)
        assert set(refused) <= {STORAGE_ERROR}, refused
        status, health = server.get("/health/ready")
        assert status == 503
        assert "log" in str(health), health
        assert codes(talk.call(CREATE, 7, create("at-once"))) == [STORAGE_ERROR]
        assert created <= server.topics().keys(), "what is durable is shown all the while"
        make_room()
        wait_until(lambda: server.get("/health/ready")[0] == 200)
        assert created <= server.topics().keys(), "nothing answered is lost"
        created |= create_all(talk, "after")
    assert server.process.stop(within_s=240) == 0
    assert "storage failed" in server.process.output
    assert "storage recovered" in server.process.output
    return created


def create_all(talk: Talk, prefix: str) -> set[str]:
    names = [f"{prefix}-{number}" for number in range(20)]
    assert codes(talk.call(CREATE, 7, create(*names))) == [0] * 20
    return set(names)


def create_until_refused(talk: Talk, created: set[str]) -> list[int]:
    """Adds to `created` what was created until then; returns the codes of the request that failed."""
    for number in range(400):
        names = [f"until-{number}-{n}" for n in range(100)]
        got = codes(talk.call(CREATE, 7, create(*names)))
        created |= {name for name, code in zip(names, got, strict=True) if code == 0}
        if any(got):
            return [code for code in got if code]
    raise AssertionError("the disk never filled")


def check_after(tmp_path: Path, data: Path, created: set[str]) -> None:
    """The log is whole, and all that was answered is there at the next start."""
    check_log(data)
    with serving(tmp_path, data) as server:
        lost = created - server.topics().keys()
        assert not lost, f"answered NONE, and not there: {sorted(lost)[:10]}, {len(lost)} in all"
        assert server.process.stop() == 0
