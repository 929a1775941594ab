"""kill -9 at every step of keeping a snapshot: it is there whole or not at all, and those before it are untouched."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from events.logs.snapshots import FOLDER, newest_snapshot, open_snapshot, remove_unfinished, snapshot_offsets
from tests.events.logs.rocksdb_folders import open_log, write_counted
from tests.support.processes import Process
from tests.support.tools import ROOT

PAIRS = [(b"t%05d" % number, b"%d" % number * 40) for number in range(1500)]

KEEP = """
import os, signal, sys, zlib
from pathlib import Path
from events.logs import snapshots
from events.logs.snapshots import snapshot_info, store_snapshot
from tests.events.logs.rocksdb_folders import open_log
from tests.events.logs.test_snapshots_killed import PAIRS

steps = 0

def step():
    global steps
    steps -= 1
    if steps < 0:
        os.kill(os.getpid(), signal.SIGKILL)

def stepwise(holder, name):
    real = getattr(holder, name)
    def doing(*args, **named):
        step()
        done = real(*args, **named)
        step()
        return done
    setattr(holder, name, doing)

for holder, name in ((Path, "mkdir"), (Path, "unlink"), (Path, "replace"), (os, "open"), (os, "fsync"),
                     (zlib, "compress")):
    stepwise(holder, name)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        steps = 1 << 30
        log = open_log(Path(sys.argv[1]))
        steps = int(line)
        store_snapshot(log, snapshot_info(log, log.next_offset), PAIRS)
        os._exit(0)
    print("status", os.waitpid(child, 0)[1], flush=True)
"""
"""Keeps a snapshot for each line, in a process of its own, which dies after so many steps."""


def killed(keeping: Process, steps: int) -> bool:
    """Keep a snapshot, and die after so many steps; whether it came to that."""
    keeping.write_line(str(steps))
    status = int(keeping.wait_for_line(r"^status (\d+)$", within_s=240)[1])
    assert status in (0, signal.SIGKILL), keeping.output
    return status != 0


def test_killed_at_every_step(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder)
    write_counted(log, range(4))
    log.close()
    with Process([sys.executable, "-c", KEEP, folder], cwd=ROOT) as keeping:
        _killed_at_every_step(folder, keeping)


def _killed_at_every_step(folder: Path, keeping: Process) -> None:
    steps, there = 0, 0
    while killed(keeping, steps):
        log = open_log(folder)
        offsets = snapshot_offsets(log)
        if offsets:
            there += 1
            assert newest_snapshot(log) == offsets[0] == log.next_offset, f"after {steps} steps"
            with open_snapshot(log, offsets[0]) as snapshot:
                assert list(snapshot.scan()) == PAIRS, f"whole, after {steps} steps"
        remove_unfinished(log)
        left = [file.name for file in (folder / FOLDER).glob("*")] if (folder / FOLDER).is_dir() else []
        assert left == [f"{offset:020}.snapshot" for offset in offsets], f"nothing half-done, after {steps} steps"
        for file in (folder / FOLDER).glob("*"):
            file.unlink()
        log.close()
        steps += 1
    assert steps > 12, "it was killed at many steps"
    assert there >= 2, "also after the rename"
