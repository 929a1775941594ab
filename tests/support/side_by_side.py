"""Run all tests as two pytest processes side by side: those that start whole clusters wait most of the time.

`python -m tests.support.side_by_side [ARGUMENT…]` gives the arguments to both, shows the output of the one as it comes
and that of the other when it has ended, and exits with the worse of their codes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence

from tests.support.tools import ROOT

OF_CLUSTERS = tuple(
    f"tests/{folder}" for folder in ("brokers", "clients", "reference", "security", "stream", "support")
)
"""The folders whose tests the second process runs."""


def main(arguments: Sequence[str]) -> int:
    """Run both; the exit code."""
    pytest = [sys.executable, "-m", "pytest"]
    others = [f"--ignore={folder}" for folder in OF_CLUSTERS]
    with tempfile.TemporaryFile() as later:
        beside = subprocess.Popen(
            [*pytest, *OF_CLUSTERS, *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=later, stderr=later
        )
        try:
            first = subprocess.run([*pytest, "tests", *others, *arguments], cwd=ROOT, check=False).returncode
            second = beside.wait()
        except BaseException:
            beside.terminate()
            beside.wait()
            raise
        later.seek(0)
        sys.stdout.buffer.write(later.read())
        sys.stdout.flush()
    return max(first, second)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
