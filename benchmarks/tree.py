"""The cost of the Merkle tree for creates: two servers, one of them without a tree, do the same work in turn.

The figure is the server's processor time for a topic, which other users of the machine change least. It is the median
of the rounds.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks import servers
from benchmarks.creates import in_requests, one_by_one, pipelined
from benchmarks.figures import Figure, command_line
from benchmarks.usage import cpu_seconds

WITHOUT = """\
import sys
from controller.cli.main import main
from controller.store.tree import LogTree
LogTree.changes = lambda self, values: {}
sys.exit(main())
"""
WORK: tuple[tuple[str, int, Callable[[str], object]], ...] = (
    ("one create after another", 440, lambda address: one_by_one(address, 400, False)),
    ("creates pipelined on one connection", 3000, lambda address: pipelined(address, 3000)),
    ("300 topics in one request", 6600, lambda address: in_requests(address, 20, 300, False)),
)


def run(rounds: int = 9) -> list[Figure]:
    """Measure each kind of work in `rounds` rounds."""
    with TemporaryDirectory(prefix="topicwright-bench-") as folder, ExitStack() as running:
        without = Path(folder) / "without"
        without.write_text(f"#!{sys.executable}\n{WITHOUT}")
        without.chmod(0o700)
        plain = running.enter_context(servers.topicwright(Path(folder) / "a", program=without))
        ours = running.enter_context(servers.topicwright(Path(folder) / "b"))
        return [figure(*work, (plain, ours), rounds) for work in WORK]


def figure(
    work: str, topics: int, do: Callable[[str], object], both: tuple[servers.Running, servers.Running], rounds: int
) -> Figure:
    """The processor time of a topic with the tree, and its increase compared with a server without."""
    took: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for server, times in zip(both, took, strict=True):
            before = cpu_seconds(server.process.pid)
            do(server.kafka)
            if number:
                times.append((cpu_seconds(server.process.pid) - before) / topics * 1e6)
    plain, ours = (median(times) for times in took)
    more = median(new / old - 1 for old, new in zip(*took, strict=True))
    return Figure(work, "us of processor a topic", ours, None, "", f"without a tree {plain:.1f}; {more:+.1%}")


if __name__ == "__main__":
    command_line(run, __doc__)
