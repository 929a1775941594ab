"""The alert rules and the dashboard pass their own checkers and match the metrics of /metrics."""

import asyncio
import copy
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from controller.brokers.kraft.kraft_brokers import KraftBrokers
from controller.serving.client_listeners import ClientListeners
from controller.serving.quorum_member import Member
from controller.serving.serve import Service
from controller.stream.gateway.service import GatewayService
from controller.stream.worker.service import WorkerStatus
from tests.http.service import service
from tests.support.tools import ROOT, cached

ALERTS = ROOT / "deploy/prometheus/alerts.yml"
DASHBOARD = ROOT / "deploy/grafana/topicwright.json"
FIGURE = re.compile(r"\b(?:topicwright|process)_[a-z_]+\b")
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("",), "gauge": ("",)}


def promtool(*arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    argv = [cached("promtool/usr/bin/promtool"), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300, input=given)


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    file: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return file


def expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def printed(text: str) -> set[str]:
    """The names of the samples in a metrics text, including those that have no value yet."""
    kinds = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    return {name + suffix for name, kind in kinds for suffix in SUFFIXES[kind]}


async def test_metrics_contain_every_name_of_alerts_and_dashboard() -> None:
    wanted = {name for text in (ALERTS.read_text(), DASHBOARD.read_text()) for name in FIGURE.findall(text)}
    async with service() as one:
        adds: tuple[Callable[[Any], Any], ...] = (
            ClientListeners.gauges,
            Service._gauges,
            GatewayService._gauges,
            Member.gauges,
            KraftBrokers.gauges,
        )
        for gauges in adds:  # the gauges of each kind of process
            one.metrics.watch(lambda gauges=gauges: gauges(MagicMock()))  # type: ignore[misc]
        one.metrics.watch(WorkerStatus(cast(Any, None)).gauges)
        text = (await one.client.get("/metrics")).text
    assert len(wanted) > 40, "the files name enough metrics"
    assert wanted - printed(text) == set(), "files name metrics that do not exist"
    assert "topicwright_nonsense_total" not in printed(text)


async def test_metrics_pass_promtool_check() -> None:
    """Remarks of `promtool check metrics` about older metric names are accepted."""
    async with service() as one:
        text = (await one.client.get("/metrics")).text
    done = await asyncio.to_thread(promtool, "check", "metrics", given=text)
    assert "error while linting" not in done.stderr, done.stderr
    assert done.returncode in (0, 3), done.stderr
    assert [line for line in done.stderr.splitlines() if re.search("build_info|partitions_|placeholders", line)] == []


def test_alert_rules_pass_promtool() -> None:
    assert len(alerts()) >= 15
    for done in (promtool("check", "rules", ALERTS), promtool("test", "rules", ALERTS.with_name("alerts_test.yml"))):
        assert done.returncode == 0, done.stdout + done.stderr


def test_dashboard_expressions_are_valid_promql(tmp_path: Path) -> None:
    assert len(expressions()) > 30
    plain = [re.sub(r"\$__rate_interval", "1m", each).replace("$job", "a").replace("$instance", "b")
             for each in expressions()]  # fmt: skip
    rules = [{"record": f"panel:number:{number}", "expr": each} for number, each in enumerate(plain)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", tmp_path / "rules.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def lost(file: Any, again: Any, path: str = "") -> Iterator[str]:
    """The paths at which a dashboard differs from Grafana's own types."""
    if isinstance(file, dict):
        for key, value in file.items():
            if not isinstance(again, dict) or key not in again:
                yield f"{path}/{key}"
            else:
                yield from lost(value, again[key], f"{path}/{key}")
    elif isinstance(file, list):
        for number, value in enumerate(file):
            yield from lost(value, again[number], f"{path}/{number}")
    elif file != again:
        yield path


def typed(file: dict[str, Any]) -> Any:
    register_default_plugins()
    return json.loads(JSONEncoder().encode(Dashboard.from_json(file)))


def test_dashboard_matches_grafanas_types() -> None:
    assert list(lost(dashboard(), typed(dashboard()))) == []


@pytest.mark.parametrize("path", ["expr", "legendFormat"])
def test_an_invalid_dashboard_is_found(path: str) -> None:
    wrong = copy.deepcopy(dashboard())
    target = next(panel["targets"][0] for panel in wrong["panels"] if "targets" in panel)
    target[f"{path}s"] = target.pop(path)
    assert len(list(lost(wrong, typed(wrong)))) == 1


def test_dashboard_panels_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not cells & taken, f"{panel['title']} overlaps another panel"
        taken |= cells
