"""A real Kafka cluster as the fleet: topics made, changed and deleted through Topicwright, and behind its back.

One cluster of three brokers for all of it. Each test serves from a data folder of its own; topics have names of their
own, and what a test does to brokers it undoes.
"""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it does not say that it exports these
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from controller.machine.apply import apply
from controller.machine.commands import Clearance, CreatePartitions, CreateTopic, DeleteTopic
from controller.machine.decide import decide
from controller.machine.recall import recall
from events.catalog import EVENT_VERSION, Cause, Recorded
from events.codec import decode_event, encode_event
from events.log import Commit, Entry
from events.names import Offset, TopicId, TopicName
from events.rocksdb_log import RocksDbLog
from projections.store import TopicStore
from tests.machine.auditor import audit
from tests.machine.lives import Lives
from tests.machine.rig import fold
from tests.machine.walks import decisions
from tests.support import tools
from tests.support.processes import ProcessFailure
from tests.support.reference_kafka import CLUSTER_ID, ReferenceKafka, reference_kafka
from tests.support.topicwright import Topicwright, topicwright

T = TypeVar("T")
NODE_ID = 100
SETTINGS = {"node.id": str(NODE_ID), "cluster.watch.interval.ms": "200", "cluster.configs.watch.interval.ms": "500"}
TRANSACTIONS: dict[str, Any] = {
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "1",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceKafka]:
    """Three brokers, the first of which is the controller too; their policy refuses names that begin with `refused`."""
    folder = tmp_path_factory.mktemp("cluster") / "kafka"
    with reference_kafka(folder, broker_session_timeout_ms="6000", **TRANSACTIONS) as running:
        yield running


@contextmanager
def front_of(kafka: ReferenceKafka, folder: Path, **settings: str) -> Iterator[Topicwright]:
    """Topicwright before the cluster."""
    more = {key.replace("_", "."): value for key, value in settings.items()}
    with topicwright(folder, {**SETTINGS, **more}, brokers=f"cluster:{kafka.bootstrap}") as server:
        yield server
    check_log(server.data)


def check_log(data: Path) -> None:
    """What a log must be like: no check of the auditor's is broken, and every ask is decided again to the bit."""
    log = RocksDbLog.open(data, cluster_id=None, event_version=EVENT_VERSION, new_cluster_id=lambda: "none")
    records = [decode_event(offset, value) for offset, value in log.read()]
    log.close()
    assert audit(records) == []
    Lives().see_all(records)
    state = fold(())
    for group in decisions(records):
        ask: Any = recall(group)
        if ask is not None:
            assert list(decide(state, ask).events) == [record.event for record in group], ask
        fold(group, state)


@pytest.fixture
def name() -> str:
    """A topic name that no other test has."""
    return f"cluster-{uuid.uuid4().hex[:12]}"


def create(admin: AdminClient, name: str, partitions: int = 2, factor: int = 3, **config: str) -> tuple[int, str]:
    """Ask for a topic; the code and message of the answer, 0 when it was created."""
    try:
        admin.create_topics([NewTopic(name, partitions, factor, config=config)], operation_timeout=20)[name].result(30)
    except KafkaException as refusal:
        return refusal.args[0].code(), refusal.args[0].str()
    return 0, ""


def seen(server: Topicwright, path: str) -> Any:
    """What HTTP answers, None for 404."""
    try:
        with urllib.request.urlopen(f"http://{server.http}{path}", timeout=10) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def types(server: Topicwright, name: str) -> list[str]:
    """The types of a topic's events."""
    return [event["type"] for event in seen(server, f"/topics/{name}/events?limit=500")["events"]]


def replicas(admin: AdminClient, name: str) -> list[list[int]]:
    """The replicas that a server tells, by partition."""
    topic = admin.list_topics(name, timeout=10).topics[name]
    return [topic.partitions[index].replicas for index in sorted(topic.partitions)]


def until(look: Callable[[], T], enough: Callable[[T], bool] = bool, within_s: float = 60) -> T:
    """What is seen once it is enough. Fails with what was seen last."""
    deadline = time.monotonic() + within_s
    while not enough(found := look()):
        assert time.monotonic() < deadline, f"still {found!r}"
        time.sleep(0.05)
    return found


def test_what_is_asked_here_is_done_there(kafka: ReferenceKafka, tmp_path: Path, name: str) -> None:
    with front_of(kafka, tmp_path) as server:
        here, there = (
            AdminClient({"bootstrap.servers": server.kafka}),
            AdminClient({"bootstrap.servers": kafka.bootstrap}),
        )
        assert create(here, name, 2, 3, **{"retention.ms": "60000"}) == (0, "")
        topic = there.list_topics(name, timeout=10).topics[name]
        assert {index: len(one.replicas) for index, one in topic.partitions.items()} == {0: 3, 1: 3}
        assert replicas(there, name) == [one["replicas"] for one in seen(server, f"/topics/{name}")["partitions"]]

        here.create_partitions([NewPartitions(name, 4)])[name].result(30)
        until(lambda: replicas(there, name), lambda found: len(found) == 4)
        step = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[step])
        here.incremental_alter_configs([resource])[resource].result(30)
        asked = ConfigResource(ConfigResource.Type.TOPIC, name)
        assert until(lambda: there.describe_configs([asked])[asked].result(10)["retention.ms"].value == "5000")

        here.delete_topics([name])[name].result(30)
        until(lambda: name not in there.list_topics(timeout=10).topics)
        time.sleep(1)
        told, observed = types(server, name), {"TopicDiscovered", "MetadataPropagated"}
        assert observed < set(told), "each as often as a look shows something new"
        assert [kind for kind in told if kind not in observed] == [
            "CreateRequested", "TopicCreated", "TopicReady", "CreateAnswered", "PartitionsAdded", "ChangeCarriedOut",
            "TopicConfigsChanged", "ChangeCarriedOut", "TopicDeleted", "ChangeCarriedOut",
        ]  # fmt: skip


def test_clients_that_begin_here_produce_and_consume_there(kafka: ReferenceKafka, tmp_path: Path, name: str) -> None:
    with front_of(kafka, tmp_path) as server:
        start: dict[str, str | int | float | bool] = {"bootstrap.servers": server.kafka}
        admin = AdminClient(start)
        assert create(admin, name)[0] == 0
        listed = admin.list_topics(timeout=10)
        assert set(listed.brokers) == {1, 2, 3, NODE_ID}
        assert listed.cluster_id == CLUSTER_ID

        plain = Producer({**start, "enable.idempotence": True})
        for number in range(20):
            plain.produce(name, f"{number}")
        assert plain.flush(30) == 0
        exactly = Producer({**start, "transactional.id": name})
        exactly.init_transactions(60)
        exactly.begin_transaction()
        exactly.produce(name, "committed")
        exactly.commit_transaction(30)
        exactly.begin_transaction()
        exactly.produce(name, "aborted")
        exactly.abort_transaction(30)

        consumer = Consumer({**start, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe([name])
        values: list[bytes] = []
        deadline = time.monotonic() + 60
        while len(values) < 21 and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append(message.value())
        consumer.commit(asynchronous=False)
        consumer.close()
        assert sorted(values) == sorted([*(f"{n}".encode() for n in range(20)), b"committed"])
        assert name in {group.group_id for group in admin.list_consumer_groups().result(30).valid}


def test_java_clients_that_begin_here(kafka: ReferenceKafka, tmp_path: Path, name: str) -> None:
    """An idempotent producer, a consumer group, and a copy from topic to topic in transactions."""
    tool, classpath = "org.apache.kafka.tools", tools.server_classpath()
    with front_of(kafka, tmp_path) as server:
        admin = AdminClient({"bootstrap.servers": server.kafka})
        assert (create(admin, name, 1)[0], create(admin, f"{name}-copy", 1)[0]) == (0, 0)
        begin = ["--bootstrap-server", server.kafka, "--topic", name, "--max-messages", "20"]
        made = tools.run_quietly(tools.java_command(classpath, f"{tool}.VerifiableProducer", *begin))
        assert '"acked":20' in made.stdout, made.stdout + made.stderr
        group = ["--group-id", f"{name}-java", "--reset-policy", "earliest"]
        read = tools.run_quietly(tools.java_command(classpath, f"{tool}.VerifiableConsumer", *begin, *group))
        assert '"maxOffset":19' in read.stdout, read.stdout + read.stderr
        copy = ["--input-topic", name, "--input-partition", "0", "--output-topic", f"{name}-copy"]
        copy += ["--broker-list", server.kafka, "--consumer-group", f"{name}-copier", "--transactional-id", name]
        copier = tools.java_command(classpath, f"{tool}.TransactionalMessageCopier", *copy, "--max-messages", "20")
        done = tools.run_quietly(copier)
        assert '"remaining":0' in done.stdout, done.stdout + done.stderr


def test_kafka_python_that_begins_here(kafka: ReferenceKafka, tmp_path: Path, name: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    with front_of(kafka, tmp_path) as server:
        assert create(AdminClient({"bootstrap.servers": server.kafka}), name, 1)[0] == 0
        producer = KafkaProducer(bootstrap_servers=server.kafka)
        for number in range(20):
            producer.send(name, f"{number}".encode()).get(30)
        producer.close()
        where = {"bootstrap_servers": server.kafka, "group_id": f"{name}-py", "auto_offset_reset": "earliest"}
        consumer = KafkaConsumer(name, **where, consumer_timeout_ms=60_000)
        values = [next(consumer).value for _ in range(20)]
        consumer.commit()
        consumer.close()
        assert values == [f"{number}".encode() for number in range(20)]


def test_what_the_cluster_refuses_is_rejected(kafka: ReferenceKafka, tmp_path: Path, name: str) -> None:
    with front_of(kafka, tmp_path) as server:
        admin = AdminClient({"bootstrap.servers": server.kafka})
        refused = f"refused-{name}"
        assert create(admin, refused) == (KafkaError.POLICY_VIOLATION, f"no topic may be called {refused}")
        events = seen(server, f"/topics/{refused}/events")["events"]
        rejected = next(event["fields"] for event in events if event["type"] == "CreateRejected")
        assert (rejected["rule"], rejected["error_code"]) == ("cluster", KafkaError.POLICY_VIOLATION)

        there = AdminClient({"bootstrap.servers": kafka.bootstrap})
        there.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        code, _ = create(admin, name)
        assert code == KafkaError.TOPIC_ALREADY_EXISTS
        until(lambda: seen(server, f"/topics/{name}"))


def test_what_happens_behind_our_back_is_discovered(kafka: ReferenceKafka, tmp_path: Path, name: str) -> None:
    there = AdminClient({"bootstrap.servers": kafka.bootstrap})
    there.create_topics([NewTopic(name, 1, 2, config={"retention.ms": "60000"})])[name].result(30)
    with front_of(kafka, tmp_path) as server:
        found = seen(server, f"/topics/{name}")
        assert (found["status"], found["configs"]) == ("ready", {"retention.ms": "60000"})
        there.create_partitions([NewPartitions(name, 3)])[name].result(30)
        until(lambda: seen(server, f"/topics/{name}"), lambda topic: len(topic["partitions"]) == 3)
        step = ConfigEntry("retention.ms", "7000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[step])
        there.incremental_alter_configs([resource])[resource].result(30)
        until(lambda: seen(server, f"/topics/{name}"), lambda topic: topic["configs"] == {"retention.ms": "7000"})
        there.delete_topics([name])[name].result(30)
        until(lambda: seen(server, f"/topics/{name}") is None)
        assert types(server, name) == ["TopicDiscovered"] * 3 + ["TopicVanished"]


def test_a_broker_that_dies_and_returns(kafka: ReferenceKafka, tmp_path: Path, name: str) -> None:
    """KIP-409 as well: with one of three brokers down a topic of factor 3 is made of two, and filled afterwards."""
    allowed = {"enable_under_replicated_topic_creation": "true"}
    with front_of(kafka, tmp_path, **allowed) as server:
        here, there = (
            AdminClient({"bootstrap.servers": server.kafka}),
            AdminClient({"bootstrap.servers": kafka.bootstrap}),
        )
        assert create(here, f"{name}-before", 3, 3)[0] == 0
        kafka.stop_broker(3)
        try:
            until(lambda: seen(server, "/brokers")["brokers"][2]["fenced"])
            led = until(
                lambda: [one["leader"] for one in seen(server, f"/topics/{name}-before")["partitions"]],
                lambda leaders: 3 not in leaders,
            )
            assert set(led) <= {1, 2}
            assert create(here, name, 2, 3) == (0, "")
            assert all(sorted(one["replicas"]) == [-1, 1, 2] for one in seen(server, f"/topics/{name}")["partitions"])
            assert all(sorted(one) == [1, 2] for one in replicas(there, name))
        finally:
            kafka.start_broker(3)
        until(lambda: all(sorted(one) == [1, 2, 3] for one in replicas(there, name)), within_s=90)
        whole = until(
            lambda: [sorted(one["isr"]) for one in seen(server, f"/topics/{name}")["partitions"]],
            lambda isr: isr == [[1, 2, 3]] * 2,
        )
        assert whole, "in sync"
        assert "PlaceholderFilled" in types(server, name)
        until(lambda: seen(server, f"/topics/{name}-before")["status"], lambda status: status == "ready")


def test_the_cluster_gone_and_back(kafka: ReferenceKafka, tmp_path: Path, name: str) -> None:
    with front_of(kafka, tmp_path) as server:
        admin = AdminClient({"bootstrap.servers": server.kafka})
        assert create(admin, f"{name}-before")[0] == 0
        os.killpg(kafka.process.pid, signal.SIGSTOP)
        try:
            future = admin.create_topics([NewTopic(name, 1, 3)], operation_timeout=4, request_timeout=30)[name]
            with pytest.raises(KafkaException) as refused:
                future.result(40)
            assert refused.value.args[0].code() == KafkaError.REQUEST_TIMED_OUT
            until(lambda: "the cluster cannot be reached" in server.process.output)
            with pytest.raises(urllib.error.HTTPError) as not_ready:
                urllib.request.urlopen(f"http://{server.http}/health/ready", timeout=10)
            assert not_ready.value.code == 503
            assert "the cluster cannot be reached" in json.loads(not_ready.value.read())["reason"]
            not_ready.value.close()
        finally:
            os.killpg(kafka.process.pid, signal.SIGCONT)
        until(lambda: "the cluster can be reached again" in server.process.output)
        until(lambda: create(admin, f"{name}-after")[0] == 0, within_s=90)


def test_what_a_dead_process_left_undone_is_taken_up(kafka: ReferenceKafka, tmp_path: Path, name: str) -> None:
    """Dead between the decision and the doing: the next start does it; what was decided is not lost."""
    there = AdminClient({"bootstrap.servers": kafka.bootstrap})
    made, grown, gone = f"{name}-made", f"{name}-grown", f"{name}-gone"
    with front_of(kafka, tmp_path) as server:
        admin = AdminClient({"bootstrap.servers": server.kafka})
        assert (create(admin, grown, 1)[0], create(admin, gone, 1)[0]) == (0, 0)
    asks: list[dict[str, Any]] = [{"request_id": f"dead-{number}", "clearance": Clearance()} for number in range(3)]
    record(
        server.data,
        CreateTopic(**asks[0], at_ms=now_ms(), topic=TopicName(made), topic_id=TopicId(b"m" * 16), num_partitions=2),
        CreatePartitions(**asks[1], at_ms=now_ms(), topic=TopicName(grown), count=3),
        DeleteTopic(**asks[2], at_ms=now_ms(), topic=TopicName(gone)),
    )
    with front_of(kafka, tmp_path) as again:
        until(lambda: types(again, gone)[-2:] == ["TopicDeleted", "ChangeCarriedOut"])
        until(lambda: types(again, grown)[-2:] == ["PartitionsAdded", "ChangeCarriedOut"])
        until(lambda: seen(again, f"/topics/{made}")["status"] == "ready")
        until(lambda: gone not in there.list_topics(timeout=30).topics)
        assert (len(replicas(there, made)), len(replicas(there, grown))) == (2, 3)


def test_what_was_done_and_never_recorded_as_done_is_closed(kafka: ReferenceKafka, tmp_path: Path, name: str) -> None:
    """Dead between the doing and its record: nothing differs, and the next start records it all the same."""
    there = AdminClient({"bootstrap.servers": kafka.bootstrap})
    with front_of(kafka, tmp_path) as server:
        assert create(AdminClient({"bootstrap.servers": server.kafka}), name, 1)[0] == 0
    there.delete_topics([name])[name].result(30)
    until(lambda: name not in there.list_topics(timeout=10).topics)
    ask: dict[str, Any] = {"request_id": "dead", "clearance": Clearance()}
    record(server.data, DeleteTopic(**ask, at_ms=now_ms(), topic=TopicName(name)))
    with front_of(kafka, tmp_path) as again:
        until(lambda: types(again, name)[-2:] == ["TopicDeleted", "ChangeCarriedOut"])


def record(data: Path, *commands: Any) -> None:
    """Decide and record, as a process does that dies right after that."""
    log = RocksDbLog.open(data, cluster_id=None, event_version=EVENT_VERSION, new_cluster_id=lambda: "none")
    store = TopicStore(log)
    state, entries, offset = store.state(), list[Entry](), log.next_offset
    for command in commands:
        cause = Cause(type(command).__name__, command.request_id)
        for event in decide(state, command).events:
            key = apply(state, Recorded(Offset(offset), command.at_ms, cause, event))
            value = encode_event(command.at_ms, cause, event)
            entries.append(Entry(value, key, getattr(event, "request_id", "")))
            offset += 1
    log.write(Commit(entries, store.changes(state)))
    log.flush()
    log.close()


def now_ms() -> int:
    """The time of an ask."""
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"node.id": "2"}, "node.id=2 is the id of a broker of the cluster (1, 2, 3)"),
        ({"cluster.id": "another"}, "cluster.id=another is not the id of the cluster that carries decisions out"),
        ({"cluster.client.properties.file": "nowhere.properties"}, "nowhere.properties cannot be read"),
    ],
)
def test_settings_that_do_not_fit_the_cluster(
    kafka: ReferenceKafka, tmp_path: Path, settings: dict[str, str], told: str
) -> None:
    brokers = f"cluster:{kafka.bootstrap}"
    with (
        pytest.raises(ProcessFailure, match="ended with 2") as failure,
        topicwright(tmp_path, SETTINGS | settings, brokers=brokers),
    ):
        pass
    assert told in str(failure.value)
