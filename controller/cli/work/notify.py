"""`topicwright notify`: sends chosen events of a service to a webhook, as CloudEvents, in order and at least once.

It reads the log by offset over HTTP, so a consumer that is down delays no decision. A file has the offset of the next
event, in Prometheus' text format; after a crash the last event is sent again, with the same id. An event is sent until
the consumer answers with 2xx. No redirect is followed. Each connection is to an address that was checked.
"""

from __future__ import annotations

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
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from controller.cli.backend import Backend
from controller.cli.governance import NOTIFICATIONS
from controller.cli.output import harmless
from events.errors import UserError
from projections.queries.proving import Consistency
from projections.views.events import EventsView, EventView

KEY_BYTES_MIN: Final = 16
POLL_S, TIMEOUT_S, ANSWER_S = 1.0, 10.0, 30.0
"""Seconds between two polls, for each step of a delivery, and for a whole delivery."""
RETRY_S, RETRY_MAX_S = 0.1, 60.0
"""The back-off doubles from the first to the second."""


def notify(options: argparse.Namespace, backend: Backend) -> int:
    """Send events until the process is ended. Raises UserError, also if the service does not answer at first."""
    webhook = Webhook(options.to, options.key, allow_private=options.allow_private)
    log, page = backend.get(Consistency, "/log/head").head.log, backend.get(EventsView, "/events", limit=1)
    place = _Place(options.state, log, page.end if options.start is None else options.start)
    if place.offset > page.end:
        raise UserError(f"offset {place.offset} to begin with is after the end of the log, {page.end}")
    failures = 0
    while True:
        try:
            page = backend.get(EventsView, "/events", from_=place.offset, limit=1000)
            place.store(place.offset, page.end)
            for event in page.events:
                if (kind := kind_of(event)) in options.events:
                    place.store(event.offset, page.end)
                    webhook.send(f"{log}-{event.offset}", _cloud_event(event, kind, log))
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


def kind_of(event: EventView) -> str:
    """The kind of an event; empty if it has none."""
    if event.type == "PartitionChanged" and not event.fields["before"]["leader"] >= 0 > event.fields["after"]["leader"]:
        return ""
    return next((kind for kind, types in NOTIFICATIONS.items() if event.type in types), "")


def _cloud_event(event: EventView, kind: str, log: str) -> bytes:
    names = {"id": f"{log}-{event.offset}", "source": f"/topicwright/{log}", "type": f"topicwright.{kind}"}
    subject = event.fields.get("topic") or event.fields.get("name") or "cluster"
    content = {"time": event.at, "subject": subject, "datacontenttype": "application/json", "data": event}
    return msgspec.json.encode({"specversion": "1.0", **names, **content})


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
        fresh = self._path.with_name(f"{self._path.name}.new")
        with fresh.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        self.offset = offset


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

    def send(self, event_id: str, body: bytes) -> None:
        """Send an event, signed as https://www.standardwebhooks.com describes. Raises UserError if it is not taken."""
        stamp = str(int(time.time()))
        headers = {"host": self._netloc, "content-type": "application/cloudevents+json", "webhook-id": event_id}
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
