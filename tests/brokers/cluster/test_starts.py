"""Starting before a Kafka cluster that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.cli import main
from controller.serving import log_lines
from controller.serving.reach_cluster import reach_as


def test_a_start_without_the_cluster_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reach_as.__kwdefaults__ is not None, "it has a limit"
    monkeypatch.setattr(log_lines, "configure_logs", lambda _: None)  # they are of the whole process
    monkeypatch.setitem(reach_as.__kwdefaults__, "within_s", 1.0)
    places = ["--data", str(tmp_path), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    assert main.main(["serve", *places, "--brokers", "cluster:127.0.0.1:1", "--set", "node.id=100"]) == 2
    assert "the cluster at 127.0.0.1:1 cannot be reached within 1 s" in capsys.readouterr().err
