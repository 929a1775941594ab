"""`topicwright notify`: sends chosen events of a service to a webhook or a Kafka topic, in order and at least once, as
CloudEvents, messages of Slack, or OCSF.

    cloudevents   structured JSON (https://cloudevents.io), in Kafka by the Kafka binding with the topic as key
    slack         an incoming webhook of Slack, or of what understands its messages
    ocsf          API Activity (class 6003) of OCSF 1.6.0 (https://schema.ocsf.io)

It reads the log by offset over HTTP, so a target that is down delays no decision. A file has the offset of the next
event, in Prometheus' text format; after a crash the last event is sent again, with the same id. An event is sent until
the target has it. `topicwright drift --to` sends its result to the same targets, once.

A webhook's redirects are not followed, and each connection is to an address that was checked. An idempotent producer
sends a record to Kafka without a time limit: a record that Kafka has not acknowledged is awaited, never sent twice.
"""

import argparse
import base64
import hmac
import http.client
import os
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from html import escape
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from controller.cli.backend import Backend, Refusal
from controller.cli.governance import NOTIFICATIONS
from controller.cli.output import harmless
from controller.release import RELEASE
from controller.serving.reach_cluster import client_properties
from events.errors import UserError, shortened
from events.files import replacing
from projections.queries.events import CHANGES
from projections.queries.proving import HeadView
from projections.replay.log.kafka_ref import KAFKA, kafka_topic
from projections.text.points_in_time import iso
from projections.views.events import CauseView, EventsView, EventView

POLL_S: Final = 1.0
RETRY_S, RETRY_MAX_S = 0.1, 60.0
"""The back-off doubles from the first to the second."""
_TYPES: Final = {**NOTIFICATIONS, "changes": CHANGES}
KEY_BYTES_MIN: Final = 16
TIMEOUT_S, ANSWER_S = 10.0, 30.0
"""Seconds for each step of a delivery, and for a whole delivery."""
SLACK_CHARS_MAX: Final = 3000
RECORD_BYTES_MAX: Final = 100 << 20
"""Larger than any event; the topic's `max.message.bytes` limits the compressed record."""


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a kind, in the log with this id. `id` is the same if it is sent again. `principal` and `host` are
    empty and `client_id` is None if no client caused it; `api` is then the command."""

    id: str
    log: str
    kind: str
    event: EventView
    principal: str = ""
    client_id: str | None = None
    host: str = ""
    api: str

    @property
    def subject(self) -> str:
        """The topic, or `cluster`."""
        return self.event.fields.get("topic") or self.event.fields.get("name") or "cluster"


def cloud_event(one: Notification) -> Mapping[str, object]:
    names = {"id": one.id, "source": f"/topicwright/{one.log}", "type": f"topicwright.{one.kind}"}
    who = {"principal": one.principal} if one.principal else {}
    content = {"time": one.event.at, "subject": one.subject, "datacontenttype": "application/json", "data": one.event}
    return {"specversion": "1.0", **names, **who, **content}


def slack(one: Notification) -> Mapping[str, object]:
    text = shortened(one.event.text, SLACK_CHARS_MAX)
    by = f" (by {one.principal})" if one.principal not in text else ""
    return {"text": f"*{one.kind}* {escape(text + by, quote=False)}"}


def ocsf(one: Notification) -> Mapping[str, object]:
    fields, app, is_cluster = one.event.fields, one.client_id or "topicwright", one.subject == "cluster"
    change = (fields.get("request") or {}).get("change", {})
    is_deletion = re.search("Deleted|Removed|Vanished", one.event.type) or change.get("kind") == "deletion"
    is_creation = re.match("Create|Creation|(Topic|Acls)Created", one.event.type)
    activity, error_code = 4 if is_deletion else 1 if is_creation else 3, fields.get("error_code", 0)
    product = {"vendor_name": "Topicwright", "name": "Topicwright", "version": RELEASE}
    return {
        **{"category_uid": 6, "class_uid": 6003, "activity_id": activity, "type_uid": 600300 + activity},
        **{"severity_id": 4 if one.kind == "offline" else 1, "time": one.event.at_ms, "message": one.event.text},
        **{"status_id": 2 if error_code else 1, "status_code": str(error_code)},
        "metadata": {"version": "1.6.0", "uid": one.id, "log_name": one.log, "product": product},
        "api": {"operation": one.api, "service": {"name": "Kafka"}},
        "actor": {**({"user": {"name": one.principal}} if one.principal else {}), "app_name": app},
        "src_endpoint": {"ip": one.host} if one.host else {"name": app},
        "resources": [{"name": one.subject, "type": "cluster" if is_cluster else "topic"}],
        "unmapped": {"event": one.event},
    }


_JSON: Final = "application/json"
FORMATS: Final[Mapping[str, tuple[str, Callable[[Notification], Mapping[str, object]]]]] = {
    "cloudevents": ("application/cloudevents+json", cloud_event), "slack": (_JSON, slack), "ocsf": (_JSON, ocsf)
}  # fmt: skip
"""Format → the content type, and the function that makes the body."""


def sender_of(options: argparse.Namespace) -> Callable[[Notification], None]:
    """Returns the function that sends a notification and returns when the target has it; it raises UserError if the
    target does not take it. Raises UserError for wrong flags."""
    content_type, body_of = FORMATS[options.format]
    target: Topic | Webhook
    if options.to.startswith(KAFKA):
        if options.key is not None:
            raise UserError("--key signs for a webhook; a Kafka topic has logins (--kafka-properties)")
        target = Topic(options.to, options.kafka_properties)
    else:
        target = Webhook(options.to, options.key, allow_private=options.allow_private)
    return lambda one: target.send(one.id, msgspec.json.encode(body_of(one)), content_type, one.subject)


class Topic:
    """A topic of any Kafka cluster. Raises UserError."""

    def __init__(self, to: str, properties: str | None) -> None:
        try:
            named = kafka_topic(to)
        except UserError:
            raise UserError("--to: allowed is kafka://HOST:PORT[,…]/TOPIC") from None
        self._topic, self._why, self._sent = named.topic, "", ""
        self._outcome: list[KafkaError | None] = []
        self._properties: dict[str, Any] = {
            "client.id": "topicwright-notify",
            "log_level": 0,
            "compression.type": "zstd",
            "message.max.bytes": RECORD_BYTES_MAX,
            **client_properties(properties, "--kafka-properties"),
            "bootstrap.servers": named.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": 0,
            "error_cb": lambda error: setattr(self, "_why", error.str()),
        }
        self._producer: Producer | None = None

    def send(self, event_id: str, body: bytes, content_type: str, key: str) -> None:
        try:
            if self._producer is None:
                self._producer, self._sent = self._connected(), ""
            if self._sent != event_id:
                self._outcome, self._sent = [], event_id
                given: Any = {"headers": [("content-type", content_type)], "on_delivery": self._delivered}
                self._producer.produce(self._topic, body, key, **given)
            self._producer.flush(ANSWER_S)
            if self._outcome and self._outcome[0] is not None:
                raise KafkaException(self._outcome[0])
        except (KafkaException, ValueError) as error:
            self._producer = None
            why = error.args[0].str() if isinstance(error, KafkaException) else error
            raise UserError(f"Kafka topic {self._topic}: {why}") from None
        if not self._outcome:
            raise UserError(f"Kafka topic {self._topic} has not acknowledged it within {ANSWER_S:g} s. {self._why}")

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        self._outcome.append(error)

    def _connected(self) -> Producer:
        """Raises UserError if the topic is missing: a record for it could create it."""
        producer = Producer(self._properties)
        if self._topic not in producer.list_topics(timeout=TIMEOUT_S).topics:
            raise UserError(f"Kafka topic {self._topic} does not exist, or the login may not describe it")
        return producer


class Webhook:
    """The address of a consumer, and the file with the key that signs. Raises UserError."""

    def __init__(self, url: str, key: Path | None = None, *, allow_private: bool) -> None:
        try:
            parts = urlsplit(url)
            port, self._key = parts.port, b"" if key is None else key.read_bytes().strip()
        except (OSError, ValueError) as error:
            raise UserError(f"--to, --key: {error}") from None
        ports = {"https": 443, **({"http": 80} if allow_private else {})}
        if parts.scheme not in ports or not parts.hostname or "@" in parts.netloc or not url.isascii():
            raise UserError("--to: allowed is https://HOST[:PORT]/PATH, and http://… with --allow-private")
        if key is not None and len(self._key) < KEY_BYTES_MIN:
            raise UserError(f"--key {key}: {len(self._key)} bytes; allowed: at least {KEY_BYTES_MIN}")
        self._host, self._port, self._allow_private = parts.hostname, port or ports[parts.scheme], allow_private
        self._netloc, self._target = parts.netloc, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None

    def send(self, event_id: str, body: bytes, content_type: str, _key: str = "") -> None:
        """Send an event, signed as https://www.standardwebhooks.com describes. Raises UserError if it is not taken."""
        stamp = str(int(time.time()))
        headers = {"host": self._netloc, "content-type": content_type, "webhook-id": event_id}
        if self._key:
            digest = hmac.digest(self._key, f"{event_id}.{stamp}.".encode() + body, "sha256")
            headers |= {"webhook-timestamp": stamp, "webhook-signature": f"v1,{base64.b64encode(digest).decode()}"}
        try:
            with closing(self._connected()) as sock:
                connection = http.client.HTTPConnection(self._host, self._port)
                connection.sock = sock
                timer = threading.Timer(ANSWER_S, sock.shutdown, (socket.SHUT_RDWR,))
                timer.start()  # for an answer that trickles
                try:
                    connection.request("POST", self._target, body, headers)
                    status = connection.getresponse().status
                finally:
                    timer.cancel()
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise UserError(f"{self._host}: {error or type(error).__name__}") from None
        if status // 100 != 2:
            redirect = " and redirects, which is not followed" if status // 100 == 3 else ""
            raise UserError(f"{self._host} answers {status}{redirect}")

    def _connected(self) -> socket.socket:
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        addresses = [str(each[4][0]) for each in found]
        private = next((each for each in addresses if not ip_address(each.partition("%")[0]).is_global), None)
        if private is not None and not self._allow_private:
            raise UserError(f"{self._host} has the private address {private}; --allow-private allows it")
        plain = socket.create_connection((addresses[0], self._port), TIMEOUT_S)
        return plain if self._tls is None else self._tls.wrap_socket(plain, server_hostname=self._host)


def notify(options: argparse.Namespace, backend: Backend) -> int:
    """Send events until the process is ended. Raises UserError, also if the service does not answer at first."""
    send = sender_of(options)
    log, page = backend.get(HeadView, "/log/head").head.log, backend.get(EventsView, "/events", limit=1)
    place = _Place(options.state, log, page.end if options.start is None else options.start)
    if place.offset > page.end:
        raise UserError(f"offset {place.offset} to begin with is after the end of the log, {page.end}")
    to = options.to if options.to.startswith(KAFKA) else "/".join(options.to.split("/")[:3])  # a path may be a secret
    print(f"sending events from offset {place.offset} to {to}", file=sys.stderr, flush=True)
    failures = 0
    while True:
        try:
            page = backend.get(EventsView, "/events", from_=place.offset, limit=1000)
            place.store(place.offset, page.end)
            for event in page.events:
                if kind := kind_of(event, options.events):
                    place.store(event.offset, page.end)
                    send(_notification(event, kind, log, backend))
                    failures = 0
                place.offset = event.offset + 1
        except (UserError, OSError) as error:
            delay_s = min(RETRY_MAX_S, RETRY_S * 2**failures)
            failures = min(failures + 1, 10)
            print(harmless(f"offset {place.offset}: {error}; again in {delay_s:g} s"), file=sys.stderr, flush=True)
            backend.close()
            time.sleep(delay_s)
        else:
            failures = 0
            time.sleep(0 if page.events else POLL_S)


def kind_of(event: EventView, kinds: Collection[str]) -> str:
    """The first of these kinds that an event has; empty if it has none."""
    if event.type == "PartitionChanged" and not event.fields["before"]["leader"] >= 0 > event.fields["after"]["leader"]:
        return ""
    return next((kind for kind in kinds if event.type in _TYPES[kind]), "")


def _notification(event: EventView, kind: str, log: str, backend: Backend) -> Notification:
    fields = event.fields
    request = fields.get("request") or fields
    who = {"principal": fields.get("principal", ""), "client_id": fields.get("client_id")}
    who |= {"host": request.get("host", ""), "api": request.get("api", event.cause.command)}
    if "client_id" not in fields and fields.get("request_id"):
        with suppress(Refusal):  # the event of its request has the sender
            request = backend.get(dict[str, Any], "/requests", fields["request_id"])
            who = {name: request[name] for name in who}
    return Notification(id=f"{log}-{event.offset}", log=log, kind=kind, event=event, **who)


def notify_drift(options: argparse.Namespace, backend: Backend, text: str, fields: dict[str, Any]) -> None:
    """Send one notification of the differences that `topicwright drift` found. Raises UserError."""
    log, end = backend.get(HeadView, "/log/head").head.log, backend.get(EventsView, "/events", limit=1).end
    at_ms, cause = int(time.time() * 1000), CauseView("drift", "")
    event = EventView(end, iso(at_ms), at_ms, "Drift", text, cause, fields)
    sender_of(options)(Notification(id=f"{log}-{at_ms}-drift", log=log, kind="drift", event=event, api="drift"))


class _Place:
    """The offset of the next event, and the file that has it. Raises UserError and OSError."""

    def __init__(self, path: Path, log: str, start: int) -> None:
        self._path, self._log = path, log
        try:
            text = path.read_text() if path.exists() else ""
        except (OSError, ValueError) as error:
            raise UserError(f"--state {path}: {error}") from None
        found = re.search(r'^topicwright_notify_offset\{log="([^"]*)"\} ([0-9]{1,18})$', text, re.MULTILINE)
        if text and (found is None or found[1] != log):
            why = "is not a file of `topicwright notify`" if found is None else f"is of the log {found[1]}, not {log}"
            raise UserError(f"--state {path}: {why}; give another file")
        self.offset = start if found is None else int(found[2])

    def store(self, offset: int, end: int) -> None:
        values = {"offset": offset, "lag": end - offset}
        text = "".join(f'topicwright_notify_{name}{{log="{self._log}"}} {each}\n' for name, each in values.items())
        with replacing(self._path) as file:
            os.fchmod(file.fileno(), 0o644)  # node_exporter is another user
            file.write(text.encode())
        self.offset = offset
