"""Requests that wait for approval over HTTP: list, approve and deny them.

`approve_by` of the rules that hold a request names its approvers: principals, and roles of tokens. Nobody approves
their own request; its requester may deny it, to withdraw it.
"""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from typing import Annotated, Final

import msgspec
from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from controller.controller_api import Reply
from controller.http.errors import Refused, refusal_of, refused
from controller.http.permissions import Reader
from controller.http.requests import Caller, takes
from controller.machine.commands.access import DenyRequest
from controller.machine.commands.commands import Approval, CreateTopic
from controller.machine.errors import ErrorCode
from controller.machine.recorded_command import APPROVED_TIMEOUT_MS, approved_command
from controller.machine.rules.approval import approvers, gone, own
from events.catalog import ApprovalRequested
from events.names import RequestId
from projections.text.names import error_name
from projections.views.approvals import ApprovalView, ApprovedTopicView, HeldRequestsView, HeldRequestView

REASON_CHARACTERS_MAX: Final = 1000
_Reader = NamedDependency[Reader]


class DenyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reason of a denial, for the requester."""

    because: Annotated[str, msgspec.Meta(min_length=1, max_length=REASON_CHARACTERS_MAX)]


def _is_approver(caller: Caller, held: ApprovalRequested) -> bool:
    return all(
        any(one in caller.roles or (":" in one and fnmatchcase(caller.principal, one)) for one in rule.approve_by)
        for rule in held.rules
    )


@get("/approvals")
async def approvals(reader: _Reader) -> Response[HeldRequestsView]:
    """The requests that wait for approval: those that the caller made or may approve, and those for topics that the
    caller may describe."""
    held = sorted(_visible(reader), key=lambda one: (one.expires_at_ms, one.request_id, one.name))
    views = (HeldRequestView.of(one, _may_approve(reader.caller, one)) for one in held)
    found = HeldRequestsView(tuple(views))
    return await reader.answer(lambda _: found)


def _visible(reader: Reader) -> list[ApprovalRequested]:
    caller = reader.caller
    return [
        one
        for one in reader.api.cluster.held.values()
        if one.principal == caller.principal or _is_approver(caller, one) or reader.allows(one.name)
    ]


def _may_approve(caller: Caller, held: ApprovalRequested) -> bool:
    return held.principal != caller.principal and _is_approver(caller, held)


def _held(reader: Reader, request_id: str) -> list[ApprovalRequested]:
    """The topics of a held request. Raises Refused if the caller sees none."""
    found = [one for one in _visible(reader) if one.request_id == request_id]
    if not found:
        raise refused(404, ErrorCode.RESOURCE_NOT_FOUND, gone(request_id))
    return found


def _refusal(reader: Reader, held: ApprovalRequested, rule: str, message: str) -> Refused:
    """The refusal of somebody who may not decide a request; it is recorded."""
    reader.api.controller.refusals.record_denial(
        reader.caller, "", f"Topic:{held.name}", int(ErrorCode.POLICY_VIOLATION), rule
    )
    return refused(403, ErrorCode.POLICY_VIOLATION, message)


@post("/requests/{request_id:str}/approve", status_code=200)
async def approve(reader: _Reader, request_id: FromPath[str]) -> ApprovalView:
    """Approve a request: its changes are decided now, by the rules of now except those that held it. A change that is
    refused waits on; the status is 200 if one of several is done."""
    caller, api = reader.caller, reader.api
    held = _held(reader, request_id)
    for one in held:
        if one.principal == caller.principal:
            raise _refusal(reader, one, "approval:own", own(caller.principal))
        if not _is_approver(caller, one):
            message = f"{caller.principal} may not approve this request: that may {approvers(one.rules)}."
            raise _refusal(reader, one, "approval:approvers", message)
    stamps = {"request_id": api.controller.new_request_id(), "at_ms": api.controller.now_ms()}
    approval = Approval(RequestId(request_id), caller.principal, caller.client_id, caller.host)
    commands = [approved_command(one, approval, stamps) for one in held]
    is_create = isinstance(commands[0], CreateTopic)
    submitted = api.submit(commands, APPROVED_TIMEOUT_MS) if is_create else api.submit_change(commands)
    answers = (await _reply(reader, submitted)).answers
    done = [one for one in answers if one.code == 0 or (one.code == ErrorCode.REQUEST_TIMED_OUT and one.topic)]
    if not done:
        raise refusal_of(answers[0])
    topics = (ApprovedTopicView(one.topic_name, error_name(one.code), one.code, one.message) for one in answers)
    return ApprovalView(stamps["request_id"], request_id, tuple(topics))


async def _reply(reader: Reader, submitted: asyncio.Future[Reply]) -> Reply:
    stops = asyncio.ensure_future(reader.threads.stopping.wait())
    try:
        await asyncio.wait((submitted, stops), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stops.cancel()
    if not submitted.done():
        raise refused(503, ErrorCode.REQUEST_TIMED_OUT, "the service is stopping; /v1/approvals shows what waits on")
    return submitted.result()


@post("/requests/{request_id:str}/deny", status_code=200, **takes(DenyBody))
async def deny(reader: _Reader, request_id: FromPath[str], content: NamedDependency[DenyBody]) -> ApprovalView:
    """Deny a request for all its topics. Its requester may do this too, to withdraw it."""
    caller, controller = reader.caller, reader.api.controller
    for one in _held(reader, request_id):
        if one.principal != caller.principal and not _is_approver(caller, one):
            message = f"{caller.principal} may not deny this request: that may {approvers(one.rules)}."
            raise _refusal(reader, one, "approval:approvers", message)
    command = DenyRequest(
        request_id=controller.new_request_id(),
        at_ms=controller.now_ms(),
        held=RequestId(request_id),
        reason=content.because,
        principal=caller.principal,
        client_id=caller.client_id,
        host=caller.host,
    )
    (answer,) = (await _reply(reader, reader.api.submit([command]))).answers
    if answer.code:
        raise refusal_of(answer)
    return ApprovalView(command.request_id, request_id)
