"""Incidents of Kafka brokers: `topicwright status` names the brokers that everything waits for, and why they are away.
The test has a cluster of its own, without topics of others."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.brokers.kraft.real.conftest import SETTINGS
from tests.support.churn import QUIET
from tests.support.real_brokers import RealCluster, real_cluster, until
from tests.support.topicwright import COMMAND

Problem = tuple[str, list[int], list[str]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    with real_cluster(tmp_path, settings=SETTINGS) as cluster:
        yield cluster


def _status(cluster: RealCluster) -> tuple[int, dict[str, Any]]:
    """The exit code and the answer of `topicwright status`."""
    argv: list[str | Path] = [COMMAND, "status", "--json", "--http", cluster.http]
    done = subprocess.run(argv, stdout=subprocess.PIPE, timeout=240, check=False)
    return done.returncode, json.loads(done.stdout)


def _problems(cluster: RealCluster) -> list[Problem]:
    """The problems: kind, brokers that it waits for, and topics."""
    issues = _status(cluster)[1]["issues"]
    return sorted((one["kind"], one["waits_for"], sorted(one["examples"])) for one in issues)


def _cause(cluster: RealCluster, kind: str) -> str:
    return next(str(one["cause"]) for one in _status(cluster)[1]["issues"] if one["kind"] == kind)


def _reaches(cluster: RealCluster, *wanted: Problem) -> None:
    shown: list[Problem] = []

    def is_reached() -> bool:
        shown[:] = [one for one in _problems(cluster) if one[0] in ("offline", "under-min-isr")]
        return shown == list(wanted)

    with suppress(AssertionError):
        until(is_reached, 60, "the problems")
    assert shown == list(wanted)


def test_status_names_the_brokers_that_an_incident_waits_for(cluster: RealCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    topics = [
        NewTopic("alone.1", 2, replica_assignment=[[1], [1]]),
        NewTopic("alone.3", 1, replica_assignment=[[3]]),
        NewTopic("tight", 2, 3, config={"min.insync.replicas": "3"}),
    ]
    for future in admin.create_topics(topics, request_timeout=30).values():
        future.result(40)
    until(lambda: _status(cluster)[0] == 0, 90, "healthy before the incident")

    cluster.brokers[1].kill()
    cluster.wait_live(2, 3)
    _reaches(cluster, ("offline", [1], ["alone.1"]), ("under-min-isr", [1], ["tight"]))
    cause = _cause(cluster, "offline")
    assert "broker 1" in cause
    assert "fenced" in cause

    assert cluster.brokers[3].stop() in (0, 143)
    cluster.wait_live(2)
    _reaches(
        cluster, ("offline", [1], ["alone.1"]), ("offline", [3], ["alone.3"]), ("under-min-isr", [1, 3], ["tight"])
    )
    cluster.brokers[1].start()
    cluster.wait_live(1, 2)
    _reaches(cluster, ("offline", [3], ["alone.3"]), ("under-min-isr", [3], ["tight"]))
    cluster.brokers[3].start()
    cluster.wait_live()
    until(lambda: _status(cluster)[0] == 0, 90, "healthy after the restarts")

    cluster.brokers[2].signal(signal.SIGSTOP)
    cluster.wait_live(1, 3)
    _reaches(cluster, ("under-min-isr", [2], ["tight"]))
    cluster.brokers[2].signal(signal.SIGCONT)
    cluster.wait_live()
    until(lambda: _status(cluster)[0] == 0, 90, "healthy after the pause")
