"""Replay commands with `--local`, each in a process of its own, start included: processor time and memory.

    python -m benchmarks.replay_local [--events 300000] [--topics 17000] [--json]

Logs are generated (`benchmarks.generate`): a small one, a uniform one of the given size, the same again with half of
its events in one topic, and with 100,000 partitions of that topic. The uniform log is also checked by an export, and
once more after 1 % new events.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure, command_line
from benchmarks.generate import generate

EVENTS, TOPICS = 300_000, 17_000
SMALL_EVENTS, SMALL_TOPICS = 2_800, 250
PARTITIONS = 100_000


def measured(work: str, *arguments: str | Path) -> Figure:
    """Run a sub-command of `topicwright replay`; fail if it finds something."""
    argv = [sys.executable, "-m", "controller.cli.main", "replay", *map(str, arguments), "--local"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, f"{' '.join(argv)} failed"
    return Figure(work, "s of a core", used.ru_utime + used.ru_stime, note=f"{used.ru_maxrss >> 10:,} MiB")


def run(events: int = EVENTS, topics: int = TOPICS) -> list[Figure]:
    """Measure every command."""
    with TemporaryDirectory(prefix="topicwright-bench-") as folder:
        small, uniform, skewed, wide = (Path(folder) / name for name in ("small", "uniform", "skewed", "wide"))
        export, at = Path(folder) / "export", f"{events * 99 // 100}"
        generate(small, SMALL_EVENTS, SMALL_TOPICS)
        generate(uniform, events, topics)
        generate(skewed, events, topics, skewed=True)
        generate(wide, events, SMALL_TOPICS, skewed=True, partitions=PARTITIONS)
        checked, of = ("invariants", uniform, "--export", export), f"{events:,} events"
        return [
            measured(f"invariants, {SMALL_EVENTS:,} events", "invariants", small),
            measured(f"invariants, {of}", "invariants", uniform),
            measured(f"invariants, {of}, with a first export", *checked, "--at", at),
            measured(f"invariants, {of}, 1 % of them new in the export", *checked),
            measured(f"export, {of}", "export", uniform, "--to", Path(folder) / "other"),
            measured(f"invariants, {of}, export up to date", "invariants", uniform, "--export", Path(folder) / "other"),
            measured(f"rebuild, {of}", "rebuild", uniform, "--from-scratch"),
            measured(f"invariants, {of}, half of one topic", "invariants", skewed),
            measured(f"rebuild, {of}, half of one topic", "rebuild", skewed, "--from-scratch"),
            measured(f"invariants, {of}, half of a topic with {PARTITIONS:,} partitions", "invariants", wide),
            measured(
                f"rebuild, {of}, half of a topic with {PARTITIONS:,} partitions", "rebuild", wide, "--from-scratch"
            ),
        ]


if __name__ == "__main__":
    command_line(run, __doc__)
