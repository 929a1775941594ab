"""Listeners: what settings can get wrong is reported before anything listens, and SIGHUP reads files again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from controller.access.users_file import set_password
from controller.serving.listeners import http_logs_in, http_tls, plan
from controller.settings.load import ServeSettings, SettingsError, load_settings
from events.catalog import Endpoint
from tests.security.certificates import Authority
from tests.security.service import Secured, secured
from tests.support.wire import Wire

DEFAULT = Endpoint("PLAINTEXT", "127.0.0.1", 9092)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files that settings can name."""
    folder = tmp_path_factory.mktemp("files")
    authority = Authority(folder)
    users = folder / "users"
    users.write_text("")
    return {"KEYSTORE": str(authority.issue("server").keystore), "CA": str(authority.file), "USERS": str(users)}


def loaded(text: str, files: dict[str, str]) -> ServeSettings:
    """Settings from words."""
    for name, path in files.items():
        text = text.replace(name, path)
    return load_settings(overrides=text.split())


WRONG = """
listeners=IN://a:1 | listener IN has no protocol: set IN:PROTOCOL in listener.security.protocol.map
listeners=SSL://a:1 | listener SSL speaks SSL, which needs ssl.keystore.location
listeners=SASL_SSL://a:1 | listener SASL_SSL speaks SASL_SSL, which needs ssl.keystore.location
listeners=SSL://a:1 ssl.keystore.location=/no/such | ssl.keystore.location=/no/such: cannot be read: No such file
listeners=SSL://a:1 ssl.keystore.location=CA | it must hold a private key and its certificate
listeners=SSL://a:1 ssl.keystore.location=KEYSTORE ssl.client.auth=required | needs ssl.truststore.location
listeners=SASL_PLAINTEXT://a:1 sasl.enabled.mechanisms=PLAIN | sasl.enabled.mechanisms has PLAIN, which needs users.file
advertised.listeners=SSL://a:1 | advertised.listeners=SSL: there is no such listener; listeners: PLAINTEXT
listener.name.in.ssl.client.auth=none | setting listener.name.in: there is no such listener; listeners: PLAINTEXT
listeners=A://a:1,B://a:2 simulated.broker.listeners=true | simulated.broker.listeners=true needs a single listener
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_listeners_that_cannot_be(line: str, files: dict[str, str]) -> None:
    text, message = (cell.strip() for cell in line.split("|"))
    with pytest.raises(SettingsError) as raised:
        plan(loaded(text, files), DEFAULT)
    assert message in str(raised.value)


def test_without_listeners_there_is_the_default_one(files: dict[str, str]) -> None:
    (only,) = plan(loaded("num.partitions=2", files), DEFAULT)
    assert (only.endpoint, only.protocol, only.tls, only.logs_in) == (DEFAULT, "PLAINTEXT", None, False)


def test_a_listener_of_any_name(files: dict[str, str]) -> None:
    text = (
        "listeners=inside://a:1,outside://b:2 listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL "
        "listener.name.outside.ssl.keystore.location=KEYSTORE"
    )
    inside, outside = plan(loaded(text, files), DEFAULT)
    assert (inside.endpoint.name, inside.protocol, inside.tls) == ("INSIDE", "PLAINTEXT", None)
    assert (outside.endpoint.name, outside.protocol, outside.logs_in) == ("OUTSIDE", "SASL_SSL", True)
    assert outside.tls is not None


def test_certificates_of_clients_that_log_in_are_requested_by_name_only(files: dict[str, str]) -> None:
    text = (
        "listeners=SSL://a:1,SASL_SSL://b:2 ssl.keystore.location=KEYSTORE ssl.truststore.location=CA "
        "ssl.client.auth=required"
    )
    auths = [each.tls.settings.client_auth for each in plan(loaded(text, files), DEFAULT) if each.tls is not None]
    assert auths == ["required", "none"], "as KIP-684 has it"
    more = text + " listener.name.sasl_ssl.ssl.client.auth=requested"
    auths = [each.tls.settings.client_auth for each in plan(loaded(more, files), DEFAULT) if each.tls is not None]
    assert auths == ["required", "requested"]


HTTP = """
num.partitions=1                                       | False
users.file=USERS                                       | True
listeners=SASL_PLAINTEXT://a:1                         | True
listeners=SASL_PLAINTEXT://a:1 http.authentication=none | False
http.authentication=required                           | True
"""


@pytest.mark.parametrize("line", HTTP.strip().splitlines())
def test_whether_http_clients_log_in(line: str, files: dict[str, str]) -> None:
    text, expected = (cell.strip() for cell in line.split("|"))
    settings = loaded(text, files)
    assert str(http_logs_in(settings, plan(settings, DEFAULT))) == expected


def test_http_on_tls_needs_a_key(files: dict[str, str]) -> None:
    assert http_tls(loaded("num.partitions=1", files)) is None
    with pytest.raises(SettingsError, match=r"http\.security\.protocol=SSL needs ssl\.keystore\.location"):
        http_tls(loaded("http.security.protocol=SSL", files))


# SIGHUP.


def _reload(service: Secured, *events: str) -> None:
    service.process.popen.send_signal(signal.SIGHUP)
    for event in events:
        service.process.wait_for_line(event, within_s=240)


def test_sighup_reads_users_and_certificates_again(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient

    with (
        secured(tmp_path) as service,  # librdkafka is free to connect anew, which would say nothing of who is connected
        Wire(service.addresses["SASL_SSL"], authority=service.authority.file) as living,
    ):
        living.log_in("carol", "carol-PLANTED-3")
        set_password(service.users_file, "frank", "frank-secret")
        folder = tmp_path / "new"
        folder.mkdir()
        new = Authority(folder)
        service.server.keystore.write_bytes(new.issue("server", password="key-PLANTED-4").keystore.read_bytes())
        _reload(service, '"event":"reloaded","listener":"SASL_SSL"', '"event":"reloaded","listener":"HTTP"')
        assert living.call("Metadata", 1, topics=None)["brokers"], "who is connected stays"
        properties = service.client_properties("SASL_SSL", "PLAIN", "frank", "frank-secret")
        frank = AdminClient({**properties, "ssl.ca.location": str(new.file)})
        assert frank.list_topics(timeout=240).brokers
        service.authority.file.write_bytes(new.file.read_bytes())
        assert service.get("/health/live")["status"] == "live", "HTTP shows the new certificate too"
        service.users_file.write_text("nonsense\n")
        _reload(service, '"event":"reload failed"')
        again = AdminClient({**properties, "ssl.ca.location": str(new.file)})
        assert again.list_topics(timeout=240).brokers, "what cannot be read changes nothing"
