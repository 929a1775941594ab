"""Pins of all packages with hashes: `python -m tests.support.pins` rewrites constraints.txt from pyproject.toml.

Each section of the file has the packages that its use needs in addition to the sections before it. `uv` (`pip install
uv`) resolves the packages. Existing pins stay: delete a line to get the newest version. Hashes are those of wheels for
CPython 3.11, 3.12 and 3.13 on Linux (glibc) and macOS, on x86-64 and ARM. The file has no URLs, so any index with the
same files works.

Tests run Topicwright on this Python and on the other supported ones on the PATH. `python -m tests.support.fetch_tools`
installs its runtime packages for each into `.cache/python/3.N`, with the hashes of constraints.txt. Packages for
development and Spark are installed only for this Python.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from tests.support.tools import CACHE, ROOT

SECTION = "# replay"
"""The runtime packages are pinned before this line."""


def others() -> dict[int, str]:
    """Minor version → path of the other supported Pythons on the PATH; programs that do not start are left out."""
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
    return CACHE / "python" / f"3.{minor}"


def environment(minor: int) -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages(minor)), str(ROOT)]), "PYTHONNOUSERSITE": "1"}


def install(minor: int, into: Path) -> None:
    """Install the runtime packages for another Python into a folder, with this Python's pip."""
    pins = CONSTRAINTS.read_text().partition(f"{SECTION}\n")[0].partition("# run\n")[2]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    words = ["--require-hashes", "--no-deps", f"--python-version=3.{minor}", "--only-binary=:all:", f"--target={into}"]
    subprocess.run([*pip, *words, "-r", "/dev/stdin"], input=pins, text=True, check=True)


CONSTRAINTS, PROJECT = ROOT / "constraints.txt", ROOT / "pyproject.toml"
SECTIONS = ("build", "run", "replay", "dev")
"""Build requirements, runtime dependencies, and the extras. Makefile and Dockerfile split the file at these names."""
PYTHONS = (11, 12, 13)
"""The supported minor versions of Python 3."""
HEADER = "# Written by `python -m tests.support.pins`, which says how. `make env` installs these files and no others."
OTHER_PLATFORMS = re.compile(r"== '(win32|emscripten)'")
PLATFORM = re.compile(r"any|(manylinux|linux|macosx).*_(x86_64|aarch64|arm64|universal2)")


def fits(file: str, minor: int) -> bool:
    """True if pip may choose this wheel for CPython 3.`minor` on a supported platform."""
    own = f"cp3{minor}"
    return any(
        PLATFORM.fullmatch(tag.platform)
        and (
            tag.interpreter in ("py3", f"py3{minor}")
            or (tag.interpreter == own and tag.abi in (own, "abi3", "none"))
            or (tag.abi == "abi3" and int(tag.interpreter.removeprefix("cp3")) < minor)
        )
        for tag in parse_wheel_filename(unquote(file))[3]
    )


def _pin(package: dict[str, Any]) -> str:
    """The requirements line of a package: with its wheels, or its source if it has none (pyspark). Raises SystemExit if
    wheels are missing for a supported Python."""
    wheels = package.get("wheels", ())
    by_python = {minor: [one for one in wheels if fits(one["url"].rpartition("/")[2], minor)] for minor in PYTHONS}
    missing = [f"3.{minor}" for minor, of_python in by_python.items() if wheels and not of_python]
    if missing:
        raise SystemExit(f"{package['name']} {package['version']} has no wheel for Python {', '.join(missing)}")
    files = [one for of_python in by_python.values() for one in of_python] if wheels else [package["sdist"]]
    hashes = sorted({file["hashes"]["sha256"] for file in files})
    return " ".join([f"{package['name']}=={package['version']}", *(f"--hash=sha256:{each}" for each in hashes)])


def _locked_requirements(needed: Path, extras: tuple[str, ...], pinned: Path) -> dict[str, str]:
    """Package name → line, for the packages of `needed` and their dependencies on the supported platforms."""
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "pylock.toml")
        words = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version=3.11", f"--constraints={pinned}"]
        words += [f"--extra={extra}" for extra in extras]
        subprocess.run([*words, f"--output-file={lock}", str(needed)], check=True, cwd=ROOT)
        packages = tomllib.loads(lock.read_text())["packages"]
    return {each["name"]: _pin(each) for each in packages if not OTHER_PLATFORMS.search(each.get("marker", ""))}


def sections() -> dict[str, dict[str, str]]:
    """The current constraints.txt: section → package name → line."""
    found: dict[str, dict[str, str]] = {}
    for line in CONSTRAINTS.read_text().splitlines():
        if line.removeprefix("# ") in SECTIONS:
            found[line.removeprefix("# ")] = {}
        elif not line.startswith("#"):
            found[list(found)[-1]][canonicalize_name(line.partition("==")[0])] = line
    return found


def requirements() -> dict[str, list[Requirement]]:
    """The requirements in pyproject.toml, by section."""
    file = tomllib.loads(PROJECT.read_text())
    wanted = {"build": file["build-system"]["requires"], "run": file["project"]["dependencies"]}
    wanted |= file["project"]["optional-dependencies"]
    own = file["project"]["name"]
    return {section: [each for each in map(Requirement, wanted[section]) if each.name != own] for section in SECTIONS}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        pinned, builds = Path(folder, "pinned.txt"), Path(folder, "builds.in")
        pinned.write_text("\n".join(line.split()[0] for rows in sections().values() for line in rows.values()))
        builds.write_text("\n".join(map(str, requirements()["build"])))
        found = {
            "build": _locked_requirements(builds, (), pinned),
            "run": _locked_requirements(PROJECT, (), pinned),
            "replay": _locked_requirements(PROJECT, ("replay",), pinned),
            "dev": _locked_requirements(PROJECT, ("dev",), pinned),
        }
    lines, before = [HEADER], set[str]()
    for section, packages in found.items():
        lines += [f"# {section}", *(packages[name] for name in sorted(packages.keys() - before))]
        before |= packages.keys()
    CONSTRAINTS.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
