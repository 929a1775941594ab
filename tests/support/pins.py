"""Pins of all packages with hashes: `python -m tests.support.pins` rewrites constraints.txt from pyproject.toml.

Each section of the file has the packages that its use needs in addition to the sections before it. `uv` resolves the
packages. Existing pins stay: delete a line to get the newest version. Hashes are those of wheels for each of `PYTHONS`
on each of `PLATFORMS`. A package without a wheel for a platform that does not need it has a marker. The file has no
URLs, so any index with the same files works.

Tests run Topicwright on this Python and on the other supported ones on the PATH. `python -m tests.support.fetch_tools`
installs its runtime packages for each into `.cache/python/3.N`, with the hashes of constraints.txt. Packages for
development and Spark are installed only for this Python.
"""

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

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from tests.support.tools import CACHE, ROOT

SECTION = "# aws"
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
SECTIONS = ("build", "run", "faust", "aws", "google", "report", "spark", "dev")
"""Build requirements, runtime dependencies, and the extras. Makefile and Dockerfile split the file at these names."""
PYTHONS = (11, 12, 13, 14)
"""The supported minor versions of Python 3."""
PLATFORMS = {
    ("linux", "x86_64"): re.compile(r"any|(many)?linux.*_x86_64"),
    ("linux", "aarch64"): re.compile(r"any|(many)?linux.*_aarch64"),
    ("darwin", "arm64"): re.compile(r"any|macosx.*_(arm64|universal2)"),
}
"""The supported platforms (`sys.platform` and machine), with the tags of their wheels. Linux means glibc."""
HEADER = "# Written by `python -m tests.support.pins`, which says how. `make env` installs these files and no others."


def fits(file: str, minor: int, platform: tuple[str, str]) -> bool:
    """True if pip may choose this wheel for CPython 3.`minor` on a platform."""
    own = f"cp3{minor}"
    return any(
        PLATFORMS[platform].fullmatch(tag.platform)
        and (
            tag.interpreter in ("py3", f"py3{minor}")
            or (tag.interpreter == own and tag.abi in (own, "abi3", "none"))
            or (tag.abi == "abi3" and int(tag.interpreter.removeprefix("cp3")) < minor)
        )
        for tag in parse_wheel_filename(unquote(file))[3]
    )


def _needs(marker: str, minor: int, platform: tuple[str, str]) -> bool:
    """True if the marker holds for CPython 3.`minor` on a platform."""
    python = {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.9", "os_name": "posix"}
    system = {"sys_platform": platform[0], "platform_machine": platform[1], "platform_system": platform[0].title()}
    return not marker or Marker(marker).evaluate({**python, **system})


def _pin(package: dict[str, Any]) -> str | None:
    """The requirements line of a package: with its wheels, or its source if it has none (pyspark); None if no platform
    needs it. Raises SystemExit if a wheel is missing for a supported Python on a platform that needs the package."""
    name, marker, wheels = package["name"], package.get("marker", ""), package.get("wheels", ())
    places = [(minor, platform) for minor in PYTHONS for platform in PLATFORMS]
    found = {each: [one for one in wheels if fits(one["url"].rpartition("/")[2], *each)] for each in places}
    needed = [each for each in places if _needs(marker, *each)]
    without = [each for each in places if wheels and not found[each]]
    missing = [f"3.{minor} on {' '.join(platform)}" for minor, platform in without if (minor, platform) in needed]
    if missing:
        raise SystemExit(f"{name} {package['version']} has no wheel for Python {', '.join(missing)}")
    files = [one for each in found.values() for one in each] if wheels else [package["sdist"]]
    hashes = [f"--hash=sha256:{each}" for each in sorted({file["hashes"]["sha256"] for file in files})]
    only = [f"; {marker}"] if without else []
    return " ".join([f"{name}=={package['version']}", *only, *hashes]) if needed else None


def _locked_requirements(needed: Path, extras: tuple[str, ...], pinned: Path) -> dict[str, str]:
    """Package name → line, for the packages of `needed` and their dependencies on the supported platforms."""
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "pylock.toml")
        words = [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "compile",
            "--quiet",
            "--universal",
            "--python-version=3.11",
            f"--constraints={pinned}",
        ]
        words += [f"--extra={extra}" for extra in extras]
        subprocess.run([*words, f"--output-file={lock}", str(needed)], check=True, cwd=ROOT)
        packages = tomllib.loads(lock.read_text())["packages"]
    return {each["name"]: line for each in packages if (line := _pin(each)) is not None}


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
            "faust": _locked_requirements(PROJECT, ("faust",), pinned),
            "aws": _locked_requirements(PROJECT, ("faust", "aws"), pinned),
            "google": _locked_requirements(PROJECT, ("faust", "aws", "google"), pinned),
            "report": _locked_requirements(PROJECT, ("faust", "aws", "google", "report"), pinned),
            "spark": _locked_requirements(PROJECT, ("faust", "aws", "google", "report", "spark"), pinned),
            "dev": _locked_requirements(PROJECT, ("dev",), pinned),
        }
    lines, before = [HEADER], set[str]()
    for section, packages in found.items():
        lines += [f"# {section}", *(packages[name] for name in sorted(packages.keys() - before))]
        before |= packages.keys()
    CONSTRAINTS.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
