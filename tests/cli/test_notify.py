"""Notifications: a consumer that is killed, redirects, hangs or is at a private address; and wrong flags."""

import base64
import hashlib
import hmac
import json
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.cli.work import notify as module
from controller.cli.work.notify import Webhook
from events.errors import UserError
from tests.cli.commands import Printed, Run
from tests.support.processes import Process
from tests.support.tools import ROOT
from tests.support.topicwright import COMMAND, Topicwright, fetch, topicwright

CONSUMER = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
port, path = int(sys.argv[1]), sys.argv[2]
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        signed = " ".join(self.headers.get(name, "-") for name in names)
        with open(path, "ab") as file:
            file.write(signed.encode() + b" " + body + b"\\n")
            file.flush()
            os.fsync(file.fileno())
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_): pass
server = HTTPServer(("127.0.0.1", port), Handler)
print("ready", flush=True)
server.serve_forever()
"""
KILLS, EVENTS, KEY = 50, 400, b"a-secret-of-twenty-bytes"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    with topicwright(tmp_path_factory.mktemp("notifying")) as served:
        yield served


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def received(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def test_a_consumer_killed_50_times_loses_nothing(server: Topicwright, tmp_path: Path) -> None:
    rng, port, got, state = random.Random(7), free_port(), tmp_path / "got", tmp_path / "notify.prom"
    (tmp_path / "key").write_bytes(KEY + b"\n")
    begin = json.loads(fetch(server.http, "/v1/events?limit=1")[1])["end"]
    for number in range(EVENTS):
        assert fetch(server.http, "/v1/topics", {"name": f"bad name {number}"})[0] == 400
    offsets = [one["offset"] for one in _events(server, "CreateRejected") if one["offset"] >= begin]
    assert len(offsets) == EVENTS
    argv: list[str | Path] = [COMMAND, "notify", "--to", f"http://127.0.0.1:{port}/hook", "--allow-private"]
    argv += ["--state", state, "--key", tmp_path / "key", "--http", server.http, "--events", "refused", "rules"]
    own = {"PYTHONPATH": str(ROOT)}
    with ExitStack() as stack:
        notifier = stack.enter_context(Process([*argv, "--from", str(begin)], cwd=tmp_path, env=own))
        for kill in range(KILLS + 1):
            consumer: list[str | Path] = [sys.executable, "-c", CONSUMER, str(port), got]
            with Process(consumer, cwd=tmp_path) as process:
                process.wait_for_line("ready", within_s=60)
                at_least = len(received(got)) + rng.randint(1, 6) if kill < KILLS else len(offsets)
                until(lambda wanted=at_least: len(received(got)) >= wanted or _delivered(got, offsets))
                if kill == KILLS:
                    until(lambda: _delivered(got, offsets) and "offset{log" in state.read_text() and _lag(state) == 0)
                process.kill()
            assert not state.exists() or state.stat().st_mode & 0o777 == 0o644, "node_exporter reads it"
            if kill == KILLS // 2:
                notifier.kill()
                stack.enter_context(Process(argv, cwd=tmp_path, env=own))
    ids = []
    for line in received(got):
        event_id, stamp, signature, body = line.split(b" ", 3)
        digest = hmac.new(KEY, event_id + b"." + stamp + b"." + body, hashlib.sha256).digest()
        assert signature == b"v1," + base64.b64encode(digest)
        event = json.loads(body)
        assert event["id"] == event_id.decode()
        assert (event["specversion"], event["type"]) == ("1.0", "topicwright.refused")
        assert event["data"]["offset"] == int(event["id"].rpartition("-")[2])
        assert event["subject"].startswith("bad name ")
        ids.append(event["data"]["offset"])
    assert list(dict.fromkeys(ids)) == offsets, "each event, in order"
    assert ids == sorted(ids), "only the last event is sent again"
    assert len(ids) - len(offsets) <= KILLS + 2


@contextmanager
def consumer(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A webhook that answers 204. Yields its URL, and the file with what it received."""
    port, got = free_port(), tmp_path / "got"
    with Process([sys.executable, "-c", CONSUMER, str(port), got], cwd=tmp_path) as process:
        process.wait_for_line("ready", within_s=60)
        yield f"http://127.0.0.1:{port}/hook", got


def bodies(got: Path) -> list[Any]:
    return [json.loads(line.split(b" ", 3)[3]) for line in received(got)]


@pytest.mark.parametrize("form", ["cloudevents", "slack", "ocsf"])
def test_events_are_sent_as_cloudevents_slack_messages_and_ocsf(form: str, server: Topicwright, tmp_path: Path) -> None:
    begin = json.loads(fetch(server.http, "/v1/events?limit=1")[1])["end"]
    name = f"form.{form}"
    assert fetch(server.http, "/v1/topics", {"name": name, "num_partitions": 1})[0] == 201
    assert fetch(server.http, "/v1/topics", {"name": "bad <name> & co"})[0] == 400
    assert fetch(server.http, f"/v1/topics/{name}", method="DELETE")[0] == 200
    with consumer(tmp_path) as (url, got):
        argv: list[str | Path] = [COMMAND, "notify", "--to", url, "--allow-private", "--format", form]
        argv += ["--state", tmp_path / "state", "--from", str(begin), "--http", server.http]
        argv += ["--events", "changes", "refused"]
        with Process(argv, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}) as process:
            process.wait_for_line(rf"^sending events from offset {begin} to {url.removesuffix('/hook')}$", within_s=60)
            until(lambda: len(received(got)) >= 3)
    created, refused, _ = bodies(got)
    if form == "cloudevents":
        assert [one["type"].partition(".")[2] for one in bodies(got)] == ["changes", "refused", "changes"]
        assert {one["principal"] for one in bodies(got)} == {"User:ANONYMOUS"}, "also of a refusal: from its request"
    elif form == "slack":
        assert list(created) == ["text"]
        assert created["text"].startswith(f"*changes* {name} is created")
        assert "*refused* bad &lt;name&gt; &amp; co is rejected" in refused["text"]
        assert refused["text"].endswith("(by User:ANONYMOUS)")
    else:
        assert [one["type_uid"] for one in bodies(got)] == [600301, 600301, 600304]
        assert [one["status_id"] for one in bodies(got)] == [1, 2, 1]
        for one in bodies(got):
            assert (one["class_uid"], one["category_uid"], one["api"]["operation"]) == (6003, 6, "HTTP")
            assert one["actor"]["user"]["name"] == "User:ANONYMOUS"
            assert one["src_endpoint"] == {"ip": "127.0.0.1"}
            assert one["metadata"]["uid"] == f"{one['metadata']['log_name']}-{one['unmapped']['event']['offset']}"
        assert refused["resources"] == [{"name": "bad <name> & co", "type": "topic"}]


def test_drift_is_sent_once_and_only_if_there_is_some(printed: Printed, server: Topicwright, tmp_path: Path) -> None:
    files = tmp_path / "topics.yaml"
    files.write_text("set: drifting\ntopics:\n  drift.a: {partitions: 1}\n")
    printed("apply", files, "--http", server.http)
    with consumer(tmp_path) as (url, got):
        to = ("--to", url, "--allow-private", "--http", server.http)
        printed("drift", files, *to)
        assert received(got) == []
        printed("topic", "alter", "drift.a", "--config", "retention.ms=5", "--http", server.http)
        printed("drift", files, *to, code=1)
        printed("drift", files, *to, code=1)
        printed("drift", files, *to, "--format", "slack", code=1)
        event, again, message = bodies(got)
    assert again["id"] != event["id"], "a consumer would drop it"
    assert (event["type"], event["subject"]) == ("topicwright.drift", "cluster")
    (change,) = event["data"]["fields"]["changes"]
    assert change["request"] == {"type": "alter", "name": "drift.a", "configs": {"retention.ms": None}}
    assert "retention.ms" in change["since"]
    assert message == {"text": "*drift* 1 difference from the files of drifting: drift.a"}
    assert "Connection refused" in printed("drift", files, *to, code=2)


def _delivered(got: Path, offsets: list[int]) -> bool:
    lines = received(got)
    return (
        bool(lines)
        and lines[-1].endswith(b"}")
        and json.loads(lines[-1].split(b" ", 3)[3])["data"]["offset"] == offsets[-1]
    )


def _lag(state: Path) -> int:
    return int(state.read_text().split()[-1])


def _events(server: Topicwright, kind: str) -> list[dict[str, int]]:
    found: list[dict[str, int]] = json.loads(fetch(server.http, f"/v1/events?limit=1000&type={kind}")[1])["events"]
    return found


def until(reached: object) -> None:
    deadline = time.monotonic() + 240
    while not reached():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def answering(answer: bytes, pause_s: float = 0.0) -> Iterator[str]:
    """A server that sends these bytes one by one to its first client. Yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client = listening.accept()[0]
            with client:
                request = b""
                while not request.endswith(b"{}"):
                    request += client.recv(1 << 16)
                try:
                    for byte in answer:
                        client.sendall(bytes((byte,)))
                        time.sleep(pause_s)
                    client.recv(1)
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        thread.join()


def sent(url: str, *, allow_private: bool = True) -> str:
    try:
        Webhook(url, allow_private=allow_private).send("id", b"{}", "application/json")
    except UserError as error:
        return str(error)
    return ""


def test_a_redirect_is_not_followed() -> None:
    with answering(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n") as url:
        assert sent(url) == "127.0.0.1 answers 302 and redirects, which is not followed"
    with answering(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n") as url:
        assert sent(url) == "127.0.0.1 answers 500"
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as url:
        assert sent(url) == ""
    with answering(b"nonsense\r\n\r\n") as url:
        assert sent(url) == "127.0.0.1: nonsense\r\n"


def test_a_consumer_that_hangs_or_trickles_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(module, "ANSWER_S", 0.5)
    with answering(b"") as url:
        assert "timed out" in sent(url)
    began = time.monotonic()
    with answering(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 90, 0.1) as url:
        assert sent(url).startswith("127.0.0.1: ")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fe80::1%eth0", "0.0.0.0"]
)
def test_private_addresses_are_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(0, 0, 0, "", ("1.1.1.1", 443)), (0, 0, 0, "", (address, 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("no connection is made"))
    text = sent("https://hooks.example/x", allow_private=False)
    assert text == f"hooks.example has the private address {address}; --allow-private allows it"


@pytest.mark.parametrize(
    "url", ["http://a/", "ftp://a/", "https://", "https://u:p@a/", "https://a:x/", "a", "https://ä/"]
)
def test_wrong_webhooks_are_refused(url: str) -> None:
    with pytest.raises(UserError, match="--to"):
        Webhook(url, allow_private=False)


def test_errors_of_notify(run: Run, server: Topicwright, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("short")
    (tmp_path / "other").write_text("hello")
    (tmp_path / "foreign").write_text('topicwright_notify_offset{log="x"} 5\n')
    (tmp_path / "far").write_text("")
    for flags, expected in (
        (("--key", "short"), "--key short: 5 bytes; allowed: at least 16"),
        (("--key", "none"), "No such file"),
        (("--state", "other"), "--state other: is not a file of `topicwright notify`; give another file"),
        (("--state", "foreign"), "--state foreign: is of the log x, not"),
        (("--state", "far", "--from", "99999"), "offset 99999 to begin with is after the end of the log"),
        (
            ("--events", "drift"),
            "unknown value 'drift'; allowed: refused, approval, offline, discovered, rules, changes",
        ),
        (("--to", "kafka://a/b"), "--to: allowed is kafka://HOST:PORT[,…]/TOPIC"),
        (("--to", "kafka://a:1/b", "--key", "short"), "--key signs for a webhook"),
        (("--to", "kafka://a:1/b", "--kafka-properties", "none"), "none"),
        (("--format", "teams"), "unknown value 'teams'; allowed: cloudevents, slack, ocsf"),
        (("--to", "http://10.0.0.1/"), "--to: allowed is https://HOST[:PORT]/PATH, and http://… with --allow-private"),
    ):
        given = {"--to": "https://127.0.0.1/", "--state": "state", **dict(zip(flags[::2], flags[1::2], strict=True))}
        files = {"--key", "--state", "--kafka-properties"}
        words = [word for flag, value in given.items() for word in (flag, tmp_path / value if flag in files else value)]
        outcome = run("notify", *words, "--http", server.http)
        assert outcome.code == 2, outcome
        assert expected in outcome.err.replace(f"{tmp_path}/", ""), outcome.err
