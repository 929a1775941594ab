"""The Pythons that Topicwright runs on: this one, and of the others those that the PATH has.

`python -m tests.support.fetch_tools` puts what Topicwright needs to run on each into `.cache/python/3.N`, by the hashes
of constraints.txt. What development and Spark need besides is there for this Python alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.pins import CONSTRAINTS, PYTHONS
from tests.support.tools import CACHE, ROOT

SECTION = "# replay"
"""What runs is pinned before it."""


def others() -> dict[int, str]:
    """The other Pythons, by their minor versions; what the PATH has of a name may be a stand-in that does not start."""
    found = {}
    for minor in PYTHONS:
        program = shutil.which(f"python3.{minor}")
        if minor == sys.version_info.minor or program is None:
            continue
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=60)
        if done.stdout.startswith(f"Python 3.{minor}."):
            found[minor] = program
    return found


def packages(minor: int) -> Path:
    """Where the packages for a Python are."""
    return CACHE / "python" / f"3.{minor}"


def environment(minor: int) -> Mapping[str, str]:
    """What a program of that Python is started with."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages(minor)), str(ROOT)]), "PYTHONNOUSERSITE": "1"}


def install(minor: int, into: Path) -> None:
    """Put the packages for a Python into a folder: its wheels, whatever Python this is."""
    pins = CONSTRAINTS.read_text().partition(f"{SECTION}\n")[0].partition("# run\n")[2]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    words = ["--require-hashes", "--no-deps", f"--python-version=3.{minor}", "--only-binary=:all:", f"--target={into}"]
    subprocess.run([*pip, *words, "-r", "/dev/stdin"], input=pins, text=True, check=True)
