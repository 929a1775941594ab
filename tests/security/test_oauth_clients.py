"""Real clients log in by OAUTHBEARER with tokens of a real identity provider, also while it rotates its keys and after
their tokens expire."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from controller.brokers.cluster.link import ClusterLink
from controller.kafka.connections import ClusterUnreachable
from controller.kafka.messages.topics import CreatableTopic
from controller.serving.reach_cluster import security_in
from tests.clients.seen import check, parse_output
from tests.security.identity import CLIENT, SECRET, Provider, federated
from tests.security.service import Secured
from tests.support import tools

PRINCIPAL = f"User:{CLIENT}"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Provider, Secured]]:
    with federated(tmp_path_factory.mktemp("federated")) as running:
        yield running


@pytest.fixture
def provider(both: tuple[Provider, Secured]) -> Provider:
    return both[0]


@pytest.fixture
def service(both: tuple[Provider, Secured]) -> Secured:
    return both[1]


def librdkafka_properties(provider: Provider, service: Secured) -> dict[str, Any]:
    return {
        "bootstrap.servers": service.addresses["SASL_SSL"],
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(service.authority.file),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "traceId=123,team=payments",
    }


def test_librdkafka_logs_in(provider: Provider, service: Secured, topic: str) -> None:
    admin = AdminClient(librdkafka_properties(provider, service))
    admin.create_topics([NewTopic(topic, 2)])[topic].result(60)
    assert service.creator_of(topic) == PRINCIPAL


def test_http_accepts_the_same_tokens(provider: Provider, service: Secured) -> None:
    authorization = f"Bearer {provider.token()}"
    assert service.get("/v1/topics", authorization)["topics"] is not None
    with pytest.raises(HTTPError) as error:
        service.get("/v1/topics", authorization[:-5] + "AAAAA")
    assert error.value.code == 401
    assert json.load(error.value)["message"] == "invalid token: Signature verification failed"


async def test_own_connections_to_a_cluster_log_in_with_tokens(
    provider: Provider, service: Secured, topic: str, tmp_path: Path
) -> None:
    """The service stands for a cluster. Own connections get tokens, and new ones later."""
    provider.tell("lifetime 5")
    properties = {**librdkafka_properties(provider, service), "sasl.oauthbearer.extensions": ""}
    bootstrap, file = properties.pop("bootstrap.servers"), tmp_path / "cluster.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items() if value))
    before = _logins(service)
    link = ClusterLink(bootstrap, security_in(str(file)))
    try:
        assert await link.create([CreatableTopic(name=topic, num_partitions=1, replication_factor=1)]) == {topic: None}
        deadline = time.monotonic() + 120
        while _logins(service).get("succeeded", 0) < before.get("succeeded", 0) + 5:
            assert time.monotonic() < deadline
            assert topic in (await link.metadata([topic])).topics
            await asyncio.sleep(0.1)
    finally:
        link.close()
        provider.tell("lifetime 3600")
    file.write_text(file.read_text().replace("/token", "/nowhere"))
    link = ClusterLink(bootstrap, security_in(str(file)))
    with pytest.raises(ClusterUnreachable, match=r"no token from .*/nowhere: status 404, expected 200"):
        await link.metadata()
    link.close()


def test_java_logs_in(provider: Provider, service: Secured, topic: str, tmp_path: Path) -> None:
    oauth = "org.apache.kafka.common.security.oauthbearer"
    properties = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": service.authority.file,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{oauth}.OAuthBearerLoginModule required;",
        "sasl.login.callback.handler.class": f"{oauth}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.client.credentials.client.id": CLIENT,
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "sasl.oauthbearer.scope": "kafka",
    }
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    arguments: list[str | Path] = ["--bootstrap-server", service.addresses["SASL_SSL"], "--command-config", config]
    arguments += ["--create", "--topic", topic]
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.token_url}"
    tool = "org.apache.kafka.tools.TopicCommand"
    done = tools.run_quietly(tools.java_command(tools.server_classpath(), tool, *arguments, options=[allowed]))
    assert done.stdout.strip() == f"Created topic {topic}.", done.stderr
    assert service.creator_of(topic) == PRINCIPAL


def test_franz_go_logs_in(provider: Provider, service: Secured, topic: str) -> None:
    scenario = tools.cached("franz/scenario")
    done = tools.run_quietly([scenario, service.addresses["SASL_PLAINTEXT"], topic], KAFKA_TOKEN=provider.token())
    assert done.returncode == 0, done.stderr
    check(parse_output(done.stdout))
    assert service.creator_of(topic) == PRINCIPAL


def test_kafkajs_logs_in(provider: Provider, service: Secured, topic: str) -> None:
    bootstrap = service.addresses["SASL_SSL"].replace("127.0.0.1", "localhost")
    done = tools.run_quietly(
        [tools.program("node"), tools.ROOT / "tests/clients/kafkajs/scenario.js", bootstrap, topic],
        NODE_PATH=str(tools.cached("kafkajs/node_modules")),
        KAFKAJS_CONFIG=json.dumps({"ssl": {"ca": [service.authority.file.read_text()]}}),
        KAFKA_TOKEN=provider.token(),
    )
    assert done.returncode == 0, done.stderr
    check(parse_output(done.stdout), message=False)
    assert service.creator_of(topic) == PRINCIPAL


def _logins(service: Secured) -> dict[str, int]:
    """The number of logins by OAUTHBEARER, by outcome."""
    metrics = service.read("/metrics", service.bearer).decode()
    pattern = r'^topicwright_logins_total\{listener="[A-Z_]+",mechanism="OAUTHBEARER",outcome="(\w+)"\} (\S+)$'
    counts: dict[str, int] = {}
    for outcome, count in re.findall(pattern, metrics, re.MULTILINE):
        counts[outcome] = counts.get(outcome, 0) + round(float(count))
    return counts


def test_librdkafka_logs_in_again_before_its_token_expires(provider: Provider, service: Secured, topic: str) -> None:
    """KIP-368: the session ends with the token, although connections.max.reauth.ms is 0."""
    provider.tell("lifetime 30")  # a pause of up to 3 s of provider or service makes no login late
    try:
        errors: list[str] = []
        settings = {**librdkafka_properties(provider, service), "error_cb": lambda error: errors.append(str(error))}
        before, deadline = _logins(service), time.monotonic() + 120
        admin = AdminClient(settings)
        while _logins(service).get("succeeded", 0) < before.get("succeeded", 0) + 5:
            assert time.monotonic() < deadline, errors
            admin.list_topics(timeout=30)
            admin.poll(0.1)
        assert _logins(service).get("failed", 0) == before.get("failed", 0)
        assert errors == [], errors
    finally:
        provider.tell("lifetime 3600")


def test_no_login_fails_while_the_provider_rotates_its_keys(provider: Provider, service: Secured) -> None:
    ended, errors, logins = threading.Event(), list[str](), [0] * 4
    settings: dict[str, Any] = {
        **librdkafka_properties(provider, service),
        "error_cb": lambda error: errors.append(str(error)),
    }
    failed = _logins(service).get("failed", 0)

    def log_in(number: int) -> None:
        while not ended.is_set():
            AdminClient(settings).list_topics(timeout=60)
            logins[number] += 1

    clients = [threading.Thread(target=log_in, args=(number,)) for number in range(len(logins))]
    for client in clients:
        client.start()
    try:
        for _ in range(5):
            provider.tell("rotate")
            enough = [count + 2 for count in logins]
            deadline = time.monotonic() + 120
            while any(now < then for now, then in zip(logins, enough, strict=True)):
                assert time.monotonic() < deadline, (logins, errors)
                time.sleep(0.01)
    finally:
        ended.set()
        for client in clients:
            client.join()
    assert errors == []
    assert _logins(service).get("failed", 0) == failed
    assert service.process.output.count("jwks_changed") >= 6
