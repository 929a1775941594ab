"""kill -9 at random times while a log is written: flushed events survive, and no commit is partial."""

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

from events.logs.log import request_offsets, shard_offsets
from tests.events.logs.rocksdb_folders import counted, open_log

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
    """Run a writer on the folder and kill it; returns the last offset that it reported as flushed."""
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


def test_flushed_commits_survive_kill_9_at_random_times(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    folder = tmp_path / "log"
    checked = 0
    for number in range(ROUNDS):
        where = f"round {number} of seed {seed}"
        flushed = flushed_before_a_kill(folder, moments.uniform(0.0, 0.4))
        log = open_log(folder)
        end = log.next_offset
        assert end >= flushed, f"flushed events are missing, {where}"
        assert end % 5 == 0, f"a commit is partial, {where}"
        values = [entry.value for n in range(checked // 5, end // 5) for entry in counted(n).entries]
        assert list(log.read(checked)) == list(enumerate(values, checked)), f"events differ, {where}"
        assert log.get(b"count") == (b"%d" % (end // 5 - 1) if end else None), f"the state differs, {where}"
        for n in range(checked // 5, end // 5, 50):
            assert list(request_offsets(log, f"request-{n}")) == list(range(5 * n, 5 * n + 5)), (
                f"the index differs, {where}"
            )
        in_shard = sum(1 for n in range(end // 5) if n % 7 == 3) * 5
        assert sum(1 for _ in shard_offsets(log, "topic-3")) == in_shard, f"the index differs, {where}"
        checked = end
        log.close()
    assert checked > 0, f"no event was written, seed {seed}"
