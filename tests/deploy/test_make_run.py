"""`make run` links the command, and prints how to reach it if no folder of PATH has it."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.tools import ROOT


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment whose `topicwright` does nothing."""
    program = tmp_path / "project" / ".venv" / "bin" / "topicwright"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "project" / ".venv" / ".made-to-run").touch()
    return program


def made(program: Path, command: Path, path: str = os.environ["PATH"]) -> str:
    argv = ["make", "-s", "run", f"VENV={program.parent.parent}", f"COMMAND={command}", "PYTHON=python3"]
    env = {**os.environ, "PATH": path}
    return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=True).stdout


def export(folder: Path) -> str:
    return f'export PATH="{folder}:$PATH"  # for the command topicwright\n'


def test_a_link_outside_path_is_printed(environment: Path, tmp_path: Path) -> None:
    command = tmp_path / "local" / "topicwright"
    assert made(environment, command) == export(command.parent)
    assert command.readlink() == environment
    assert made(environment, command, f"{command.parent}:{os.environ['PATH']}") == ""


@pytest.mark.parametrize("target", ["gone/.venv/bin/topicwright", "opt/topicwright"])
def test_only_a_link_into_an_environment_is_replaced(environment: Path, tmp_path: Path, target: str) -> None:
    command = tmp_path / "local" / "topicwright"
    command.parent.mkdir()
    command.symlink_to(tmp_path / target)
    is_ours = ".venv" in target
    assert made(environment, command) == export(command.parent if is_ours else environment.parent)
    assert command.readlink() == (environment if is_ours else tmp_path / target)


def test_another_program_stays(environment: Path, tmp_path: Path) -> None:
    command = tmp_path / "topicwright"
    command.write_text("another")
    assert made(environment, command) == export(environment.parent)
    assert command.read_text() == "another"
