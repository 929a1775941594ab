"""`topicwright demo` runs to its end, with what really happened."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TOPICWRIGHT = Path(sys.executable).parent / "topicwright"

STEPS = (
    r"ready kafka=127\.0\.0\.1:\d+ http=127\.0\.0\.1:\d+",
    r"pay\.orders: created +\(\d+\.\d ms\)",
    r"orders: POLICY_VIOLATION: topic 'orders' has no owner: name it TEAM\.NAME",
    r"partition 0: replicas \[\d, \d, \d\] leader \d",
    r"pay\.refunds: created",
    r"partition 0: replicas \[[12], [12], -1\] leader [12]",
    r"partition 0: replicas \[[12], [12], 3\] leader [12]",
    r"partition 0: broker 3 replaces placeholder -1",
    r"Done\.",
)


def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    done = subprocess.run([TOPICWRIGHT, "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    at = 0
    for step in STEPS:
        found = re.compile(step).search(done.stdout, at)
        assert found is not None, f"no {step!r} after {done.stdout[:at][-200:]!r} in:\n{done.stdout}"
        at = found.end()
    assert not list(tmp_path.iterdir()), "the demo leaves nothing behind"
