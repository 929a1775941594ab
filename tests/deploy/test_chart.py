"""The Helm chart: it passes helm's checks, and renders exactly the manifests of deploy/kubernetes, which
`test_manifests` checks."""

import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

from controller.release import RELEASE
from tests.deploy.test_manifests import VERSIONS, manifests
from tests.support.tools import ROOT, cached

CHART = ROOT / "deploy/helm"
PARTS = {"serve": True, "voters": False, "stream": False}
"""The parts of the chart, and whether its values enable them."""


def helm(*words: str) -> str:
    done = subprocess.run([cached("helm/bin/helm"), *words], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rendered(*sets: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The rendered objects by kind and name."""
    text = helm(
        "template", "topicwright", str(CHART), f"--kube-version={VERSIONS[0]}", *(f"--set={each}" for each in sets)
    )
    return by_name(each for each in yaml.safe_load_all(text) if each)


def by_name(objects: Any) -> dict[tuple[str, str], dict[str, Any]]:
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    for each in found.values():
        for container in each["spec"]["template"]["spec"]["containers"] if "template" in each.get("spec", {}) else ():
            container["args"] = [container["args"][0], *sorted(container["args"][1:])]
            container["ports"].sort(key=lambda port: port["name"])
    return found


def test_helm_lint_accepts_the_chart() -> None:
    helm("lint", "--strict", str(CHART))
    assert yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"] == RELEASE


def test_the_chart_renders_the_manifests() -> None:
    everything = rendered(*(f"{part}.enabled=true" for part in PARTS))
    assert everything == by_name(manifests())


@pytest.mark.parametrize("part", PARTS)
def test_each_part_renders_alone_with_its_values(part: str) -> None:
    image, prefix = "images/topicwright@sha256:0", {"serve": "serve", "voters": "voter"}.get(part, "gateway")
    sets = [f"{each}.enabled={str(each == part).lower()}" for each in PARTS]
    found = rendered(*sets, f"image={image}", "networkPolicy=false", "usersSecret=logins", "serve.kafka=there:1")
    for each in found.values():
        for version in VERSIONS:
            kubernetes_validate.validate(each, version, strict=True)
    workloads = {name: each for (kind, name), each in found.items() if kind in ("StatefulSet", "Deployment")}
    assert f"topicwright-{prefix}" in workloads
    assert len(workloads) == (2 if part == "stream" else 1)
    for each in workloads.values():
        (container,) = each["spec"]["template"]["spec"]["containers"]
        assert container["image"] == image
        assert ("--brokers=cluster:there:1" in container["args"]) == (part == "serve")
        secrets = [
            one["secret"]["secretName"] for one in each["spec"]["template"]["spec"]["volumes"] if "secret" in one
        ]
        assert secrets == ["logins"]
    assert not [kind for kind, _ in found if kind == "NetworkPolicy"]


def test_the_default_values_enable_one_part() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert {part: values[part]["enabled"] for part in PARTS} == PARTS
