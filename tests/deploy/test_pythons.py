"""It runs on each Python that it says it runs on, of those that are here: this one, and what else the PATH has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.pythons import environment, others, packages
from tests.support.tools import ROOT, cached

HERE = sys.version_info.minor
PYTHONS = {HERE: sys.executable, **others()}


@pytest.mark.parametrize("minor", PYTHONS)
def test_everything_is_imported_and_the_demo_runs_with_warnings_as_errors(minor: int, tmp_path: Path) -> None:
    env: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(ROOT)}
    if minor != HERE:
        cached(str(packages(minor).relative_to(ROOT / ".cache")))
        env = environment(minor)
    argv = [PYTHONS[minor], "-B", "-W", "error", str(ROOT / "tests" / "deploy" / "on_each_python.py")]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"modules of Python 3.{minor}\n" in done.stdout
    assert "● Done." in done.stdout
    assert "Warning" not in done.stderr
