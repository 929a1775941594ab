"""Clients in Java (4.4, 3.9 and 2.0), JavaScript (kafkajs) and Go (franz-go), each as a separate program."""

import json
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from tests.clients.seen import check, parse_output
from tests.support import tools
from tests.support.kafka_tools import kafka_tools, run_tools
from tests.support.real_brokers import until


@pytest.mark.parametrize("version", [tools.KAFKA_SERVER, tools.KAFKA_CLIENT_CONSUMER, tools.KAFKA_CLIENT_OLD])
def test_java_admin_client_manages_topics(version: str, bootstrap: str, topic: str) -> None:
    check(parse_output(kafka_tools(version).output("Scenario", bootstrap, topic)))


def kafkajs(script: str, bootstrap: str, topic: str) -> str:
    """Run a script; returns its output."""
    node, modules = tools.program("node"), tools.cached("kafkajs/node_modules")
    script = str(tools.ROOT / "tests/clients/kafkajs" / script)
    done = tools.run_quietly([node, script, bootstrap, topic], NODE_PATH=str(modules))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kafkajs_admin_client_manages_topics(bootstrap: str, topic: str) -> None:
    check(parse_output(kafkajs("scenario.js", bootstrap, topic)), message=False)


def test_kafkajs_uses_default_partitions_and_replication_factor(bootstrap: str, topic: str) -> None:
    counts = json.loads(kafkajs("defaults.js", bootstrap, topic))
    assert counts == {"partitions": 2, "factor": 1}, "num.partitions, default.replication.factor"


def test_franz_go_admin_client_manages_topics(bootstrap: str, topic: str) -> None:
    done = tools.run_quietly([tools.cached("franz/scenario"), bootstrap, topic])
    assert done.returncode == 0, done.stderr
    check(parse_output(done.stdout))


def test_kafka_topics_and_kafka_configs_manage_topics(bootstrap: str, topic: str) -> None:
    name, of_topic = ["--topic", topic], ["--entity-type", "topics", "--entity-name", topic]
    created, again, refused, forbidden, listed, described, altered, fewer, configured, configs, grown, deleted = (
        _run_tools(
            bootstrap,
            ["topics", "--create", *name, "--partitions", "3", "--replication-factor", "2"],
            ["topics", "--create", *name],
            ["topics", "--create", "--topic", f"{topic}-bad", "--config", "retention.ms=soon"],
            ["topics", "--create", "--topic", f"refused-{topic}"],
            ["topics", "--list"],
            ["topics", "--describe", *name],
            ["topics", "--alter", *name, "--partitions", "5"],
            ["topics", "--alter", *name, "--partitions", "4"],
            ["configs", "--alter", *of_topic, "--add-config", "retention.ms=7200000"],
            ["configs", "--describe", *of_topic],
            ["topics", "--describe", *name],
            ["topics", "--delete", *name],
        )
    )
    assert (created.code, created.lines[-1]) == (0, f"Created topic {topic}.")
    assert again.code == 1
    assert again.lines[0].startswith(f"Error while executing topic command : Topic '{topic}' already exists.")
    assert refused.code == 1
    assert "Invalid value soon for configuration retention.ms" in refused.lines[0]
    assert forbidden.code == 1
    assert forbidden.lines[0] == f"Error while executing topic command : no topic may be called refused-{topic}"
    assert topic in listed.lines
    assert "PartitionCount: 3\tReplicationFactor: 2" in described.lines[0]
    assert [_replicas(line) for line in described.lines[1:]] == [2, 2, 2]
    assert altered.code == 0, altered
    assert fewer.code == 1
    assert "would not be an increase" in fewer.lines[0]
    assert configured.lines[-1] == f"Completed updating config for topic {topic}."
    assert any(line.strip().startswith("retention.ms=7200000") for line in configs.lines)
    assert "PartitionCount: 5\tReplicationFactor: 2" in grown.lines[0]
    assert "retention.ms=7200000" in grown.lines[0]
    assert deleted.code == 0, deleted
    missing = f"Error while executing topic command : Topic '{topic}' does not exist as expected"

    def is_gone() -> bool:
        (described,) = _run_tools(bootstrap, ["topics", "--describe", *name])
        return described.lines[0] == missing

    until(is_gone, 60, "every broker of Kafka knows that the topic is deleted")


@pytest.mark.parametrize("bootstrap", ["kafka", "topicwright"], indirect=True)
def test_kafka_configs_alters_and_describes_broker_configs(bootstrap: str) -> None:
    brokers = ["--entity-type", "brokers"]
    of_all, of_one = [*brokers, "--entity-default"], [*brokers, "--entity-name", "1"]
    change = "log.cleaner.io.buffer.size=600000"
    set_, refused, shown, every, taken = _run_tools(
        bootstrap,
        ["configs", "--alter", *of_all, "--add-config", change],
        ["configs", "--alter", *of_all, "--add-config", "num.partitions=9"],
        ["configs", "--describe", *of_all],
        ["configs", "--describe", *of_one, "--all"],
        ["configs", "--alter", *of_all, "--delete-config", "log.cleaner.io.buffer.size"],
    )
    assert set_.lines[-1] == "Completed updating default config for brokers in the cluster."
    assert refused.code == 1
    assert any(line.strip().startswith(change) for line in shown.lines), shown
    assert any("DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.io.buffer.size=600000" in line for line in every.lines)
    assert len(every.lines) > 340
    assert taken.lines[-1] == "Completed updating default config for brokers in the cluster."


def _replicas(line: str) -> int:
    """The number of replicas in a line of `--describe`: ... Replicas: 1,2 Isr: 1,2."""
    words = line.split()
    return len(words[words.index("Replicas:") + 1].split(","))


class _Ran(NamedTuple):
    """Exit code of a tool, and its output without empty lines."""

    code: int
    lines: Sequence[str]


def _run_tools(bootstrap: str, *commands: Sequence[str]) -> list[_Ran]:
    ran = run_tools(bootstrap, *commands)
    return [_Ran(code, [line for line in output.splitlines() if line.strip()]) for code, output in ran]
