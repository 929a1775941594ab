"""Real clients authenticate by every protocol and mechanism, and the log has their principal. SCRAM's first answer does
not reveal, now or after a restart, whether a user exists."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from controller.cli.work.users import alter_offline, credential
from controller.settings.load import load_settings
from tests.security.service import PASSWORDS, PLAIN_PASSWORDS, Secured, shown_by_scram
from tests.support.processes import Process
from tests.support.tools import ROOT
from tests.support.topicwright import COMMAND, command

WAYS = [
    ("PLAINTEXT", "", "", "User:ANONYMOUS"),
    ("SSL", "", "", "User:CLIENT"),
    *(
        (protocol, mechanism, user, f"User:{user}")
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism, user in (("PLAIN", "carol"), ("SCRAM-SHA-256", "alice"), ("SCRAM-SHA-512", "bob"))
    ),
]
ALL_PASSWORDS = {**PASSWORDS, **PLAIN_PASSWORDS, "": ""}

ways = pytest.mark.parametrize(
    ("protocol", "mechanism", "user", "principal"), WAYS, ids=lambda value: value.replace("User:", "") or "-"
)


@ways
def test_confluent_kafka(
    service: Secured, topic: str, protocol: str, mechanism: str, user: str, principal: str
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient(service.client_properties(protocol, mechanism, user, ALL_PASSWORDS[user]))
    admin.create_topics([NewTopic(topic, 2)])[topic].result(30)
    brokers = {str(broker) for broker in admin.list_topics(topic, timeout=10).brokers.values()}
    assert all(service.addresses[protocol] in each for each in brokers), "the broker has the client's listener"
    assert service.creator_of(topic) == principal


@ways
def test_kafka_python(service: Secured, topic: str, protocol: str, mechanism: str, user: str, principal: str) -> None:
    from kafka.admin import KafkaAdminClient, NewTopic

    more = {}
    if protocol.endswith("SSL"):
        more = {"ssl_cafile": str(service.authority.file), "ssl_check_hostname": True}
    if protocol == "SSL":
        more |= {"ssl_certfile": str(service.client.certificate), "ssl_keyfile": str(service.client.key)}
    if mechanism:
        more |= {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": ALL_PASSWORDS[user]}
    admin = KafkaAdminClient(bootstrap_servers=service.addresses[protocol], security_protocol=protocol, **more)
    try:
        admin.create_topics([NewTopic(topic, 2, 1)])
    finally:
        admin.close()
    assert service.creator_of(topic) == principal


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "carol", "nobody"])
def test_a_wrong_password_fails_authentication(service: Secured, mechanism: str, user: str) -> None:
    from confluent_kafka.admin import AdminClient

    errors: list[str] = []
    properties = service.client_properties("SASL_SSL", mechanism, user, "wrong-PLANTED-5")
    more: dict[str, Any] = {"error_cb": lambda error: errors.append(error.str()), "reconnect.backoff.ms": 2000}
    admin = AdminClient({**properties, **more})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    deadline = time.monotonic() + 60
    while not any("SASL authentication error: Authentication failed" in each for each in errors):
        assert time.monotonic() < deadline, errors
        admin.poll(0.1)
    assert not any("PLANTED" in each for each in errors)


def test_users_command_without_credentials_reports_the_closed_connection(service: Secured) -> None:
    bootstrap = service.addresses["SASL_PLAINTEXT"]
    ended = command("users", "list", "--bootstrap", bootstrap)
    assert ended.returncode == 2
    assert f"topicwright: {bootstrap} closed the connection: " in ended.stderr
    assert "it may require a login or TLS" in ended.stderr


def test_users_command_tries_a_wrong_password_once(service: Secured, tmp_path: Path) -> None:
    properties = service.client_properties("SASL_PLAINTEXT", "SCRAM-SHA-512", "alice", "wrong-PLANTED-6")
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items() if key != "bootstrap.servers"))
    before = _logins(service, "SASL_PLAINTEXT")
    bootstrap = service.addresses["SASL_PLAINTEXT"]
    ended = command("users", "list", "--bootstrap", bootstrap, "--command-config", config)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"topicwright: {bootstrap} rejects the credentials: Authentication failed" in ended.stderr
    assert _logins(service, "SASL_PLAINTEXT") == before + 1


def _logins(service: Secured, listener: str) -> int:
    metrics = service.read("/metrics", service.bearer).decode()
    counts = re.findall(rf'^topicwright_logins_total\{{listener="{listener}",.*\}} (\S+)$', metrics, re.MULTILINE)
    return round(sum(map(float, counts)))


MECHANISM = "SCRAM-SHA-512"
NAMES = [f"nobody-{number}" for number in range(20)]


def _shown(folder: Path, *users: str) -> list[tuple[int, bytes]]:
    """Starts a service and returns the iterations and salts that it sends for users."""
    argv: list[str | Path] = [COMMAND, "serve", "--http", "127.0.0.1:0", "--data", folder / "data"]
    argv += ["--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "--set", "http.authentication=none"]
    with Process(argv, cwd=folder, env={"PYTHONPATH": str(ROOT)}) as process:
        address = process.wait_for_line(r"listeners=SASL_PLAINTEXT://(\S+)$", within_s=240)[1]
        return [shown_by_scram(address, MECHANISM, user) for user in users]


def test_scram_salts_of_unknown_users_resemble_known_and_survive_restarts(tmp_path: Path) -> None:
    iterations = 5000  # 4096 is the default
    alice = credential("alice", MECHANISM, "alice-PLANTED", iterations)
    assert alter_offline(tmp_path / "data", load_settings(), alice).error_code == 0
    first = _shown(tmp_path, "alice", *NAMES)
    assert {(count, len(salt)) for count, salt in first} == {(iterations, len(first[0][1]))}
    assert len(set(first)) == len(first)
    assert _shown(tmp_path, "alice", *NAMES) == first
