"""Targets and formats of notifications: a webhook or a Kafka topic gets CloudEvents, messages of Slack, or OCSF.

    cloudevents   structured JSON (https://cloudevents.io), in Kafka by the Kafka binding with the topic as key
    slack         an incoming webhook of Slack, or of what understands its messages
    ocsf          API Activity (class 6003) of OCSF 1.6.0 (https://schema.ocsf.io)

A webhook's redirects are not followed, and each connection is to an address that was checked. An idempotent producer
sends a record to Kafka without a time limit: a record that Kafka has not acknowledged is awaited, never sent twice.
"""

import argparse
import base64
import hmac
import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from html import escape
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from controller.release import RELEASE
from controller.serving.reach_cluster import client_properties
from events.errors import UserError, shortened
from projections.replay.log.kafka_ref import KAFKA, kafka_topic
from projections.views.events import EventView

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
