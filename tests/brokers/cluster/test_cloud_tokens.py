"""Logins at Amazon MSK and Google's Kafka: the signers of the clouds, and a listener that gets their tokens."""

import asyncio
import base64
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from controller.kafka.handling import RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.clients import NodeEndpoint
from controller.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)
from controller.kafka.sasl import Bearer
from controller.kafka.sasl_gate import SaslRules
from controller.serving.reach_cluster import reach_as, security_in
from controller.settings.load import SettingsError
from events.errors import MissingExtra
from projections.replay.log.kafka_ref import TopicReader, kafka_topic
from projections.replay.outcome import ReplayError
from tests.kafka.sasl_users import MECHANISMS, MemoryUsers
from tests.kafka.server.listener import serving
from tests.support import tools

LOGIN = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}
AWS = {**LOGIN, "sasl.oauthbearer.method": "aws_msk_iam", "sasl.oauthbearer.config": "region=eu-west-1"}
GOOGLE = {**LOGIN, "sasl.oauthbearer.method": "google"}
ACCOUNT = "topicwright@project.example"
AUDIENCE = "https://oauth2.googleapis.com/token"  # of google-auth, also for another endpoint


def signer(name: str) -> Any:
    """The package of an extra; skips or fails the test if it is missing."""
    try:
        return __import__(name, fromlist=["*"])
    except ImportError:
        tools.absent(name, "run `make env`")


class _Broker(MemoryUsers):
    """A listener that accepts every token, and creates any topic."""

    def __init__(self) -> None:
        super().__init__({})
        self.tokens: list[str] = []

    async def bearer(self, token: str, address: str) -> Bearer:
        self.tokens.append(token)
        return Bearer("somebody", time.time() + 900)

    def metadata(self, context: RequestContext, _: MetadataRequest) -> MetadataResponse:
        own = NodeEndpoint(node_id=1, host=self.address[0], port=self.address[1])
        return MetadataResponse(brokers=(own,), cluster_id="c", controller_id=1)

    @staticmethod
    def create(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=tuple(CreatableTopicResult(name=each.name) for each in request.topics))

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        handlers: Any = {ApiKey.METADATA: self.metadata, ApiKey.CREATE_TOPICS: self.create}
        rules = SaslRules(mechanisms=MECHANISMS, users=self, now=time.time)
        async with serving(handlers, sasl=rules) as server:
            self.address = "127.0.0.1", server.port
            yield f"127.0.0.1:{server.port}"


def _file(folder: Path, properties: dict[str, str]) -> str:
    file = folder / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(file)


async def _tokens(folder: Path, properties: dict[str, str]) -> list[str]:
    """The tokens that a listener gets from our own connections."""
    broker = _Broker()
    async with broker.listening() as bootstrap:
        link = await reach_as(security_in(_file(folder, properties)), bootstrap)
        try:
            assert await link.create([CreatableTopic(name="t")]) == {"t": None}
        finally:
            link.close()
    return broker.tokens


@pytest.fixture
def aws_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for key in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(key, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDPLANTED")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-PLANTED-9")


async def test_the_token_of_aws_arrives_byte_for_byte(
    aws_credentials: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, signed = signer("aws_msk_iam_sasl_signer.MSKAuthTokenProvider"), list[tuple[str, str]]()
    generate = provider.generate_auth_token

    def recorded(region: str) -> tuple[str, int]:
        token, expires_ms = generate(region)
        assert 800 < expires_ms / 1000 - time.time() <= 900
        signed.append((region, token))
        return token, expires_ms

    monkeypatch.setattr(provider, "generate_auth_token", recorded)
    tokens = await _tokens(tmp_path, AWS)
    assert {region for region, _ in signed} == {"eu-west-1"}
    assert tokens
    assert set(tokens) <= {token for _, token in signed}, "the one signed to check the settings is never sent"
    url = urlsplit(base64.urlsafe_b64decode(tokens[0] + "=" * (-len(tokens[0]) % 4)).decode())
    asked = {key: value for key, [value] in parse_qs(url.query).items()}
    assert (url.hostname, asked["Action"]) == ("kafka.eu-west-1.amazonaws.com", "kafka-cluster:Connect")
    assert asked["X-Amz-Credential"].startswith("AKIDPLANTED/")
    assert "/eu-west-1/kafka-cluster/" in asked["X-Amz-Credential"]
    assert "secret-PLANTED-9" not in url.query


async def test_librdkafka_and_own_connections_renew_their_tokens(
    aws_credentials: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, signed = signer("aws_msk_iam_sasl_signer.MSKAuthTokenProvider"), list[str]()
    generate = provider.generate_auth_token

    def short(region: str) -> tuple[str, int]:
        signed.append(f"{generate(region)[0]}{len(signed)}")
        return signed[-1], int((time.time() + 2) * 1000)

    monkeypatch.setattr(provider, "generate_auth_token", short)
    broker = _Broker()
    async with broker.listening() as bootstrap:
        link = await reach_as(security_in(_file(tmp_path, AWS)), bootstrap)
        try:
            client, before = AdminClient({**link.security.properties, "bootstrap.servers": bootstrap}), len(signed)
            async with asyncio.timeout(240):
                while len(signed) < before + 3:  # noqa: ASYNC110 - librdkafka calls it in a thread of its own
                    await asyncio.sleep(0.05)
                assert link.security.token is not None
                assert await link.security.token() in signed[before:]
            assert (await asyncio.to_thread(client.list_topics, timeout=60)).cluster_id == "c"
            assert await link.create([CreatableTopic(name="t")]) == {"t": None}
        finally:
            link.close()


@contextmanager
def _google(folder: Path) -> Iterator[tuple[Path, list[Any]]]:
    """The file with the key of a service account, and the signed claims that its token endpoint got."""
    key, claims = rsa.generate_private_key(public_exponent=65537, key_size=2048), list[Any]()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
            claims.append(jwt.decode(form["assertion"][0], key.public_key(), ["RS256"], audience=AUDIENCE))
            body = json.dumps({"access_token": f"ya29.PLANTED-{len(claims)}", "expires_in": 3600}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        url = f"http://127.0.0.1:{server.server_port}/token"
        file = folder / "account.json"
        account = {"type": "service_account", "client_email": ACCOUNT, "token_uri": url, "private_key": pem.decode()}
        file.write_text(json.dumps(account))
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield file, claims
        finally:
            server.shutdown()
            thread.join()


async def test_the_token_of_google_is_that_of_the_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer("google.auth")
    with _google(tmp_path) as (file, signed):
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        tokens = await _tokens(tmp_path, GOOGLE)
    assert signed
    assert all(each["iss"] == ACCOUNT and each["scope"].endswith("/cloud-platform") for each in signed)
    for token in tokens:
        header, claims, access = (base64.urlsafe_b64decode(part + "==") for part in token.split("."))
        assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
        about = json.loads(claims)
        assert (about["sub"], about["iss"], about["scope"]) == (ACCOUNT, "Google", "kafka")
        assert 3500 < about["exp"] - about["iat"] <= 3600
        assert access.startswith(b"ya29.PLANTED-")


@pytest.mark.parametrize("config", ["", "eu-west-1", "region=", "region=a.b/", "region=EU", "region=a region=b"])
def test_a_region_is_required_and_checked(config: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="must be region=REGION, the region of the cluster in AWS"):
        security_in(_file(tmp_path, {**AWS, "sasl.oauthbearer.config": config}))
    properties = tuple({**AWS, "sasl.oauthbearer.config": config}.items())
    with pytest.raises(ReplayError, match="must be region=REGION"):
        TopicReader(kafka_topic("kafka://127.0.0.1:1/t", properties))


@pytest.mark.parametrize(
    ("properties", "package", "extra"), [(AWS, "aws_msk_iam_sasl_signer", "aws"), (GOOGLE, "google.auth", "google")]
)
def test_a_missing_extra_is_named(
    properties: dict[str, str], package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"needs {package}, which is not installed: .*topicwright\[{extra}\]"):
        security_in(_file(tmp_path, properties))


def test_missing_credentials_of_aws_are_reported(
    aws_credentials: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer("aws_msk_iam_sasl_signer")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    why = "no token by sasl.oauthbearer.method=aws_msk_iam: no credentials of AWS in the environment, "
    with pytest.raises(SettingsError, match=why):
        security_in(_file(tmp_path, AWS))
    with pytest.raises(ReplayError, match=why):
        TopicReader(kafka_topic("kafka://127.0.0.1:1/t", tuple(AWS.items())))


async def test_an_unknown_property_is_reported(tmp_path: Path) -> None:
    security = security_in(_file(tmp_path, {"foo": "bar"}))
    with pytest.raises(SettingsError, match='No such configuration property: "foo"'):
        await reach_as(security, "127.0.0.1:1")
