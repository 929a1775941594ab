"""`topicwright requests --pending`, `approve` and `deny`: requests that wait for approval."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from controller.cli.arguments import DONE, NEGATIVE
from controller.cli.backend import Backend
from controller.cli.output import Marked, Style, show
from projections.views.approvals import ApprovalView, HeldRequestsView, HeldRequestView


def pending(options: argparse.Namespace, backend: Backend) -> int:
    found = backend.get(HeldRequestsView, "/approvals")
    ids = dict.fromkeys(one.request_id for one in found.requests)
    return show(options, found, lambda style: _held_lines(found.requests, style), lambda: ids)


def _held_lines(held: Sequence[HeldRequestView], style: Style) -> Iterator[str]:
    if not held:
        yield "No request waits for approval."
        return
    header = ("REQUEST", "TOPIC", "CHANGE", "BY", "RULES", "APPROVED BY", "EXPIRES")
    yield from style.table(header, map(_held_row, held))


def _held_row(one: HeldRequestView) -> tuple[object, ...]:
    approvers = " and ".join(dict.fromkeys(" or ".join(rule.approve_by) for rule in one.rules))
    rules = ",".join(rule.name for rule in one.rules)
    marked = Marked(approvers, "good" if one.may_approve else "")
    return one.request_id, one.topic, one.change, one.principal, rules, marked, one.expires_at


def approve(options: argparse.Namespace, backend: Backend) -> int:
    done = backend.send("POST", f"/requests/{quote(options.id, safe='')}/approve", ApprovalView)
    lines = [f"request {done.held} is approved, as request {done.request_id}"]
    lines += [f"{one.topic}: {one.message or ('done' if not one.code else one.error)}" for one in done.topics]
    show(options, done, lambda _: lines, lambda: [done.request_id])
    return NEGATIVE if any(one.code and one.error != "REQUEST_TIMED_OUT" for one in done.topics) else DONE


def deny(options: argparse.Namespace, backend: Backend) -> int:
    body = {"because": options.because}
    done = backend.send("POST", f"/requests/{quote(options.id, safe='')}/deny", ApprovalView, body=body)
    return show(options, done, lambda _: [f"request {done.held} is denied"], lambda: [done.held])
