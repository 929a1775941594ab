"""What a start says of who can come in from elsewhere, and what it refuses; and what clients send before they log in
makes no labels of metrics."""

from __future__ import annotations

import struct
import urllib.request
from ipaddress import ip_network
from pathlib import Path

import pytest

from controller.serving.client_listeners import hosts_of, is_open, refuse_open_http, warnings
from controller.serving.listeners import plan
from controller.settings.load import SettingsError, load_settings
from events.catalog import Endpoint
from tests.serving.service import Serving
from tests.serving.test_listeners import files, loaded
from tests.support.processes import Process
from tests.support.topicwright import COMMAND
from tests.support.wire import ConnectionClosed, Wire

__all__ = ["files"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_loopback_is_for_this_machine(host: str) -> None:
    assert not is_open(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "no-such-host.invalid"])
def test_all_else_is_open_to_others(host: str) -> None:
    assert is_open(host)


# settings, where Kafka's and HTTP's side listen | the warnings, or the error
STARTS = """
num.partitions=1 | 127.0.0.1 127.0.0.1 | ok
num.partitions=1 | 127.0.0.1 0.0.0.0 | HTTP would listen on 0.0.0.0, open to other machines without authentication
num.partitions=1 | 0.0.0.0 127.0.0.1 | listener PLAINTEXT has no authentication: whoever reaches 0.0.0.0:9092
authorizer.class.name=StandardAuthorizer | 0.0.0.0 127.0.0.1 | whoever reaches 0.0.0.0:9092 is User:ANONYMOUS
http.authentication=none | 127.0.0.1 0.0.0.0 | HTTP has no authentication: whoever reaches 0.0.0.0:8080
http.authentication=required users.file=USERS | 127.0.0.1 0.0.0.0 | unencrypted passwords and tokens at 0.0.0.0:8080
http.authentication=required users.file=USERS | 127.0.0.1 127.0.0.1 | ok
users.file=USERS http.security.protocol=SSL ssl.keystore.location=KEYSTORE | 127.0.0.1 0.0.0.0 | ok
listeners=SASL_PLAINTEXT://0.0.0.0:9092 | - 127.0.0.1 | ok
listeners=SSL://0.0.0.0:9092 ssl.keystore.location=KEYSTORE | - 127.0.0.1 | listener SSL has no authentication
"""


@pytest.mark.parametrize("line", STARTS.strip().splitlines())
def test_what_is_open_to_others_is_refused_or_warned_of(line: str, files: dict[str, str]) -> None:
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


def test_names_and_proxies_come_from_settings() -> None:
    said = ["advertised.listeners=PLAINTEXT://Kafka.example:9092", "http.allowed.hosts=A.example, b"]
    hosts = hosts_of(load_settings(overrides=[*said, "http.trusted.proxies=::ffff:10.0.0.1,10.1.0.0/16"]))
    assert hosts.names == {"kafka.example", "a.example", "b"}
    assert hosts.proxies == (ip_network("10.0.0.1"), ip_network("10.1.0.0/16"))


def _serve(folder: Path, *more: str) -> list[str | Path]:
    return [COMMAND, "serve", "--kafka", "0.0.0.0:0", "--http", "0.0.0.0:0", "--data", folder / "data", *more]


def test_what_is_opened_to_others_is_on_the_ready_screen(tmp_path: Path) -> None:
    with Process(_serve(tmp_path, "--set", "http.authentication=none"), cwd=tmp_path) as process:
        process.wait_for_line(r"^ready kafka=0\.0\.0\.0:\d+ http=0\.0\.0\.0:\d+$", within_s=240)
        process.wait_for_line(
            r"^warning: listener PLAINTEXT has no authentication: whoever reaches 0\.0\.0\.0:\d+ may do", within_s=240
        )
        process.wait_for_line(
            r"^warning: HTTP has no authentication: whoever reaches 0\.0\.0\.0:\d+ may do everything$", within_s=240
        )
        assert process.stop(within_s=240) == 0


def test_apis_and_versions_that_are_not_spoken_share_one_label(tmp_path: Path) -> None:
    server = Serving(tmp_path / "serving")
    try:
        for number in range(200):
            key, version = (1000 + number, 0) if number % 2 else (19, 1000 + number)
            with Wire(server.kafka) as wire:
                wire.send_frame(struct.pack(">hhih", key, version, 1, -1))
                try:
                    wire.receive_frame()
                except ConnectionClosed:
                    continue
                raise AssertionError("what is not spoken was answered")
        with urllib.request.urlopen(f"http://{server.http}/metrics", timeout=240) as answer:
            counts = [line for line in answer.read().decode().splitlines() if "request_seconds_count{api=" in line]
        assert sorted(line.partition("{")[2] for line in counts) == [
            'api="CreateTopics",outcome="unsupported",version="other"} 100.0',
            'api="other",outcome="unsupported",version="other"} 100.0',
        ]
    finally:
        assert server.process.stop(within_s=240) == 0, server.process.output[-3000:]
