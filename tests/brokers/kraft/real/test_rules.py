"""No client gets around the rules: every Kafka request that can change a topic, sent to Kafka brokers by the clients of
Java, librdkafka and franz-go and by Kafka's tools, is refused. So is every request over HTTP."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from controller.machine.errors import ErrorCode
from tests.support import tools
from tests.support.churn import QUIET
from tests.support.kafka_tools import run_tools
from tests.support.real_brokers import RealCluster, until
from tests.support.topicwright import command, fetch

TOPIC = "ruled"
RULES = f"""
[[rule]]
name = "bounds"
topics = "{TOPIC}*"
partitions = {{ max = 4 }}
configs = {{ "retention.ms" = {{ max = 604800000 }} }}

[[rule]]
name = "defaults"
on = "defaults"
configs = {{ "retention.ms" = {{ max = 604800000 }} }}

[[rule]]
name = "automatic"
on = "create"
topics = "{TOPIC}-auto"
refuse = "create it with kafka-topics"

[[rule]]
name = "keep"
on = ["delete", "reassign", "elect"]
topics = "{TOPIC}*"
refuse = "ask the platform team"
"""
REFUSED = int(ErrorCode.POLICY_VIOLATION)
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.fixture(scope="module")
def ruled(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """The cluster with a topic of two partitions and the rules above, until the end of these tests."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    new = NewTopic(TOPIC, 2, replica_assignment=[[1, 2], [2, 3]], config={"retention.ms": "3600000"})
    admin.create_topics([new])[TOPIC].result(60)
    moved = reassign(cluster.bootstrap, tmp_path_factory.mktemp("plan"), [2, 1])
    assert "Successfully started" in moved, "broker 1 leads, broker 2 is preferred"
    file = tmp_path_factory.mktemp("rules") / "rules.toml"
    file.write_text(RULES)
    assert command("rules", "apply", file, "--http", cluster.http).returncode == 0
    until(lambda: "min.insync.replicas=2" in described(cluster)[1], 60, "the broker has the defaults of the cluster")
    before = described(cluster)
    yield cluster
    assert described(cluster) == before, "a change got around the rules"
    assert command("rules", "remove", "--http", cluster.http).returncode == 0


def described(cluster: RealCluster) -> Any:
    """The topics that the rules apply to, and the brokers' dynamic configs."""
    found = [each for each in get(cluster, "topics?limit=1000")["topics"] if each["name"].startswith(TOPIC)]
    ((code, defaults),) = run_tools(
        cluster.bootstrap, ["configs", "--describe", "--entity-type", "brokers", "--entity-default"]
    )
    assert code == 0, defaults
    return found, defaults


def reassign(bootstrap: str, folder: Path, replicas: Sequence[int]) -> str:
    """Request replicas of partition 0 with kafka-reassign-partitions; returns its output."""
    plan, wanted = folder / "plan.json", {"topic": TOPIC, "partition": 0, "replicas": replicas}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    ((_, output),) = run_tools(bootstrap, ["reassign-partitions", "--execute", "--reassignment-json-file", plan])
    return output


def refusals(cluster: RealCluster) -> int:
    """The number of refusals by these rules that the log records."""
    return sum(each["count"] for each in get(cluster, "health")["refused"] if each["rule"].startswith("policy:rules/"))


def get(cluster: RealCluster, path: str) -> Any:
    status, text = fetch(cluster.http, f"/v1/{path}")
    assert status == 200, text
    return json.loads(text)


def java(bootstrap: str) -> dict[str, int]:
    classpath = tools.compile_java(
        tools.ROOT / "tests/clients/java/rules", tools.client_classpath(tools.KAFKA_CLIENT_CONSUMER)
    )
    done = tools.run_quietly([*map(str, tools.java_command(classpath, "ChangeTopic", bootstrap, TOPIC))])
    assert done.returncode == 0, done.stdout + done.stderr
    return codes_in(done.stdout)


def franz_go(bootstrap: str) -> dict[str, int]:
    done = tools.run_quietly([tools.cached("franz/scenario"), bootstrap, TOPIC, "changes"])
    assert done.returncode == 0, done.stderr
    return codes_in(done.stdout)


def codes_in(output: str) -> dict[str, int]:
    codes: dict[str, int] = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    return codes


def librdkafka(bootstrap: str) -> dict[str, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    forever, factor = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET), 1
    of = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[forever])
    whole = ConfigResource(ResourceType.TOPIC, TOPIC, set_config={"retention.ms": "-1"})
    own = ConfigEntry("log.retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    brokers = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[own])
    asked: Mapping[str, Callable[[], Mapping[Any, Future[Any]]]] = {
        "CreateTopics": lambda: admin.create_topics([NewTopic(f"{TOPIC}-new", 9, factor)]),
        "CreatePartitions": lambda: admin.create_partitions([NewPartitions(TOPIC, 9)]),
        "AlterConfigs": lambda: deprecated(admin, whole),
        "IncrementalAlterConfigs": lambda: admin.incremental_alter_configs([of]),
        "IncrementalAlterConfigs of a broker": lambda: admin.incremental_alter_configs([brokers]),
        "DeleteTopics": lambda: admin.delete_topics([TOPIC]),
    }
    codes = {}
    for name, request in asked.items():
        (future,) = request().values()
        error = future.exception(60)
        codes[name] = error.args[0].code() if isinstance(error, KafkaException) else 0
    elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(60)
    codes["ElectLeaders"] = next(iter(elected.values())).code()
    settings = {"bootstrap.servers": bootstrap, "group.id": "ruled", "allow.auto.create.topics": "true", **QUIET}
    consumer = Consumer(settings)
    codes["Metadata"] = consumer.list_topics(f"{TOPIC}-auto", timeout=60).topics[f"{TOPIC}-auto"].error.code()
    consumer.close()
    return codes


def deprecated(admin: AdminClient, resource: ConfigResource) -> Mapping[Any, Future[Any]]:
    with pytest.deprecated_call():
        return admin.alter_configs([resource])


def kafkas_tools(bootstrap: str) -> dict[str, int]:
    of = ("--entity-type", "topics", "--entity-name", TOPIC)
    codes = {}
    for name, tool, *arguments in (
        ("CreateTopics", "topics", "--create", "--topic", f"{TOPIC}-new", "--partitions", "9"),
        ("CreatePartitions", "topics", "--alter", "--topic", TOPIC, "--partitions", "9"),
        ("IncrementalAlterConfigs", "configs", "--alter", *of, "--add-config", "retention.ms=-1"),
        (
            *("IncrementalAlterConfigs of brokers", "configs", "--alter", "--entity-type", "brokers"),
            *("--entity-default", "--add-config", "log.retention.ms=-1"),
        ),
        ("ElectLeaders", "leader-election", "--election-type", "preferred", "--topic", TOPIC, "--partition", "0"),
        ("DeleteTopics", "topics", "--delete", "--topic", TOPIC),
    ):
        ((_, output),) = run_tools(bootstrap, [tool, *arguments])
        codes[name] = shown(output)
    with TemporaryDirectory() as folder:
        codes["AlterPartitionReassignments"] = shown(reassign(bootstrap, Path(folder), [3]))
    return codes


def shown(output: str) -> int:
    """POLICY_VIOLATION if the output of a tool has its exception or the text of a rule."""
    return REFUSED if "PolicyViolationException" in output or "rule '" in output else 0


@pytest.mark.parametrize("client", [java, librdkafka, franz_go, kafkas_tools])
def test_every_kafka_client_is_refused(ruled: RealCluster, client: Callable[[str], dict[str, int]]) -> None:
    before = refusals(ruled)
    codes = client(ruled.bootstrap)
    automatic = codes.pop("Metadata", None)
    assert automatic in (None, UNKNOWN, REFUSED)
    assert codes == dict.fromkeys(codes, REFUSED)
    assert len(codes) >= 6
    until(lambda: refusals(ruled) > before, 60, "the refusals are recorded")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "topics", {"name": f"{TOPIC}-new", "num_partitions": 9}),
        ("POST", "topics?validate_only=true", {"name": f"{TOPIC}-new", "configs": {"retention.ms": -1}}),
        ("PATCH", f"topics/{TOPIC}", {"num_partitions": 9}),
        ("PATCH", f"topics/{TOPIC}", {"configs": {"retention.ms": -1}}),
        ("DELETE", f"topics/{TOPIC}", None),
    ],
)
def test_every_change_over_http_is_refused(ruled: RealCluster, method: str, path: str, body: object) -> None:
    status, text = fetch(ruled.http, f"/v1/{path}", body, method)
    assert status >= 400, text
    assert json.loads(text)["error"] == "POLICY_VIOLATION"


def test_a_voter_backtests_rules_and_decides_past_requests_again(ruled: RealCluster, tmp_path: Path) -> None:
    (file := tmp_path / "rules.toml").write_text(f'[[rule]]\nname = "one"\ntopics = "{TOPIC}"\npartitions = 1\n')
    found = command("rules", "backtest", file, "--http", ruled.http)
    assert found.returncode == 1, found.stderr
    assert re.search(f"such as {TOPIC} at offset [0-9]+: rule 'one': partitions is 2, allowed is 1", found.stdout)
    again = command("rules", "redecide", "--http", ruled.http)
    assert (again.returncode, again.stdout[-14:]) == (0, ": 0 otherwise\n"), again
