"""`topicwright requests --pending`, `approve` and `deny`: requests that wait for approval; and `risks`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from controller.cli.arguments import DONE, NEGATIVE
from controller.cli.backend import Backend
from controller.cli.output import Marked, Style, show
from controller.cli.reads import common
from projections.queries.risks import RISKS, RisksView
from projections.views.requests import ApprovalView, HeldRequestsView, HeldRequestView


def pending(options: argparse.Namespace, backend: Backend) -> int:
    found = backend.get(HeldRequestsView, "/approvals")
    ids = dict.fromkeys(one.request_id for one in found.requests)
    return show(options, found, lambda style: _held_lines(found.requests, style), lambda: ids)


def _held_lines(held: Sequence[HeldRequestView], style: Style) -> Iterator[str]:
    if not held:
        yield "No request waits for approval."
        return
    by = [Marked(" and ".join(map(" or ".join, one.rules.values())), "good" if one.may_approve else "") for one in held]
    rows = ((one.request_id, one.topic, one.change, one.principal, ",".join(one.rules), one.expires_at) for one in held)
    header = ("REQUEST", "TOPIC", "CHANGE", "BY", "RULES", "EXPIRES", "APPROVED BY")
    yield from style.table(header, ((*row, each) for row, each in zip(rows, by, strict=True)))


def approve(options: argparse.Namespace, backend: Backend) -> int:
    done = backend.send("POST", f"/requests/{quote(options.id, safe='')}/approve", ApprovalView)
    lines = [f"request {done.held} is approved, as request {done.request_id}"]
    lines += [f"{topic}: {one.message or 'done'}" for topic, one in done.topics.items()]
    show(options, done, lambda _: lines, lambda: [done.request_id])
    return NEGATIVE if any(one.rule for one in done.topics.values()) else DONE


def deny(options: argparse.Namespace, backend: Backend) -> int:
    path, body = f"/requests/{quote(options.id, safe='')}/deny", {"because": options.because}
    done = backend.send("POST", path, ApprovalView, body=body)
    return show(options, done, lambda _: [f"request {done.held} is denied"], lambda: [done.held])


def risks(options: argparse.Namespace, backend: Backend) -> int:
    if (options.unused is None) != (options.bootstrap is None):
        raise common.Misuse("--unused and --bootstrap need each other")
    if options.unused is None:
        found = backend.get(RisksView, "/risks", limit=options.limit)
    else:
        from controller.cli.reads.unused import unused

        found = unused(options, backend)
    show(options, found, lambda style: _risk_lines(found, style), lambda: (one.name for one in found.topics))
    return NEGATIVE if found.topics else DONE


def _risk_lines(found: RisksView, style: Style) -> Iterator[str]:
    counts = ((name, count, RISKS.get(name, "it has had no new record")) for name, count in found.counts.items())
    yield from style.table(("RISK", "TOPICS", "MEANING"), counts)
    yield ""
    rows = ((one.name, one.owner or "-", one.created_by or "-", ", ".join(one.risks)) for one in found.topics)
    yield from style.table(("TOPIC", "OWNER", "CREATED BY", "RISKS"), rows)
    if found.more:
        yield f"… and {found.more} more topics: --limit lists up to 1000"
