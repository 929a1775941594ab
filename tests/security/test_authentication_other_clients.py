"""Kafka's Java tools and kafkajs authenticate by TLS and SASL, and kafka-configs manages SCRAM users."""

import json
from pathlib import Path

import pytest

from tests.clients.seen import check, parse_output
from tests.security.service import PASSWORDS, PLAIN_PASSWORDS, Secured
from tests.support import tools
from tests.support.kafka_tools import run_tools

MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM": "scram.ScramLoginModule"}


def java_properties(
    service: Secured, folder: Path, protocol: str, mechanism: str = "", user: str = "", password: str = ""
) -> Path:
    """A properties file for --command-config of Kafka's tools."""
    said = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        said |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(service.authority.file)}
    if protocol == "SSL":
        said |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(service.client.keystore)}
    if mechanism:
        module = f"org.apache.kafka.common.security.{MODULES[mechanism.partition('-')[0]]}"
        said["sasl.mechanism"] = mechanism
        said["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
    path = folder / f"{protocol}-{mechanism}-{user}.properties"
    path.write_text("".join(f"{key}={text}\n" for key, text in said.items()), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("protocol", "mechanism", "user", "principal"),
    [
        ("SSL", "", "", "User:CLIENT"),
        ("SASL_PLAINTEXT", "PLAIN", "carol", "User:carol"),
        ("SASL_SSL", "SCRAM-SHA-256", "alice", "User:alice"),
    ],
)
def test_kafka_topics_authenticates_over_tls_and_sasl(
    service: Secured, topic: str, tmp_path: Path, protocol: str, mechanism: str, user: str, principal: str
) -> None:
    password = {**PASSWORDS, **PLAIN_PASSWORDS, "": ""}[user]
    config = java_properties(service, tmp_path, protocol, mechanism, user, password)
    (created,) = run_tools(
        service.addresses[protocol], ["topics", "--command-config", config, "--create", "--topic", topic]
    )
    assert created == (0, f"Created topic {topic}.")
    assert service.creator_of(topic) == principal


def test_kafka_configs_manages_scram_users(service: Secured, topic: str, tmp_path: Path) -> None:
    alice = java_properties(service, tmp_path, "SASL_SSL", "SCRAM-SHA-512", "alice", PASSWORDS["alice"])
    secret = "dave-PLANTED-6"
    service.secrets.append(secret)
    dave = java_properties(service, tmp_path, "SASL_SSL", "SCRAM-SHA-512", "dave", secret)
    users = ["--entity-type", "users", "--entity-name", "dave"]
    configs: list[str | Path] = ["configs", "--command-config", alice]
    added, described, came, removed, gone = run_tools(
        service.addresses["SASL_SSL"],
        [*configs, "--alter", *users, "--add-config", f"SCRAM-SHA-512=[iterations=8192,password={secret}]"],
        [*configs, "--describe", *users],
        ["topics", "--command-config", dave, "--create", "--topic", topic],
        [*configs, "--alter", *users, "--delete-config", "SCRAM-SHA-512"],
        [*configs, "--describe", *users],
    )
    assert added == (0, "Completed updating config for user dave.")
    assert "SCRAM credential configs for user-principal 'dave' are SCRAM-SHA-512=iterations=8192" in described[1]
    assert came == (0, f"Created topic {topic}.")
    assert service.creator_of(topic) == "User:dave"
    assert removed[0] == 0
    assert "SCRAM-SHA-512" not in gone[1]


def test_kafkajs_authenticates_over_tls_and_sasl(service: Secured, topic: str) -> None:
    node = tools.program("node")
    modules = tools.cached("kafkajs/node_modules")
    sasl = {"mechanism": "scram-sha-512", "username": "alice", "password": PASSWORDS["alice"]}
    config = {"ssl": {"ca": [service.authority.file.read_text()]}, "sasl": sasl}
    script = tools.ROOT / "tests/clients/kafkajs/scenario.js"
    bootstrap = service.addresses["SASL_SSL"].replace("127.0.0.1", "localhost")
    done = tools.run_quietly(
        [node, script, bootstrap, topic], NODE_PATH=str(modules), KAFKAJS_CONFIG=json.dumps(config)
    )
    assert done.returncode == 0, done.stderr
    check(parse_output(done.stdout), message=False)
    assert service.creator_of(topic) == "User:alice"
