"""Serves a real Kafka cluster with Topicwright, queries both sides, and writes a log as a process that then dies."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic  # type: ignore[attr-defined]

from controller.machine.decide import decide
from controller.machine.recorded_command import recall
from controller.store.recorder import Recorder
from controller.store.store import TopicStore
from events.codec import decode_event
from events.logs.rocksdb_log import RocksDbLog
from tests.machine.audit.auditor import audit
from tests.machine.audit.lifecycle import Lives
from tests.machine.rig import fold
from tests.machine.walks import decisions
from tests.support.reference_kafka import ReferenceKafka
from tests.support.stream import stream
from tests.support.topicwright import Topicwright, fetch, topicwright

T = TypeVar("T")
NODE_ID = 100
SETTINGS = {"node.id": str(NODE_ID), "cluster.watch.interval.ms": "500", "cluster.configs.watch.interval.ms": "2000"}


@contextmanager
def in_front_of(kafka: ReferenceKafka, folder: Path, **settings: str) -> Iterator[Topicwright]:
    more = {key.replace("_", "."): value for key, value in settings.items()}
    with topicwright(folder, {**SETTINGS, **more}, brokers=f"cluster:{kafka.bootstrap}") as server:
        yield server
    check_log(server.data)


@contextmanager
def in_front_by(way: str, kafka: ReferenceKafka, folder: Path, names: str, **settings: str) -> Iterator[Topicwright]:
    """Topicwright in front of the cluster: `serve`, or a `gateway` and a worker with their log in topics of the cluster
    that begin with `names`."""
    if way == "serve":
        with in_front_of(kafka, folder, **settings) as server:
            yield server
        return
    own = {key: value for key, value in SETTINGS.items() if key != "node.id"}
    own |= {key.replace("_", "."): value for key, value in settings.items()}
    with stream(folder, kafka.bootstrap, names, own, brokers="cluster") as running:
        yield running.gateways[0]


def check_log(data: Path) -> None:
    """Check that no invariant is violated, and that the machine repeats every decision exactly."""
    log = RocksDbLog(data, cluster_id=None, new_cluster_id=lambda: "none")
    records = [decode_event(offset, value) for offset, value in log.read()]
    log.close()
    assert not (broken := audit(records)), broken
    Lives().see_all(records)
    state = fold(())
    for group in decisions(records):
        request: Any = recall(group)
        if request is not None:
            assert list(decide(state, request).events) == [record.event for record in group], request
        fold(group, state)


def create(admin: AdminClient, name: str, partitions: int = 2, factor: int = 3, **config: str) -> tuple[int, str]:
    """Create a topic; returns the error code and message."""
    try:
        admin.create_topics([NewTopic(name, partitions, factor, config=config)], operation_timeout=90)[name].result(120)
    except KafkaException as refusal:
        return refusal.args[0].code(), refusal.args[0].str()
    return 0, ""


def set_config(
    admin: AdminClient,
    resource: str,
    key: str,
    value: str,
    *,
    kind: Any = ConfigResource.Type.TOPIC,
    step: Any = AlterConfigOpType.SET,
) -> None:
    changed = ConfigResource(kind, resource, incremental_configs=[ConfigEntry(key, value, incremental_operation=step)])
    admin.incremental_alter_configs([changed])[changed].result(30)


def seen(server: Topicwright, path: str) -> Any:
    """The JSON response over HTTP; None for 404."""
    status, body = fetch(server.http, path)
    assert status in (200, 404), body
    return json.loads(body) if status == 200 else None


def types(server: Topicwright, name: str) -> list[str]:
    return [event["type"] for event in seen(server, f"/v1/events?topic={name}&limit=500")["events"]]


def replicas(admin: AdminClient, name: str) -> list[list[int]]:
    """The replicas by partition, as a server reports them."""
    topic = admin.list_topics(name, timeout=10).topics[name]
    return [topic.partitions[index].replicas for index in sorted(topic.partitions)]


def until(look: Callable[[], T], enough: Callable[[T], bool] = bool, within_s: float = 240) -> T:
    """Poll until a condition holds, less often the longer it takes. Fails with the last value."""
    deadline, pause_s = time.monotonic() + within_s, 0.05
    while not enough(found := look()):
        assert time.monotonic() < deadline, f"still {found!r}"
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.5)
    return found


def record(data: Path, *commands: Any) -> None:
    """Decide and record commands, like a process that dies right after."""
    log = RocksDbLog(data, cluster_id=None, new_cluster_id=lambda: "none")
    recorder = Recorder(log, TopicStore(log))
    for command in commands:
        recorder.record_decision(command, decide(recorder.state, command).events)
    recorder.commit()
    log.flush()
    log.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
