"""Starting with an unreachable target cluster or archive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import structlog

from controller.brokers.cluster.target_cluster import TargetCluster, WatchTimes
from controller.brokers.cluster.watch import ClusterWatch
from controller.cli import main
from controller.serving.reach_cluster import reach_as
from events.catalog import Cause, Recorded, TopicDeleted
from events.logs.archive.store import ArchiveAway
from events.names import Offset, RequestId, ShardKey, TopicId, TopicName


class _Sink:
    """A controller without topics."""

    background = staticmethod(asyncio.ensure_future)

    def has_pending_creates(self) -> bool:
        return False


async def test_an_unreachable_archive_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unfinished changes may be in the archive only."""
    went: list[str] = []

    def history(shard: ShardKey) -> Iterable[Recorded]:
        went.append(shard)
        if len(went) < 3:
            raise ArchiveAway("the archive is away")
        return ()

    async def look(_: ClusterWatch) -> None:
        return None

    monkeypatch.setattr(ClusterWatch, "scan", look)
    monkeypatch.setattr(ClusterWatch, "scan_configs", look)
    missing: Any = None
    deleted = TopicDeleted(RequestId("r"), TopicName("t"), TopicId(b"i" * 16), "User:a", None, missing)
    recent = (Recorded(Offset(0), 0, Cause("DeleteTopic", RequestId("r")), deleted),)
    brokers = TargetCluster(
        missing, history, WatchTimes(topics_ms=1), structlog.get_logger(), recent=lambda: recent, shared=True
    )
    brokers.start(_Sink())  # type: ignore[arg-type]
    await asyncio.wait_for(brokers.first_scan(), 10)
    assert went == ["t", "t", "t"]
    await brokers.stop()


def test_a_start_without_the_cluster_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reach_as.__kwdefaults__ is not None, "it has a limit"
    monkeypatch.setitem(reach_as.__kwdefaults__, "within_s", 1.0)
    places = ["--data", str(tmp_path), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    assert main.main(["serve", *places, "--brokers", "cluster:127.0.0.1:1", "--set", "node.id=100"]) == 2
    assert "the cluster at 127.0.0.1:1 cannot be reached within 1 s" in capsys.readouterr().err
