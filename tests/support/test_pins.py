"""constraints.txt pins every requirement of pyproject.toml by hash, without a URL of an index."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.support.pins import CONSTRAINTS, PLATFORM, PROJECT, PYTHONS, SECTIONS, fits, requirements, sections
from tests.support.tools import ROOT

LINE = re.compile(r"[a-z0-9-]+==[a-z0-9.!]+( --hash=sha256:[0-9a-f]{64})+")


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
        assert str(Requirement(line).specifier) == str(wanted.specifier), "run python -m tests.support.pins"


@pytest.mark.parametrize("file", ["Makefile", "Dockerfile"])
def test_pip_installs_require_hashes(file: str) -> None:
    installs = re.findall(r"(?:(?<!-m )pip install|\$\(PIP\)) (.*)", (ROOT / file).read_text())
    checked = [words for words in installs if "--require-hashes" in words]
    own = [words for words in installs if "--no-deps --no-build-isolation" in words and words.endswith(".")]
    assert checked, file
    assert own, file
    assert len(checked) + len(own) == len(installs), installs


def test_pinned_wheels_cover_linux_glibc_and_macos() -> None:
    taken = ("any", "manylinux_2_28_x86_64", "manylinux2014_aarch64", "macosx_11_0_arm64", "macosx_10_9_universal2")
    left = ("musllinux_1_2_x86_64", "win_amd64", "manylinux_2_17_s390x", "manylinux2014_i686")
    assert [each for each in (*taken, *left) if PLATFORM.fullmatch(each)] == list(taken)


WHEELS = {
    "a-1-py3-none-any.whl": (11, 12, 13),
    "a-1-py2.py3-none-any.whl": (11, 12, 13),
    "a-1-cp312-cp312-manylinux_2_28_x86_64.whl": (12,),
    "a-1-cp313-cp313-macosx_11_0_arm64.whl": (13,),
    "a-1-cp313-cp313t-manylinux_2_28_x86_64.whl": (),
    "a-1-cp37-abi3-manylinux2014_aarch64.whl": (11, 12, 13),
    "a-1-cp312-abi3-manylinux2014_aarch64.whl": (12, 13),
    "a-1-cp310-cp310-manylinux_2_28_x86_64.whl": (),
    "a-1-cp311-cp311-win_amd64.whl": (),
}


@pytest.mark.parametrize("file", WHEELS)
def test_pinned_wheels_cover_every_supported_python(file: str) -> None:
    assert tuple(minor for minor in PYTHONS if fits(file, minor)) == WHEELS[file]
    own = SpecifierSet(tomllib.loads(PROJECT.read_text())["project"]["requires-python"])
    assert [minor for minor in range(30) if f"3.{minor}.0" in own] == list(PYTHONS)


def test_licence_and_security_policy_exist() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "Apache License\n                           Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()
    assert "Report a vulnerability" in (ROOT / "SECURITY.md").read_text()
