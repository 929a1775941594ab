"""Authentication at the target cluster with librdkafka properties."""

import json
import re
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jwt
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not export these
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from controller.brokers.cluster.link import ClusterLink
from controller.kafka.connections import BadCredentials, NotAuthenticated, security_of
from controller.kafka.messages.topics import CreatableTopic
from controller.serving.reach_cluster import client_properties
from controller.settings.load import SettingsError
from tests.support.reference_kafka import ReferenceKafka, reference_kafka
from tests.support.stream import stream

PLAIN = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "tw",
    "sasl.password": "s3cret,=",
}
_JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="b" '
    'user_broker="b" user_tw="s3cret,=";'
)
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_OAUTH = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";'
)
BROKER: dict[str, Any] = {
    "listener_security_protocol_map": "BROKER:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "sasl_mechanism_inter_broker_protocol": "PLAIN",
    "listener_name_broker_plain_sasl_jaas_config": _JAAS,
    "listener_name_broker_scram-sha-256_sasl_jaas_config": _SCRAM,
    "listener_name_broker_scram-sha-512_sasl_jaas_config": _SCRAM,
    "listener_name_broker_oauthbearer_sasl_jaas_config": _OAUTH,
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceKafka]:
    """A broker that requires SASL, with user `tw` for all three mechanisms."""
    with reference_kafka(tmp_path_factory.mktemp("guarded") / "kafka", nodes=1, **BROKER) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **PLAIN})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            known = UserScramCredentialUpsertion("tw", info, PLAIN["sasl.password"].encode())
            admin.alter_user_scram_credentials([known])["tw"].result(30)
        yield kafka


@pytest.fixture(scope="module")
def oidc() -> Iterator[dict[str, str]]:
    """Properties with a token endpoint whose tokens, without a signature, this broker accepts."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            now_s = time.time()
            token = jwt.encode({"sub": "tw", "iat": now_s, "exp": now_s + 600}, "", "none")
            body = json.dumps({"access_token": token, "expires_in": 600, "token_type": "Bearer"}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "tw",
            "sasl.oauthbearer.client.secret": "s3cret",
            "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{server.server_port}/token",
        }
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_own_connections_authenticate(mechanism: str, guarded: ReferenceKafka) -> None:
    link = ClusterLink(guarded.bootstrap, security_of({**PLAIN, "sasl.mechanism": mechanism}))
    try:
        name = f"by-{mechanism.lower()}"
        assert await link.create([CreatableTopic(name=name, num_partitions=1, replication_factor=1)]) == {name: None}
        assert [broker.node_id for broker in (await link.metadata([name])).brokers] == [1]
    finally:
        link.close()


@pytest.mark.parametrize(
    ("driver", "mechanism"),
    [("plain", "PLAIN"), ("faust", "SCRAM-SHA-256"), ("plain", "OAUTHBEARER"), ("faust", "OAUTHBEARER")],
)
def test_workers_and_gateways_authenticate(
    driver: str, mechanism: str, guarded: ReferenceKafka, oidc: dict[str, str], tmp_path: Path
) -> None:
    file, name = tmp_path / "client.properties", f"through-{driver}-{mechanism}"
    properties = {**PLAIN, "sasl.mechanism": mechanism, **(oidc if mechanism == "OAUTHBEARER" else {})}
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    at: dict[str, Any] = {"brokers": "cluster", "driver": driver, "properties": file}
    with stream(tmp_path / "s", guarded.bootstrap, f"log-{driver}-{mechanism}", **at) as running:
        gateway = AdminClient({"bootstrap.servers": running.gateways[0].kafka})
        gateway.create_topics([NewTopic(name, 1, 1)], operation_timeout=20)[name].result(30)
        there = AdminClient({"bootstrap.servers": guarded.bootstrap, **PLAIN})
        assert name in there.list_topics(timeout=10).topics


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_wrong_password_at_the_target_cluster_is_reported(mechanism: str, guarded: ReferenceKafka) -> None:
    properties = {**PLAIN, "sasl.mechanism": mechanism, "sasl.password": "wrong"}
    link = ClusterLink(guarded.bootstrap, security_of(properties))
    try:
        with pytest.raises(NotAuthenticated, match="rejects the credentials: Authentication failed"):
            await link.metadata()
    finally:
        link.close()


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"security.protocol": "kerberos"}, "security.protocol=kerberos is not allowed; allowed: plaintext, ssl"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI is not supported; allowed: PLAIN, SCRAM-SHA-256"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER with sasl.oauthbearer.method= is not supported; allowed: P"),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"},
            "sasl.oauthbearer.client.id is missing; OAUTHBEARER needs it",
        ),
        ({"sasl.password": ""}, "sasl.password is missing; PLAIN needs it"),
    ],
)
def test_invalid_connection_properties_are_rejected(changed: dict[str, str], error: str) -> None:
    with pytest.raises(BadCredentials) as bad:
        security_of({**PLAIN, **changed})
    assert error in str(bad.value)


CHALLENGES = [
    (
        "r={nonce}x,s=c2FsdA==,i=2000000000",
        "the broker requires 2000000000 iterations of SCRAM; allowed, as in Kafka: 4096",
    ),
    ("r={nonce}x,s=c2FsdA==,i=1", "the broker requires 1 iterations of SCRAM"),
    ("r={nonce}x,s=c2FsdA==,i=99999999999999999999", "the broker's SCRAM message is 'r="),
    ("r={nonce}x,s=c2FsdA==,i=-4096", "the broker's SCRAM message is 'r="),
    ("r={nonce}x,s=%%%,i=4096", "the broker's SCRAM message is 'r="),
    ("r={nonce},s=c2FsdA==,i=4096", "the broker's SCRAM message is 'r="),
    ("r=other,s=c2FsdA==,i=4096", "the broker's SCRAM message is 'r=other"),
    ("e=unknown-user", "the broker's SCRAM message is 'e=unknown-user'"),
    ("nothing", "the broker's SCRAM message is 'nothing'"),
    ("\udcff", "the broker's SCRAM message is not UTF-8"),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("challenge", "error"), CHALLENGES)
async def test_scram_messages_of_a_fake_broker_are_rejected(challenge: str, error: str) -> None:
    sent: list[bytes] = []

    async def broker(token: bytes) -> bytes:
        sent.append(token)
        nonce = token.decode().rpartition("r=")[2]
        return challenge.format(nonce=nonce).encode(errors="surrogateescape")

    security = security_of({**PLAIN, "sasl.mechanism": "SCRAM-SHA-256"})
    with pytest.raises(NotAuthenticated, match=re.escape(error)):
        await security.authenticate(broker)
    assert len(sent) == 1, "nothing derived from the password may be sent"


def test_a_missing_tls_certificate_is_reported() -> None:
    security = security_of({"security.protocol": "ssl", "ssl.ca.location": "/nowhere/ca.pem"})
    with pytest.raises(BadCredentials, match="invalid TLS files for the cluster"):
        security.context()


def test_cluster_properties_are_read_from_a_file(tmp_path: Any) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol = ssl\n# comment\nssl.ca.location=/ca.pem\n")
    assert client_properties(str(file)) == {"security.protocol": "ssl", "ssl.ca.location": "/ca.pem"}
    file.write_text("bootstrap.servers=elsewhere:9092\n")
    with pytest.raises(SettingsError, match=r"must not have bootstrap\.servers"):
        client_properties(str(file))
