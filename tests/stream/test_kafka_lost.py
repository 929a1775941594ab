"""Kafka stops and restarts under gateways and workers of both drivers. No command is lost."""

import signal
from contextlib import ExitStack
from pathlib import Path

from controller.stream.gateway.node import NO_KAFKA
from tests.stream.gateway.test_service import NOT_CONTROLLER, created, described
from tests.stream.requests import create_with_messages, get, until
from tests.stream.worker.test_service import group_of
from tests.support.processes import Process
from tests.support.reference_kafka import KafkaCluster, kafka_cluster
from tests.support.stream import stream
from tests.support.topicwright import fetch


def test_gateways_and_workers_survive_a_kafka_restart(tmp_path: Path) -> None:
    with kafka_cluster(tmp_path / "kafka", nodes=1, group_min_session_timeout_ms="1000") as kafka:
        gateway_reports_lost_kafka_and_recovers(kafka, tmp_path / "gateway")
        workers_go_on_and_can_be_stopped(kafka, tmp_path)


def gateway_reports_lost_kafka_and_recovers(kafka: KafkaCluster, folder: Path) -> None:
    """SIGSTOP suspends Kafka, which looks to clients like a network failure."""
    with stream(folder, kafka.bootstrap, "lost", gateways=0) as one:
        gateway = one.start_gateway({"gateway.session.timeout.ms": "1500", "gateway.heartbeat.interval.ms": "200"})
        tried: list[str] = []
        until("a topic is created", lambda: created(gateway.kafka, "before"))
        kafka.processes[1].popen.send_signal(signal.SIGSTOP)
        try:
            until("the gateway is not ready", lambda: fetch(gateway.http, "/health/ready")[0] == 503)
            assert "does not receive its own heartbeats" in get(gateway, "/health/ready", 503)["reason"]
            # A heartbeat that Kafka returned before may arrive late, and a command produced then may still be decided.
            until("requests are refused", lambda: refused_at_once(gateway.kafka, tried))
            assert described(gateway.kafka, "before") == 0, "the gateway still serves what it has read"
        finally:
            kafka.processes[1].popen.send_signal(signal.SIGCONT)
        until("the gateway is ready again", lambda: fetch(gateway.http, "/health/ready")[0] == 200)
        until("requests are decided again", lambda: created(gateway.kafka, "after"))
        assert described(gateway.kafka, tried[-1]) == 3, "a refused command was not produced"


def refused_at_once(address: str, names: list[str]) -> bool:
    """Create a new topic, whose name is appended to `names`; True if the gateway refuses because of Kafka."""
    names.append(f"meanwhile-{len(names)}")
    (outcome,) = create_with_messages(address, names[-1]).values()
    assert outcome[0] == NOT_CONTROLLER
    return outcome[1] == NO_KAFKA


def workers_go_on_and_can_be_stopped(kafka: KafkaCluster, folder: Path) -> None:
    """The only broker is killed and restarted; workers continue without a restart. It is killed again; workers still
    stop on SIGTERM."""

    def decides(worker: Process, http: str) -> bool:
        return worker.popen.poll() is None and fetch(http, "/health/ready")[0] == 200

    with ExitStack() as held:
        groups = {driver: group_of(folder, kafka.bootstrap, held) for driver in ("plain", "faust")}
        workers = {driver: group.ready(driver, data=driver) for driver, group in groups.items()}
        for group in groups.values():
            group.put("a", "b", "c")
            group.decided()
        kafka.kill(1)
        until("no worker is ready", lambda: not any(decides(*worker) for worker in workers.values()))
        kafka.start(1)
        until(
            "each worker has ended or is ready",
            lambda: all(worker.popen.poll() is not None or decides(worker, http) for worker, http in workers.values()),
        )
        for driver, (worker, _) in workers.items():
            assert worker.popen.poll() is None, worker.output[-3000:]
            groups[driver].put("d", "e")
            assert groups[driver].decided()["lost"] == 0
        kafka.kill(1)
        until("no worker is ready", lambda: not any(decides(*worker) for worker in workers.values()))
        for worker, _ in workers.values():
            worker.popen.terminate()
        for worker, _ in workers.values():
            assert worker.wait(120) == 0, worker.output[-3000:]  # a second SIGTERM would kill one that has just ended
