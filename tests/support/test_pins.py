"""constraints.txt pins every requirement of pyproject.toml by hash, without a URL of an index."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.support.pins import CONSTRAINTS, PLATFORMS, PROJECT, PYTHONS, SECTIONS, fits, requirements, sections
from tests.support.tools import ROOT

LINE = re.compile(r"[a-z0-9-]+==[a-z0-9.!]+( ; [^;-]+)?( --hash=sha256:[0-9a-f]{64})+")


def test_every_constraint_is_one_line_with_hashes_and_no_url() -> None:
    lines = CONSTRAINTS.read_text().splitlines()
    assert [line for line in lines if not line.startswith("# ") and not LINE.fullmatch(line)] == []
    assert [line for line in lines if "://" in line] == []
    names = [name for packages in sections().values() for name in packages]
    assert sorted(names) == sorted(set(names)), "a package is pinned twice"


@pytest.mark.parametrize("section", SECTIONS)
def test_pyproject_requirements_are_pinned_in_constraints(section: str) -> None:
    pinned: dict[str, str] = {}
    for name in SECTIONS[: SECTIONS.index(section) + 1]:
        pinned |= sections()[name]
    for wanted in requirements()[section]:
        line = pinned[canonicalize_name(wanted.name)].split(" ")[0]
        assert wanted.specifier.contains(line.partition("==")[2]), "run python -m tests.support.pins"


@pytest.mark.parametrize("file", ["Makefile", "Dockerfile"])
def test_pip_installs_require_hashes(file: str) -> None:
    installs = re.findall(r"(?:(?<!-m )pip install|\$\(PIP\)) (.*)", (ROOT / file).read_text())
    checked = [words for words in installs if "--require-hashes" in words]
    own = [words for words in installs if "--no-deps --no-build-isolation" in words and words.endswith(".")]
    assert checked, file
    assert own, file
    assert len(checked) + len(own) == len(installs), installs


LINUX, ARM, MAC = PLATFORMS
WHEELS = {
    "a-1-py3-none-any.whl": [(minor, platform) for minor in PYTHONS for platform in PLATFORMS],
    "a-1-py2.py3-none-any.whl": [(minor, platform) for minor in PYTHONS for platform in PLATFORMS],
    "a-1-cp312-cp312-manylinux_2_28_x86_64.whl": [(12, LINUX)],
    "a-1-cp313-cp313-macosx_11_0_arm64.whl": [(13, MAC)],
    "a-1-cp313-cp313-macosx_10_9_universal2.whl": [(13, MAC)],
    "a-1-cp313-cp313t-manylinux_2_28_x86_64.whl": [],
    "a-1-cp37-abi3-manylinux2014_aarch64.whl": [(minor, ARM) for minor in PYTHONS],
    "a-1-cp312-abi3-manylinux2014_aarch64.whl": [(12, ARM), (13, ARM), (14, ARM)],
    "a-1-cp310-cp310-manylinux_2_28_x86_64.whl": [],
    "a-1-cp311-cp311-win_amd64.whl": [],
    "a-1-cp311-cp311-musllinux_1_2_x86_64.whl": [],
    "a-1-cp311-cp311-manylinux2014_i686.whl": [],
}


@pytest.mark.parametrize("file", WHEELS)
def test_pinned_wheels_cover_every_supported_python_and_platform(file: str) -> None:
    assert [(minor, on) for minor in PYTHONS for on in PLATFORMS if fits(file, minor, on)] == WHEELS[file]


def test_requires_python_names_every_supported_python() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    own = SpecifierSet(project["requires-python"])
    assert [minor for minor in range(30) if f"3.{minor}.0" in own] == list(PYTHONS)
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in PYTHONS} <= set(project["classifiers"])


PURE = "pyspark"
"""The one package without a wheel: its source is only copied."""


@pytest.mark.parametrize("platform", ["x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin"])
def test_every_pin_has_a_wheel_for_the_newest_python_on_each_platform(platform: str, tmp_path: Path) -> None:
    pins = tmp_path / "pins.in"
    lines = (line.partition(" --hash")[0] for rows in sections().values() for line in rows.values())
    pins.write_text("\n".join(line for line in lines if not line.startswith(PURE)))
    uv = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-deps", "--only-binary=:all:"]
    words = [*uv, f"--python-version=3.{PYTHONS[-1]}", f"--python-platform={platform}", str(pins)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    if "Failed to fetch" in done.stderr and "CI" not in os.environ:
        pytest.skip("no package index is reachable")
    assert done.returncode == 0, done.stderr
    assert ("faust-streaming" in done.stdout) == (platform != "aarch64-manylinux_2_28")


def test_the_published_readme_has_absolute_links() -> None:
    env = {**os.environ, "PROJECT_URL": "https://pages.example/topicwright", "GITHUB_REF_NAME": "v9"}
    words = [sys.executable, "setup.py", "--quiet", "--long-description", "--url"]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "(https://pages.example/topicwright/raw/v9/docs/pictures/" in done.stdout
    assert "(https://pages.example/topicwright/blob/v9/docs/tutorial.md)" in done.stdout
    assert re.findall(r"\]\((?!\w+:|#)", done.stdout) == []


def test_licence_and_security_policy_exist() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "Apache License\n                           Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()
    assert "Report a vulnerability" in (ROOT / "SECURITY.md").read_text()
