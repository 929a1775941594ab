"""Run all tests, in groups: six pytest processes at a time, each of which takes the next group when its own is done.

`python -m tests.support.side_by_side [ARGUMENT…]` passes the arguments to each pytest. It prints the output of a group
when the group has ended, with its duration, and in the last line the sum: `N passed, N failed`. The exit code is the
highest of all groups.

Tests of a group share servers (the session fixtures of tests/conftest.py) and Spark, which a separate group would start
again. Of six groups that run at once, four wait for clusters most of the time: so two cores are busy.

If it is ended early, each pytest gets SIGINT and ends its servers. The kernel sends SIGINT if this process is killed,
and SIGTERM to this process if its make ends.
"""

import ctypes
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.support.tools import ROOT

AT_ONCE = 6
ALL = Path("tests")
GROUPS: Mapping[str, tuple[Path, ...]] = {
    "Spark and Kafka": (*(ALL / "replay" / each for each in ("log", "spark")), ALL / "brokers/cluster/test_spark.py"),
    "Spark": (ALL / "replay",),
    "workers and gateways": (ALL / "stream",),
    "quorum": (ALL / "quorum",),
    "processes": (ALL / "serving", ALL / "cli", ALL / "docs", ALL / "deploy", ALL / "fuzz"),
    "all else": (ALL,),
    "clusters": (ALL / "brokers", ALL / "security", ALL / "support"),
    "Kafka brokers": (ALL / "brokers/kraft",),
    "Kafka's answers": (ALL / "reference", ALL / "clients"),
    "simulators": (ALL / "simulation",),
    "soak": (ALL / "soak",),
}
"""Folders of tests by group, longest first. A nested folder belongs to the group that names it; "all else" has all
folders that no other group names."""
_PR_SET_PDEATHSIG = 1
NO_TESTS = 5
"""pytest's exit code if the arguments select no test of a group."""


@dataclass(slots=True)
class Run:
    """The pytest process of a group, its output file, and its result."""

    group: str
    process: subprocess.Popen[bytes]
    output: Path
    started_s: float = field(default_factory=time.monotonic)
    passed: int = 0
    failed: int = 0
    code: int = 0

    def end(self, code: int, usage: resource.struct_rusage) -> None:
        """Print the output and set the result; `code` is pytest's exit code, or the negative number of a signal."""
        self.process.returncode = code
        text = self.output.read_text(errors="replace")
        wall_s, cpu_s = time.monotonic() - self.started_s, usage.ru_utime + usage.ru_stime
        print(f"{f' {self.group} ':#^120}\n{text}")
        print(f"{self.group}: {wall_s:.0f} s, and {cpu_s:.0f} s of the processors", flush=True)
        summary = (re.findall(r"^(?:=+ )?(\d+ .*) in [\d.]+s", text, re.MULTILINE) or [""])[-1]
        counts = {what: int(count) for count, what in re.findall(r"(\d+) (passed|failed|error)", summary)}
        self.code = 0 if code == NO_TESTS else abs(code)
        self.passed = counts.get("passed", 0)
        self.failed = max(counts.get("failed", 0) + counts.get("error", 0), int(self.code > 0))


def command(group: str, arguments: Sequence[str] = ()) -> list[str]:
    own = GROUPS[group]
    others = (folder for name, folders in GROUPS.items() if name != group for folder in folders)
    ignored = [f"--ignore={each}" for each in others if not set(each.parents).isdisjoint(own)]
    return [sys.executable, "-m", "pytest", *map(str, own), *ignored, *arguments]


def main(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a script ignore SIGINT
    if "MAKELEVEL" in os.environ:
        _ends_with_parent(signal.SIGTERM)
    folder = Path(tempfile.mkdtemp(prefix="topicwright-tests-"))
    waiting, running, ended = list(GROUPS), dict[int, Run](), list[Run]()
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                run = _start(waiting.pop(0), arguments, folder)
                running[run.process.pid] = run
            pid, status, usage = os.wait3(0)
            ended.append(running.pop(pid))
            ended[-1].end(os.waitstatus_to_exitcode(status), usage)
    except BaseException:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # after a signal to the process group, make sends another one
        for run in running.values():
            run.process.send_signal(signal.SIGINT)  # as Ctrl-C does: pytest ends its servers
        for run in running.values():
            run.process.wait()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    passed, failed = sum(run.passed for run in ended), sum(run.failed for run in ended)
    code = max(run.code for run in ended) or int(passed == 0)
    if code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"the output of each group, and the folders of tests that failed, are in {folder}")
    print(f"{passed} passed, {failed} failed", flush=True)
    return code


def _start(group: str, arguments: Sequence[str], folder: Path) -> Run:
    path = folder / f"{group}.txt"
    env = {**os.environ, "TMPDIR": str(folder)}
    with path.open("wb") as output:
        argv = command(group, arguments)
        process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=0,
            preexec_fn=partial(_ends_with_parent, signal.SIGINT),  # noqa: PLW1509 - this process has one thread
        )
    return Run(group, process, path)


def _ends_with_parent(number: int) -> None:
    """Let Linux send a signal to this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
