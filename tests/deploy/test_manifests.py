"""The Kubernetes manifests, checked with Kubernetes' schemas, and the systemd units, with systemd's checker. Both match
this project's command line and paths."""

import configparser
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from controller.cli import main
from controller.http.metrics import OPEN_PATHS
from controller.release import RELEASE
from controller.serving.process import FAILED
from controller.settings.load import load_settings
from tests.support.tools import ROOT, program

FOLDER = ROOT / "deploy/kubernetes"
VERSIONS = ("1.30", "1.37")
"""The oldest and newest supported Kubernetes."""
FIELDS = {"POD_NAME": "topicwright-0", "POD_NAMESPACE": "kafka", "POD_IP": "10.0.0.1", "POD_INDEX": "0"}


def manifests() -> Iterator[dict[str, Any]]:
    for path in sorted(FOLDER.glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text(encoding="utf-8"))


def of(*kinds: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in manifests() if one["kind"] in kinds}


WORKLOADS = of("StatefulSet", "Deployment")


def container(name: str) -> dict[str, Any]:
    (only,) = WORKLOADS[name]["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = only
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_manifests_are_valid(version: str) -> None:
    for one in manifests():
        kubernetes_validate.validate(one, version, strict=True)


def test_kubernetes_manifests_have_all_workloads() -> None:
    replicas = {name: one["spec"]["replicas"] for name, one in WORKLOADS.items()}
    assert replicas == {
        "topicwright-serve": 1,
        "topicwright-voter": 3,
        "topicwright-worker": 2,
        "topicwright-gateway": 2,
    }, "serve is one process: its log has one writer"
    assert set(of("PodDisruptionBudget")) == {name for name, count in replicas.items() if count > 1}
    assert all(one["spec"]["maxUnavailable"] == 1 for one in of("PodDisruptionBudget").values())


def test_kubernetes_selectors_match_pods() -> None:
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in WORKLOADS.values()]
    for one in manifests():
        selector = one["spec"].get("selector") or one["spec"].get("podSelector") if "spec" in one else None
        wanted = (selector or {}).get("matchLabels", selector or {})
        assert any(wanted.items() <= each.items() for each in labels), one["metadata"]["name"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_container_commands_are_valid(name: str, tmp_path: Path) -> None:
    one = container(name)
    given = {each["name"] for each in one["env"]}
    words = [re.sub(r"\$\((\w+)\)", lambda found: FIELDS[found[1]], word) for word in one["args"]]
    assert set(re.findall(r"\$\((\w+)\)", " ".join(one["args"]))) <= given, "the pod sets each variable"
    parsed = main.parser(words[0]).parse_args(words)
    files = of("ConfigMap")["topicwright"]["data"]
    settings_file = tmp_path / parsed.config.name
    settings_file.write_text(files[settings_file.name], encoding="utf-8")
    settings = load_settings(settings_file, parsed.set)
    assert settings.http_authentication == "required", "a listener open to others requires a login"
    mounts = {each["mountPath"] for each in one["volumeMounts"]}
    for path in (parsed.config, Path(settings.users_file or ""), parsed.data):
        assert {str(each) for each in path.parents} & mounts, f"{path} is on no volume"
    ports = {each["name"]: each["containerPort"] for each in one["ports"]}
    assert ports["http"] == parsed.http.port
    if parsed.command in {"serve", "gateway", "join"}:
        (advertised,) = settings.advertised_listeners
        assert advertised.port in ports.values()


@pytest.mark.parametrize("name", WORKLOADS)
def test_probes_use_open_paths_and_containers_do_not_run_as_root(name: str) -> None:
    one = container(name)
    assert one["image"] == f"topicwright:{RELEASE}"
    paths = {each: one[each]["httpGet"]["path"] for each in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert set(paths.values()) == OPEN_PATHS
    assert (paths["livenessProbe"], paths["readinessProbe"]) == ("/health/live", "/health/ready")
    pod = WORKLOADS[name]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert one["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
EXPOSURE_MAX = 20
"""Limit of systemd's exposure score, times ten: 100 is no protection."""


def unit(path: Path) -> configparser.SectionProxy:
    read = configparser.ConfigParser(interpolation=None, strict=True)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(path.read_text(encoding="utf-8"))
    return read["Service"]


def test_systemd_units_cover_every_process_kind() -> None:
    assert [path.stem.removeprefix("topicwright-") for path in UNITS] == ["gateway", "join", "serve", "worker"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_units_are_valid_and_sandboxed(path: Path, tmp_path: Path) -> None:
    here = tmp_path / path.name
    command = unit(path)["ExecStart"].split()[0]
    here.write_text(path.read_text(encoding="utf-8").replace(command, "/bin/true"), encoding="utf-8")
    analyze = program("systemd-analyze")
    for words in (["verify"], ["security", "--offline=true", f"--threshold={EXPOSURE_MAX}"]):
        done = subprocess.run([analyze, *words, here], capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_unit_commands_are_valid(path: Path) -> None:
    example = next(line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# ARGUMENTS="))
    words = shlex.split(unit(path)["ExecStart"])[1:]
    assert words.pop() == "$ARGUMENTS", "the user's file adds further arguments"
    parsed = main.parser(words[0]).parse_args([*words, *shlex.split(example.partition("=")[2])])
    assert parsed.command == path.stem.removeprefix("topicwright-")
    assert str(parsed.data) == f"/var/lib/{unit(path)['StateDirectory']}", "the unit may write only this folder"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_units_restart_on_failure_except_exit_code_2(path: Path) -> None:
    service = unit(path)
    assert service["Restart"] == "on-failure"
    never = set(map(int, service["RestartPreventExitStatus"].split()))
    assert never == {2}, "the exit code of a rejected start; docs/operations.md"
    assert FAILED not in never
