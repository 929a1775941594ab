"""kill -9 while a log is written, at random moments, and at every step of keeping a snapshot: what was said to be
flushed is there, a snapshot is there whole or not at all, and nothing is there in part."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

from events.logs.log import request_offsets, shard_offsets
from events.logs.snapshots import FOLDER, newest_snapshot, open_snapshot, remove_unfinished, snapshot_offsets
from tests.events.logs.rocksdb_folders import counted, open_log, write_counted
from tests.support.processes import Process
from tests.support.tools import ROOT

PAIRS = [(b"t%05d" % number, b"%d" % number * 40) for number in range(1500)]

KEEP = """
import os, signal, sys, zlib
from pathlib import Path
from events.logs import snapshots
from events.logs.snapshots import snapshot_info, store_snapshot
from tests.events.logs.rocksdb_folders import open_log
from tests.events.logs.test_killed import PAIRS

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


ROUNDS = 5

WRITE_FOREVER = """
import sys, threading
from pathlib import Path
from tests.events.logs.rocksdb_folders import counted, open_log

log = open_log(Path(sys.argv[1]))
number = log.next_offset // 5

def flush():
    while True:
        print(log.flush(), flush=True)

threading.Thread(target=flush, daemon=True).start()
while True:
    log.write(counted(number))
    number += 1
"""


def flushed_before_a_kill(folder: Path, after_s: float) -> int:
    """Run a writer on the folder and kill it; returns the last offset that it said was flushed."""
    with subprocess.Popen([sys.executable, "-c", WRITE_FOREVER, str(folder)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        last = writer.stdout.readline()
        killing = threading.Timer(after_s, writer.send_signal, [signal.SIGKILL])
        killing.start()
        for line in writer.stdout:
            if line.endswith(b"\n"):
                last = line
        killing.join()
    assert writer.returncode == -signal.SIGKILL
    return int(last)


def test_killed_at_random_moments(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    folder = tmp_path / "log"
    checked = 0
    for number in range(ROUNDS):
        where = f"round {number} of seed {seed}"
        flushed = flushed_before_a_kill(folder, moments.uniform(0.0, 0.4))
        log = open_log(folder)
        end = log.next_offset
        assert end >= flushed, f"what was flushed is there, {where}"
        assert end % 5 == 0, f"no commit is there in part, {where}"
        values = [entry.value for n in range(checked // 5, end // 5) for entry in counted(n).entries]
        assert list(log.read(checked)) == list(enumerate(values, checked)), f"the events are those written, {where}"
        assert log.get(b"count") == (b"%d" % (end // 5 - 1) if end else None), f"the state agrees, {where}"
        for n in range(checked // 5, end // 5, 50):
            assert list(request_offsets(log, f"request-{n}")) == list(range(5 * n, 5 * n + 5)), (
                f"the index agrees, {where}"
            )
        in_shard = sum(1 for n in range(end // 5) if n % 7 == 3) * 5
        assert sum(1 for _ in shard_offsets(log, "topic-3")) == in_shard, f"the index agrees, {where}"
        checked = end
        log.close()
    assert checked > 0, f"something was written, seed {seed}"
