"""The images and the workflows: what the Dockerfile and .github promise about users, pins, platforms and health."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.support.pins import PYTHONS, SECTIONS
from tests.support.ports import free_ports
from tests.support.tools import ROOT
from tests.support.topicwright import Topicwright

TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
STAGES: dict[str, list[str]] = {}
for line in TEXT.splitlines():
    if found := re.fullmatch(r"FROM \S+ AS (\S+)", line):
        STAGES[found[1]] = []
    elif STAGES and line and not line.startswith("#"):
        STAGES[list(STAGES)[-1]].append(line)
WORKFLOWS: dict[str, Any] = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / ".github/workflows").glob("*.yaml")
}


def test_images_have_a_numeric_user_a_base_by_argument_and_pins() -> None:
    assert list(STAGES) == ["build", "build-spark", "base", "spark"]
    assert "ARG PYTHON=" in TEXT, "the base image can be given with a digest"
    for name in ("base", "spark"):
        assert [each for each in STAGES[name] if each.startswith("USER")][-1] == "USER 1000:1000", name
    assert {name for name in SECTIONS if f"'/^# {name}$/,$d'" in TEXT} == {"run", "report", "dev"}
    assert not [each for each in STAGES["base"] if "apt-get" in each], "the small image has no Java"


def _health_check(http: str) -> int:
    """The exit code of the image's health check for a process at this address."""
    (check,) = (each for each in STAGES["base"] if each.startswith("HEALTHCHECK"))
    words = json.loads(check.partition("CMD ")[2])
    env = {**os.environ, "TOPICWRIGHT_HTTP": http}
    return subprocess.run([sys.executable, *words[1:]], env=env, capture_output=True, check=False).returncode


def test_the_health_check_follows_the_process(topicwright_server: Topicwright) -> None:
    assert _health_check(topicwright_server.http) == 0
    assert _health_check(f"127.0.0.1:{free_ports(1)[0]}") == 1


@pytest.mark.parametrize("name", ["tests", "release"])
def test_workflows_reduce_permissions_and_name_what_exists(name: str) -> None:
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert "uses" not in job or (ROOT / job["uses"]).is_file()
        for step in job.get("steps", ()):
            assert ("uses" in step) != ("run" in step)
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False
            for script in re.findall(r"(?:bash|python -W error -B) (\S+)", step.get("run", "")):
                assert (ROOT / script).is_file()
            for section in re.findall(r"/\^# (\w+)\$/", step.get("run", "")):
                assert section in SECTIONS


def test_workflows_cover_every_python_platform_and_image() -> None:
    jobs = WORKFLOWS["tests"]["jobs"]
    matrix = jobs["install"]["strategy"]["matrix"]
    assert matrix["python"] == [f"3.{minor}" for minor in PYTHONS]
    assert matrix["os"] == ["ubuntu-24.04", "ubuntu-24.04-arm", "macos-latest"], "the platforms of tests.support.pins"
    released = [each["target"] for each in WORKFLOWS["release"]["jobs"]["images"]["strategy"]["matrix"]["include"]]
    assert jobs["images"]["strategy"]["matrix"]["target"] == released == ["base", "spark"]


def test_dependabot_and_pre_commit_name_what_exists() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text(encoding="utf-8"))["updates"]
    files = {"docker": "Dockerfile", "github-actions": ".github", "gomod": "go.mod", "npm": "package.json"}
    for each in updates:
        for folder in each.get("directories", [each.get("directory")]):
            assert (ROOT / folder.lstrip("/") / files.get(each["package-ecosystem"], "pyproject.toml")).exists()
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    check = (ROOT / "Makefile").read_text(encoding="utf-8")
    for hook in local["hooks"]:
        program = hook["entry"].partition(" ")[0].removeprefix(".venv/bin/")
        assert f"$(BIN)/{program}" in check, "the same program as make check"
