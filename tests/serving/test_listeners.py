"""Listener settings and their errors, warnings of open listeners, and reload on SIGHUP."""

import re
import signal
from pathlib import Path

import pytest

from controller.access.users import set_password
from controller.http.metrics import Metrics
from controller.machine.state import Cluster
from controller.serving.client_listeners import Address, ClientListeners, hosts_of, is_open, refuse_open_http, warnings
from controller.serving.listeners import http_logs_in, http_tls, plan, tokens
from controller.settings.load import ServeSettings, SettingsError, load_settings
from events.catalog import Endpoint
from tests.security.certificates import Authority
from tests.security.service import Secured, secured
from tests.support.processes import Process
from tests.support.topicwright import COMMAND
from tests.support.wire import Wire

DEFAULT = Endpoint("PLAINTEXT", "127.0.0.1", 9092)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files that the tables name in capitals."""
    folder = tmp_path_factory.mktemp("files")
    authority = Authority(folder)
    users = folder / "users"
    users.write_text("")
    return {"KEYSTORE": str(authority.issue("server").keystore), "CA": str(authority.file), "USERS": str(users)}


def loaded(text: str, files: dict[str, str]) -> ServeSettings:
    """Returns settings from a line of `key=value`."""
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
listeners=SASL_PLAINTEXT://a:1 sasl.enabled.mechanisms=OAUTHBEARER | OAUTHBEARER, which needs sasl.oauthbearer
advertised.listeners=SSL://a:1 | advertised.listeners=SSL: there is no such listener; listeners: PLAINTEXT
listener.name.in.ssl.client.auth=none | setting listener.name.in: there is no such listener; listeners: PLAINTEXT
listeners=A://a:1,B://a:2 simulated.broker.listeners=true | simulated.broker.listeners=true needs a single listener
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_invalid_listeners_are_rejected(line: str, files: dict[str, str]) -> None:
    text, message = (cell.strip() for cell in line.split("|"))
    with pytest.raises(SettingsError) as raised:
        plan(loaded(text, files), DEFAULT)
    assert message in str(raised.value)


def test_listeners_with_custom_names_are_mapped_to_protocols(files: dict[str, str]) -> None:
    text = (
        "listeners=inside://a:1,outside://b:2 listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL "
        "listener.name.outside.ssl.keystore.location=KEYSTORE"
    )
    inside, outside = plan(loaded(text, files), DEFAULT)
    assert (inside.endpoint.name, inside.protocol, inside.tls) == ("INSIDE", "PLAINTEXT", None)
    assert (outside.endpoint.name, outside.protocol, outside.logs_in) == ("OUTSIDE", "SASL_SSL", True)
    assert outside.tls is not None


def test_ssl_client_auth_on_sasl_ssl_requires_the_listener_prefix(files: dict[str, str]) -> None:
    text = (
        "listeners=SSL://a:1,SASL_SSL://b:2 ssl.keystore.location=KEYSTORE ssl.truststore.location=CA "
        "ssl.client.auth=required"
    )
    auths = [each.tls.client_auth for each in plan(loaded(text, files), DEFAULT) if each.tls is not None]
    assert auths == ["required", "none"], "as in KIP-684"
    more = text + " listener.name.sasl_ssl.ssl.client.auth=requested"
    auths = [each.tls.client_auth for each in plan(loaded(more, files), DEFAULT) if each.tls is not None]
    assert auths == ["required", "requested"]


UNVERIFIED = """
                                   | needs sasl.oauthbearer.expected.issuer; * accepts every issuer
sasl.oauthbearer.expected.issuer=a | needs sasl.oauthbearer.expected.audience; * accepts every audience
sasl.oauthbearer.expected.issuer=* | needs sasl.oauthbearer.expected.audience; * accepts every audience
"""


@pytest.mark.parametrize("line", UNVERIFIED.strip("\n").splitlines())
def test_tokens_need_an_issuer_and_an_audience(line: str) -> None:
    text, message = (cell.strip() for cell in line.split("|"))
    with pytest.raises(SettingsError, match=re.escape(message)):
        tokens(loaded(f"sasl.oauthbearer.jwks.endpoint.url=file:///a {text}", {}))


def test_an_issuer_or_audience_of_asterisk_is_any() -> None:
    any_of = " ".join(f"sasl.oauthbearer.expected.{what}=*" for what in ("issuer", "audience"))
    found = tokens(loaded(f"sasl.oauthbearer.jwks.endpoint.url=file:///a {any_of}", {}))
    assert found is not None
    assert (found._rules.issuer, found._rules.audiences) == (None, None)


HTTP = """
num.partitions=1                                       | False
users.file=USERS                                       | True
listeners=SASL_PLAINTEXT://a:1                         | True
listeners=SASL_PLAINTEXT://a:1 http.authentication=none | False
sasl.oauthbearer.jwks.endpoint.url=file:///a           | True
http.authentication=required                           | True
"""


@pytest.mark.parametrize("line", HTTP.strip().splitlines())
def test_http_authentication_follows_settings_and_listeners(line: str, files: dict[str, str]) -> None:
    text, expected = (cell.strip() for cell in line.split("|"))
    settings = loaded(text, files)
    assert str(http_logs_in(settings, plan(settings, DEFAULT))) == expected


def test_http_tls_requires_a_keystore(files: dict[str, str]) -> None:
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
        secured(tmp_path) as service,  # librdkafka may reconnect, which would hide whether connections survive
        Wire(service.addresses["SASL_SSL"], authority=service.authority.file) as living,
    ):
        living.log_in("carol", "carol-PLANTED-3")
        set_password(service.users_file, "frank", "frank-secret")
        folder = tmp_path / "new"
        folder.mkdir()
        new = Authority(folder)
        service.server.keystore.write_bytes(new.issue("server", password="key-PLANTED-4").keystore.read_bytes())
        _reload(service, '"event":"reloaded","listener":"SASL_SSL"', '"event":"reloaded","listener":"HTTP"')
        assert living.call("Metadata", 1, topics=None)["brokers"], "existing connections stay open"
        properties = service.client_properties("SASL_SSL", "PLAIN", "frank", "frank-secret")
        frank = AdminClient({**properties, "ssl.ca.location": str(new.file)})
        assert frank.list_topics(timeout=240).brokers
        service.authority.file.write_bytes(new.file.read_bytes())
        assert service.get("/health/live")["status"] == "live", "HTTP has the new certificate too"
        service.users_file.write_text("nonsense\n")
        _reload(service, '"event":"reload failed"')
        again = AdminClient({**properties, "ssl.ca.location": str(new.file)})
        assert again.list_topics(timeout=240).brokers, "an invalid file changes nothing"


LOOPBACK = ["127.0.0.1", "127.8.0.1", "::1", "localhost"]
OPEN = ["", "0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "no-such-host.invalid"]


@pytest.mark.parametrize("host", [*LOOPBACK, *OPEN])
def test_all_but_loopback_is_open_to_others(host: str) -> None:
    assert is_open(host) is (host in OPEN)


# settings, hosts of Kafka and HTTP listeners | warnings, or the error
STARTS = """
num.partitions=1 | 127.0.0.1 127.0.0.1 | ok
num.partitions=1 | 127.0.0.1 0.0.0.0 | HTTP would listen on 0.0.0.0, open to other machines without authentication
num.partitions=1 | 0.0.0.0 127.0.0.1 | listener PLAINTEXT has no authentication: anyone who can reach 0.0.0.0:9092
authorizer.class.name=StandardAuthorizer | 0.0.0.0 127.0.0.1 | anyone who can reach 0.0.0.0:9092 is User:ANONYMOUS
http.authentication=none | 127.0.0.1 0.0.0.0 | HTTP has no authentication: anyone who can reach 0.0.0.0:8080
http.authentication=required users.file=USERS | 127.0.0.1 0.0.0.0 | unencrypted passwords and tokens at 0.0.0.0:8080
http.authentication=required users.file=USERS | 127.0.0.1 127.0.0.1 | ok
users.file=USERS http.security.protocol=SSL ssl.keystore.location=KEYSTORE | 127.0.0.1 0.0.0.0 | ok
listeners=SASL_PLAINTEXT://0.0.0.0:9092 | - 127.0.0.1 | ok
listeners=SSL://0.0.0.0:9092 ssl.keystore.location=KEYSTORE | - 127.0.0.1 | listener SSL has no authentication
"""


@pytest.mark.parametrize("line", STARTS.strip().splitlines())
def test_open_listeners_without_authentication_are_rejected_or_warned_of(line: str, files: dict[str, str]) -> None:
    text, hosts, expected = (cell.strip() for cell in line.split("|"))
    kafka, http = hosts.split()
    settings = loaded(text, files)
    listeners = plan(settings, Endpoint("PLAINTEXT", kafka, 9092))
    try:
        refuse_open_http(settings, listeners, http)
        shown = list(warnings(settings, listeners, ["0.0.0.0:9092"], http, f"{http}:8080"))
    except SettingsError as error:
        shown = [str(error)]
    assert len(shown) == (expected != "ok"), shown
    assert expected == "ok" or expected in shown[0]


def test_http_allowed_hosts_and_trusted_proxies_settings() -> None:
    said = ["advertised.listeners=PLAINTEXT://Kafka.example:9092", "http.allowed.hosts=A.example, b"]
    hosts = hosts_of(load_settings(overrides=[*said, "http.trusted.proxies=::ffff:10.0.0.1,10.1.0.0/16"]))
    assert hosts.names == {"kafka.example", "a.example", "b"}
    assert hosts.proxies == ("10.0.0.1/32", "10.1.0.0/16")


def _serve(folder: Path, *more: str) -> list[str | Path]:
    return [COMMAND, "serve", "--kafka", "0.0.0.0:0", "--http", "0.0.0.0:0", "--data", folder / "data", *more]


def test_ready_screen_warns_of_open_listeners(tmp_path: Path) -> None:
    with Process(_serve(tmp_path, "--set", "http.authentication=none"), cwd=tmp_path) as process:
        process.wait_for_line(r"^ready kafka=0\.0\.0\.0:\d+ http=0\.0\.0\.0:\d+$", within_s=240)
        process.wait_for_line(
            r"^warning: listener PLAINTEXT has no authentication: anyone who can reach 0\.0\.0\.0:\d+ may", within_s=240
        )
        process.wait_for_line(
            r"^warning: HTTP has no authentication: anyone who can reach 0\.0\.0\.0:\d+ may do everything$",
            within_s=240,
        )
        assert process.stop(within_s=240) == 0


def test_unsupported_apis_and_versions_share_one_metric_label() -> None:
    """The server reports unsupported versions as -1."""
    metrics, local = Metrics(), Address("127.0.0.1", 0)
    clients = ClientListeners(load_settings(), local, local, metrics, Cluster)
    for api_key, version in ((-1, -1), (19, -1), (19, 7)):
        clients._requested(api_key, version, "unsupported", 0.1)
    counts = [line for line in metrics.render().decode().splitlines() if "request_seconds_count{api=" in line]
    assert sorted(line.partition("{")[2] for line in counts) == [
        'api="CreateTopics",outcome="unsupported",version="7"} 1.0',
        'api="CreateTopics",outcome="unsupported",version="other"} 1.0',
        'api="other",outcome="unsupported",version="other"} 1.0',
    ]
