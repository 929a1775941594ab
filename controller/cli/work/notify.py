"""`topicwright notify`: sends chosen events of a service to a target, in order and at least once.

It reads the log by offset over HTTP, so a target that is down delays no decision. A file has the offset of the next
event, in Prometheus' text format; after a crash the last event is sent again, with the same id. An event is sent until
the target has it. `topicwright drift --to` sends its result to the same targets, once.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from controller.cli.backend import Backend, Refusal
from controller.cli.governance import NOTIFICATIONS
from controller.cli.output import harmless
from controller.cli.work.targets import Notification, sender_of
from events.errors import UserError
from events.files import replacing
from projections.queries.events import CHANGES
from projections.queries.proving import HeadView
from projections.replay.log.kafka_ref import KAFKA
from projections.text.points_in_time import iso
from projections.views.events import CauseView, EventsView, EventView

POLL_S: Final = 1.0
RETRY_S, RETRY_MAX_S = 0.1, 60.0
"""The back-off doubles from the first to the second."""
_TYPES: Final = {**NOTIFICATIONS, "changes": CHANGES}


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
