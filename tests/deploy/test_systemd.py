"""The systemd units, by systemd's own checker, and against this project's own command line."""

from __future__ import annotations

import configparser
import shlex
import subprocess
from pathlib import Path

import pytest

from controller.cli import main
from controller.serving.process import FAILED
from tests.support.tools import ROOT, program

UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
EXPOSURE_MAX = 20
"""Of systemd's own measure of what a unit could reach, times ten: 100 is everything."""


def unit(path: Path) -> configparser.SectionProxy:
    """The section [Service] of a unit."""
    read = configparser.ConfigParser(interpolation=None, strict=True)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(path.read_text(encoding="utf-8"))
    return read["Service"]


def test_there_is_one_for_each_kind_of_process() -> None:
    assert [path.stem.removeprefix("topicwright-") for path in UNITS] == ["gateway", "join", "serve", "worker"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_takes_it_and_shuts_it_in(path: Path, tmp_path: Path) -> None:
    here = tmp_path / path.name
    command = unit(path)["ExecStart"].split()[0]
    here.write_text(path.read_text(encoding="utf-8").replace(command, "/bin/true"), encoding="utf-8")
    analyze = program("systemd-analyze")
    for words in (["verify"], ["security", "--offline=true", f"--threshold={EXPOSURE_MAX}"]):
        done = subprocess.run([analyze, *words, here], capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""


def test_a_unit_that_is_wrong_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.service"
    wrong.write_text("[Service]\nExecStart=/bin/true\nProtectSytem=strict\n", encoding="utf-8")
    done = subprocess.run(
        [program("systemd-analyze"), "verify", wrong], capture_output=True, text=True, check=False, timeout=240
    )
    assert "ProtectSytem" in done.stderr


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_its_command_is_one_that_topicwright_takes(path: Path) -> None:
    example = next(line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# ARGUMENTS="))
    words = shlex.split(unit(path)["ExecStart"])[1:]
    assert words.pop() == "$ARGUMENTS", "more words come from a file of one's own"
    parsed = main.parser(words[0]).parse_args([*words, *shlex.split(example.partition("=")[2])])
    assert parsed.command == path.stem.removeprefix("topicwright-")
    assert str(parsed.data) == f"/var/lib/{unit(path)['StateDirectory']}", "the only folder that it may write"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_it_is_started_again_after_a_bug_and_not_after_a_refusal(path: Path) -> None:
    service = unit(path)
    assert service["Restart"] == "on-failure"
    never = set(map(int, service["RestartPreventExitStatus"].split()))
    assert never == {2}, "a start that is refused; docs/operations.md"
    assert FAILED not in never
