"""TLS: principals of client certificates, reloaded files, and failed handshakes."""

import asyncio
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from structlog.testing import capture_logs

from controller.kafka.messages import ApiKey
from controller.kafka.server.server import KafkaServer, Limits
from controller.kafka.server.tls import NoRuleApplies, PrincipalRules, Tls, TlsError, distinguished_name
from tests.kafka.server.listener import Client, Seen, metadata_request, on_each_loop, serving, until
from tests.security.certificates import Authority, Files, common_name, name

NAMES = [
    (common_name("alice"), "CN=alice,O=Example"),
    (name((NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATIONAL_UNIT_NAME, "a,b+c")), r"OU=a\,b\+c,C=DE"),
    (name((NameOID.COMMON_NAME, "#1 "), (NameOID.USER_ID, "u")), r"UID=u,CN=\#1\ "),
    (name((NameOID.COMMON_NAME, 'q"\\<>;')), 'CN=q\\"\\\\\\<\\>\\;'),
    (name((NameOID.COMMON_NAME, "a\0b")), r"CN=a\00b"),
    (name((NameOID.EMAIL_ADDRESS, "a@b")), "1.2.840.113549.1.9.1=#1603614062"),
]


@pytest.mark.parametrize(("subject", "expected"), NAMES, ids=[expected for _, expected in NAMES])
def test_distinguished_names_are_formatted_as_by_java(subject: x509.Name, expected: str) -> None:
    assert distinguished_name(subject) == expected


RULES = """
DEFAULT                                              | CN=a,O=b       | CN=a,O=b
RULE:^CN=(.*?),O=.*$/$1/                             | CN=Alice,O=b   | Alice
RULE:^CN=(.*?),O=.*$/$1/L                            | CN=Alice,O=b   | alice
RULE:^CN=(.*?),O=(.*)$/$1@$2/U                       | CN=Alice,O=b   | ALICE@B
RULE:^OU=(.*?)$/$1/,RULE:^CN=(.*?),O=b$/$1-x/        | CN=a,O=b       | a-x
RULE:^OU=(.*?)$/$1/,DEFAULT                          | CN=a,O=b       | CN=a,O=b
RULE:^CN=(.*?),O=b$/$1$4/                            | CN=a,O=b       | a$4
RULE:^CN=([^,]*),.*$/$12/                            | CN=a,O=b       | a2
"""


@pytest.mark.parametrize("line", RULES.strip().splitlines())
def test_principal_mapping_rules_map_distinguished_names(line: str) -> None:
    rules, distinguished, expected = (cell.strip() for cell in line.split("|"))
    assert PrincipalRules(rules).name_of(distinguished) == expected


def test_no_matching_principal_mapping_rule_is_an_error() -> None:
    with pytest.raises(NoRuleApplies, match=r"no rule of ssl\.principal\.mapping\.rules applies to CN=a"):
        PrincipalRules("RULE:^OU=(.*)$/$1/").name_of("CN=a")


@pytest.mark.parametrize("text", ["RULE:a", "nonsense", "RULE:(/x/", "DEFAULT DEFAULT"])
def test_invalid_principal_mapping_rules_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"no rule at|not a regular expression"):
        PrincipalRules(text)


# Files.


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls_of(files: Files, **more: Any) -> Tls:
    return Tls(keystore=files.keystore, **more)


def test_unusable_tls_files_are_rejected(authority: Authority, tmp_path: Path) -> None:
    server, locked = authority.issue("server"), authority.issue("locked", password="right-PLANTED")
    mixed = tmp_path / "mixed.pem"
    mixed.write_bytes(locked.certificate.read_bytes() + server.key.read_bytes())
    wrong = [
        (
            partial(Tls, keystore=tmp_path / "none.pem"),
            "ssl.keystore.location=.*none.pem: cannot be read: No such file",
        ),
        (partial(Tls, keystore=authority.file), "must hold a private key and its certificate"),
        (partial(Tls, keystore=mixed), "the private key is not that of the certificate"),
        (partial(tls_of, locked), "encrypted, and ssl.key.password does not open it"),
        (partial(tls_of, locked, key_password="wrong-PLANTED"), "encrypted, and ssl.key.password does not open it"),
        (partial(tls_of, server, client_auth="required"), "ssl.client.auth=required needs ssl.truststore.location"),
        (partial(tls_of, server, client_auth="required", truststore=server.key), "must hold certificates in PEM"),
    ]
    for requested, message in wrong:
        with pytest.raises(TlsError, match=message) as raised:
            requested()
        assert "PLANTED" not in str(raised.value)
    assert tls_of(locked, key_password="right-PLANTED").context is not None


# Connections.


HANDLERS = {ApiKey.METADATA: Seen()}
REQUEST = metadata_request(1)
"""Encoded before any test, because loading the schema takes seconds on a busy machine."""


def context_of(authority: Authority, identity: Files | None = None) -> ssl.SSLContext:
    """A client context that trusts the authority, with an optional client certificate."""
    context = ssl.create_default_context(cafile=authority.file)
    if identity is not None:
        context.load_cert_chain(identity.keystore)
    return context


async def speak(server: KafkaServer, context: ssl.SSLContext | None) -> None:
    """Send a request and wait for the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    try:
        writer.write(REQUEST)
        await reader.readexactly(4)
    finally:
        writer.close()


async def refused(server: KafkaServer, context: ssl.SSLContext | None) -> None:
    """The server rejects the client. With TLS 1.3 a client may notice this only when it reads."""
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await speak(server, context)


@on_each_loop
async def test_the_principal_is_that_of_the_client_certificate(authority: Authority) -> None:
    tls = tls_of(authority.issue("server"), client_auth="requested", truststore=authority.file)
    client = authority.issue("client")
    seen = Seen()
    async with serving({ApiKey.METADATA: seen}, tls=tls) as server:
        await speak(server, context_of(authority, client))
        await speak(server, context_of(authority))
    assert seen.principals == ["User:CN=client,O=Example", "User:ANONYMOUS"]


@on_each_loop
async def test_many_large_requests_are_answered_over_tls(authority: Authority) -> None:
    tls = tls_of(authority.issue("server"))
    async with serving(HANDLERS, tls=tls) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context_of(authority))
        client = Client(reader, writer)
        client.send(*(metadata_request(number, "x" * 20_000) for number in range(200)))
        assert await client.correlation_ids(200) == list(range(200))
        writer.close()


@on_each_loop
async def test_failed_handshakes_are_logged(authority: Authority, tmp_path: Path) -> None:
    tls = tls_of(authority.issue("server"), client_auth="required", truststore=authority.file)
    other = tmp_path / "other"
    other.mkdir()
    stranger = Authority(other).issue("stranger")
    seen = Seen()
    async with serving({ApiKey.METADATA: seen}, tls=tls) as server:
        with capture_logs() as lines:
            await refused(server, context_of(authority))
            await refused(server, context_of(authority, stranger))
            await refused(server, None)
            await until(lambda: len(lines) >= 3)
        reasons = [line["reason"] for line in lines]
        assert reasons[0] == "peer did not return a certificate"
        assert reasons[1].startswith("the client's certificate was rejected: ")
        assert {line["event"] for line in lines} == {"tls_handshake_failed"}
        assert server.connections == 0
        assert not server.handshakes
    assert seen.principals == []


@on_each_loop
async def test_tls_handshake_timeout_disconnects(authority: Authority) -> None:
    tls = tls_of(authority.issue("server"))
    async with serving(HANDLERS, tls=tls, limits=Limits(authentication_ms_max=100)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        writer.close()


@on_each_loop
async def test_tls_reload_applies_to_new_connections(tmp_path: Path) -> None:
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder in folders:
        folder.mkdir()
    old, new = (Authority(folder) for folder in folders)
    old_server, old_client = old.issue("server"), old.issue("client")
    truststore = tmp_path / "trust.pem"
    truststore.write_bytes(old.file.read_bytes())
    tls = tls_of(old_server, client_auth="required", truststore=truststore)
    async with serving(HANDLERS, tls=tls) as server:
        context = context_of(old, old_client)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        living = Client(reader, writer)
        living.send(metadata_request(1))
        await living.receive()
        old_server.keystore.write_bytes(new.issue("server").keystore.read_bytes())
        truststore.write_bytes(new.file.read_bytes())
        tls.reload()
        living.send(metadata_request(2))
        assert await living.correlation_ids(1) == [2], "existing connections stay open"
        writer.close()
        await refused(server, context)
        both = context_of(new, new.issue("client"))
        await speak(server, both)
        both.load_cert_chain(old_client.keystore)
        await refused(server, both)


def test_a_failed_tls_reload_retains_the_context(authority: Authority) -> None:
    files = authority.issue("server")
    tls = tls_of(files)
    before = tls.context
    files.keystore.write_text("nonsense")
    with pytest.raises(TlsError, match="must hold a private key"):
        tls.reload()
    assert tls.context is before
