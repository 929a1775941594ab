"""Workers and gateways in front of a real Kafka that stores their log and is their target cluster.

`make cluster` starts these processes, in the topology of docker-compose.yml. Topics have unique names.
"""

import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic  # type: ignore[attr-defined]

from tests.brokers.cluster.served import create, replicas, seen, types, until
from tests.support.cluster import SETTINGS
from tests.support.kafka_tools import FAILED_READS, failed_reads
from tests.support.processes import Process
from tests.support.reference_kafka import ReferenceKafka
from tests.support.stream import Stream
from tests.support.tools import ROOT
from tests.support.topicwright import Topicwright
from tests.support.wire import Wire

NAMES = "topicwright"
STARTED_WITHIN_S = 480


@dataclass(frozen=True)
class Before:
    """The gateways, the target cluster, and an admin client for each."""

    kafka: ReferenceKafka
    gateways: tuple[Topicwright, Topicwright]
    there: AdminClient

    @property
    def here(self) -> AdminClient:
        """A new client: after Metadata of a named topic, a client knows the brokers' own addresses."""
        return AdminClient({"bootstrap.servers": self.gateway.kafka})

    @property
    def gateway(self) -> Topicwright:
        return self.gateways[0]


@pytest.fixture(scope="module")
def before(kafka44: ReferenceKafka) -> Iterator[Before]:
    """Two workers and two gateways. The target cluster's policy refuses names that begin with `refused`. `make cluster`
    also starts Kafka and Spark."""
    with Process([sys.executable, "-m", "tests.support.cluster", kafka44.bootstrap], cwd=ROOT) as process:
        kafka = process.wait_for_line(r"^Kafka clients +(\S+) and (\S+)$", within_s=STARTED_WITHIN_S).groups()
        http = process.wait_for_line(r"^HTTP +(\S+) and (\S+)$", within_s=10).groups()
        process.wait_for_line(r"^Ctrl-C ends it\.$", within_s=10)
        one, other = (Topicwright(process, *each, Path()) for each in zip(kafka, http, strict=True))
        yield Before(kafka44, (one, other), AdminClient({"bootstrap.servers": kafka44.bootstrap}))
        process.popen.send_signal(signal.SIGINT)
        assert process.wait(90) == 0, process.output[-4000:]


@pytest.fixture
def name() -> str:
    """A topic name that no other test has."""
    return f"fleet-{uuid.uuid4().hex[:12]}"


def test_the_target_cluster_applies_requests_of_gateways(before: Before, name: str) -> None:
    here, there = before.here, before.there
    names = [f"{name}-{number}" for number in range(6)]  # in several partitions with several owners
    for each in names:
        assert create(here, each, 2, 3, **{"retention.ms": "60000"}) == (0, "")
        topic = until(partial(seen, before.gateway, f"/v1/topics/{each}"))  # the other gateway may have answered
        assert replicas(there, each) == [one["replicas"] for one in topic["partitions"]]
    one = names[0]
    here.create_partitions([NewPartitions(one, 4)])[one].result(30)
    assert len(replicas(there, one)) == 4
    step = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, one, incremental_configs=[step])
    here.incremental_alter_configs([resource])[resource].result(30)
    plain = ConfigResource(ConfigResource.Type.TOPIC, one)
    assert there.describe_configs([plain])[plain].result(10)["retention.ms"].value == "5000"
    here.delete_topics([one])[one].result(30)
    until(lambda: one not in there.list_topics(timeout=10).topics)
    history = [
        "CreateRequested", "TopicCreated", "TopicDiscovered", "TopicReady", "CreateAnswered",
        "PartitionsAdded", "ChangeCarriedOut", "TopicConfigsChanged", "ChangeCarriedOut",
        "TopicDeleted", "ChangeCarriedOut",
    ]  # fmt: skip
    until(
        lambda: [each for each in types(before.gateway, one) if each != "MetadataPropagated"],  # each broker causes one
        lambda found: found == history,
    )


def test_metadata_of_a_named_topic_lists_brokers_and_gateways(before: Before, name: str) -> None:
    assert create(before.here, name)[0] == 0
    with Wire(before.gateway.kafka) as wire:
        listed = wire.call("Metadata", 9, topics=[{"name": name}])["brokers"]
    gateways = {one.kafka for one in before.gateways}
    assert {f"{node['host']}:{node['port']}" for node in listed} == {*before.kafka.brokers.values(), *gateways}


def test_refusals_of_the_target_cluster_are_rejections(before: Before, name: str) -> None:
    refused = f"refused-{name}"
    here = before.here
    assert create(here, refused) == (KafkaError.POLICY_VIOLATION, f"no topic may be called {refused}")
    events = until(lambda: seen(before.gateway, f"/v1/events?topic={refused}"))[
        "events"
    ]  # the other gateway may have answered
    rejected = next(event["fields"] for event in events if event["type"] == "CreateRejected")
    assert (rejected["rule"], rejected["error_code"]) == ("cluster", KafkaError.POLICY_VIOLATION)


def test_external_changes_of_the_target_cluster_are_imported(before: Before, name: str) -> None:
    there = before.there
    there.create_topics([NewTopic(name, 1, 2, config={"retention.ms": "60000"})])[name].result(30)
    found = until(lambda: seen(before.gateway, f"/v1/topics/{name}"))
    assert (found["status"], found["configs"]) == ("ready", {"retention.ms": "60000"})
    there.create_partitions([NewPartitions(name, 3)])[name].result(30)
    until(lambda: seen(before.gateway, f"/v1/topics/{name}"), lambda topic: len(topic["partitions"]) == 3)
    there.delete_topics([name])[name].result(30)
    until(lambda: seen(before.gateway, f"/v1/topics/{name}") is None)
    until(
        lambda: types(before.gateway, name),
        lambda found: found == ["TopicDiscovered", "TopicDiscovered", "TopicVanished"],
    )


def test_every_read_of_javas_admin_client_through_a_gateway(before: Before, name: str) -> None:
    assert create(before.here, name)[0] == 0
    not_forwarded = {"describeDelegationToken": "UnsupportedVersionException"}
    assert failed_reads(before.gateway.kafka, name) == FAILED_READS | not_forwarded


def _groups(admin: AdminClient) -> set[str]:
    return {each.group_id for each in admin.list_consumer_groups().result(60).valid}


def test_the_commands_and_events_topics_are_hidden_and_protected(before: Before, name: str) -> None:
    """Gateways neither list these topics nor delete them. A console that describes the topics of all groups works."""
    before.there.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    until(lambda: seen(before.gateway, f"/v1/topics/{name}"))
    log = {f"{NAMES}.{kind}" for kind in ("commands", "events", "gateways")}
    assert log <= set(before.there.list_topics(timeout=10).topics)
    here = before.here
    assert not log & set(here.list_topics(timeout=10).topics)
    assert "topicwright.workers" in _groups(before.there)
    assert "topicwright.workers" not in _groups(before.here)
    for each in log:
        with pytest.raises(KafkaException) as refused:
            here.delete_topics([each])[each].result(30)
        assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert create(here, each)[0] == KafkaError.TOPIC_ALREADY_EXISTS
    assert log <= set(before.there.list_topics(timeout=10).topics)


def test_a_surviving_worker_takes_over_partitions_of_a_killed_one(before: Before, name: str, tmp_path: Path) -> None:
    """The new owner of the partitions watches the target cluster and applies requests there."""
    with ExitStack() as held:
        others = Stream(tmp_path, before.kafka.bootstrap, NAMES, SETTINGS, "plain", ROOT, held)
        others.start_worker(f"cluster:{before.kafka.brokers[2]}").kill()
    names = [f"{name}-{number}" for number in range(6)]
    here = before.here
    for each in names:
        assert create(here, each, 1, 1) == (0, "")
    assert set(names) <= set(before.there.list_topics(timeout=10).topics)
    for done in before.there.delete_topics(names).values():
        done.result(30)
    until(lambda: all(seen(before.gateway, f"/v1/topics/{each}") is None for each in names))
