"""Rules for changes of topics over HTTP: test a text, backtest it on past requests, decide these again, apply a text;
and list, approve and deny the requests that wait for approval.

The first three run in a process of their own (`projections.replay.redecide.in_service`), one at a time, so that
they hold up nothing else. The process is ended when the client disconnects and when the service stops.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, TypeVar

import msgspec
import structlog
from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from controller.access.authorizer import Caller
from controller.http.changes import Changes
from controller.http.errors import invalid, refusal_of, refused
from controller.http.permissions import Reader
from controller.http.query_threads import TooBusy
from controller.http.requests import takes
from controller.machine.commands.access import ApplyRules, EndApprovals
from controller.machine.commands.commands import Approval, CreateTopic
from controller.machine.configs.topic_configs import UNPRINTABLE
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.machine.recorded_command import APPROVED_TIMEOUT_MS, approved_command
from controller.machine.rules.approval import approvers, gone, own
from controller.machine.rules.reading import new_rules, refuse_approval
from controller.machine.rules.rule import RulesError
from events.catalog import ApprovalRequested
from events.logs.rocksdb_log import RocksDbLog
from events.names import RequestId
from projections.queries.events import starts
from projections.queries.past import QueryClosed
from projections.queries.query import Queries
from projections.text.points_in_time import InvalidPointInTime, iso, parse_point_in_time
from projections.views.backtests import LIMIT_S, LogRange, Past, RulesTestView, Task, TrialView
from projections.views.requests import ApprovalView, HeldRequestsView, held_view
from projections.views.topics import refusal

REASON_CHARACTERS_MAX: Final = 1000
_Reader = NamedDependency[Reader]
_View = TypeVar("_View", TrialView, RulesTestView)
_MODULE: Final = "projections.replay.redecide.in_service"
_DAYS: Final = re.compile(r"([0-9]{1,5})d")
_DAY_MS: Final = 86_400_000
_STDERR_LOGGED_MAX: Final = 2_000
_logger = structlog.get_logger("topicwright.http")


class RulesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules to apply. With `after`, the version that the caller has seen, they are refused if another version was
    applied meanwhile."""

    text: str
    """The rules as TOML; an empty text removes all rules."""
    after: Annotated[int, msgspec.Meta(ge=0)] | None = None


class RulesAppliedView(msgspec.Struct, frozen=True):
    """The version of the rules that is effective now."""

    number: int


class TestBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules to test."""

    text: str
    """The rules as TOML."""


class RedecideBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The point in time from which on past requests are decided again."""

    since: str = "30d"
    """A number of days ago (30d), an offset, or a time."""


class BacktestBody(RedecideBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rules to try on past requests, and from which point in time on."""

    text: str
    """The rules as TOML; an empty text tries no rules."""


async def run(trials: asyncio.Lock, reader: Reader, task: Task, kind: type[_View]) -> _View:
    """Run a trial. Raises Refused, TooBusy, and QueryClosed if the service stops."""
    if trials.locked():
        raise TooBusy("a test, backtest or redecide of rules is running already; try again when it has ended")
    async with trials:
        await check_text(reader, task.text or "")
        answer = msgspec.json.decode(await _answer(reader, msgspec.json.encode(task)), type=kind | str)
    if isinstance(answer, str):
        raise invalid(answer)
    return answer


async def _answer(reader: Reader, task: bytes) -> bytes:
    """The output of the process for a task. Raises Refused, QueryClosed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command, pipe = (sys.executable, "-P", "-m", _MODULE), subprocess.PIPE
    # with asyncio, uvloop would copy this process's page tables: 50 ms for each gigabyte
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)  # noqa: ASYNC220
    talk = asyncio.ensure_future(asyncio.to_thread(process.communicate, task))
    stops = asyncio.ensure_future(reader.threads.stopping.wait())
    try:
        await asyncio.wait((talk, stops), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stops.cancel()
        process.kill()  # ends the thread too; no effect on a process that has ended
        await asyncio.gather(talk, return_exceptions=True)
    output, errors = talk.result()
    if process.returncode == 0:
        return output
    if process.returncode == -signal.SIGKILL:
        raise QueryClosed("the service is stopping, or its machine has too little memory for this")
    if process.returncode == -signal.SIGALRM:
        raise invalid(f"it took longer than {LIMIT_S} s: choose a later time in since, or simpler rules")
    output_end = errors[-_STDERR_LOGGED_MAX:].decode(errors="replace")
    _logger.error("trial of rules failed", code=process.returncode, output=output_end)
    raise refused(500, ErrorCode.UNKNOWN_SERVER_ERROR, "the trial failed; the service's log has the cause")


async def check_text(reader: Reader, text: str) -> None:
    """Raise Refused for invalid rules, and for rules that need approval where requests cannot wait. Raises TooBusy."""
    try:  # in a query thread, because it may take seconds; deciding finds the result in the cache, but no error
        if text:
            await reader.threads.run(new_rules, text)
        if not reader.api.decides_here:
            refuse_approval(text)
    except RulesError as error:
        raise refused(400, ErrorCode.INVALID_CONFIG, str(error)) from None


_Trials = NamedDependency[asyncio.Lock]
"""Held by the trial that is running."""


@post("/rules/test", status_code=200, **takes(TestBody))
async def test_rules(reader: _Reader, trials: _Trials, content: NamedDependency[TestBody]) -> RulesTestView:
    """Check a text of rules, and try its examples."""
    reader.require()
    return await run(trials, reader, Task(content.text, reader.api.controller.now_ms()), RulesTestView)


@post("/rules/backtest", status_code=200, **takes(BacktestBody))
async def backtest_rules(reader: _Reader, trials: _Trials, content: NamedDependency[BacktestBody]) -> TrialView:
    """Try rules on the requests since a point in time: those that would have ended otherwise, by principal. Nothing
    changes."""
    return await run(trials, reader, await _task(reader, content.text, content.since), TrialView)


@post("/rules/redecide", status_code=200, **takes(RedecideBody))
async def redecide(reader: _Reader, trials: _Trials, content: NamedDependency[RedecideBody]) -> TrialView:
    """Decide the requests since a point in time again, each by the rules that were recorded before it: those that end
    otherwise, with the cause. Nothing changes."""
    return await run(trials, reader, await _task(reader, None, content.since), TrialView)


async def _task(reader: Reader, text: str | None, since: str) -> Task:
    """A trial on the requests since a point in time. Raises Refused."""
    reader.require()
    now_ms, days = reader.api.controller.now_ms(), _DAYS.fullmatch(since.strip())
    since = since if days is None else f"{max(0, now_ms - int(days[1]) * _DAY_MS)}ms"
    try:
        past = await reader.threads.run(_past, reader.queries, since)
    except InvalidPointInTime as error:
        raise invalid(f"{error}, or a number of days ago (30d)") from None
    return Task(text, now_ms, past)


def _past(queries: Queries, since: str) -> Past:
    """The requests since a point in time. Raises Refused, InvalidPointInTime."""
    begins, ends = starts(queries, since, "since"), queries.end()
    logs = []
    for part, start, end in zip(queries.parts, begins, ends, strict=True):
        if not isinstance(part.log, RocksDbLog):
            raise refused(503, ErrorCode.KAFKA_STORAGE_ERROR, "the log of this service is not on a disk")
        logs.append(LogRange(str(part.log.path), part.partition, min(start, end), end))
    began = parse_point_in_time(since)
    words = f"offset {began}" if isinstance(began, int) else iso(round(began.timestamp() * 1000))
    return Past(tuple(logs), words, queries.as_of(ends))


@post("/rules", status_code=200, **takes(RulesBody))
async def apply_rules(reader: _Reader, content: NamedDependency[RulesBody]) -> RulesAppliedView:
    """Replace the rules for changes of topics. They apply to every change decided afterwards."""
    reader.require(operation="Alter")
    await check_text(reader, content.text)
    answer = await _decided(reader, ApplyRules, text=content.text, after=content.after)
    return RulesAppliedView(answer.number)


async def _decided(reader: Reader, kind: type[ApplyRules | EndApprovals], **content: Any) -> Answer:
    """The answer to a command of the caller. Raises Refused."""
    caller, controller = reader.caller, reader.api.controller
    content |= {"principal": caller.principal, "client_id": caller.client_id, "host": caller.host}
    command = kind(request_id=controller.new_request_id(), at_ms=controller.now_ms(), **content)
    (answer,) = await reader.api.submit([command])
    if answer.code:
        raise refusal_of(answer)
    return answer


# Requests that wait for approval.


class DenyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reason of a denial, for the requester."""

    because: Annotated[str, msgspec.Meta(min_length=1, max_length=REASON_CHARACTERS_MAX)]


@get("/approvals")
async def approvals(reader: _Reader) -> Response[HeldRequestsView]:
    """The requests that wait for approval: those that the caller made or may approve, and those for topics that the
    caller may describe."""
    held = sorted(_visible(reader), key=lambda one: (one.expires_at_ms, one.request_id, one.name))
    own, caller = reader.caller.principal, reader.caller
    found = HeldRequestsView(tuple(held_view(one, one.principal != own and is_approver(caller, one)) for one in held))
    return await reader.answer(lambda _: found)


def is_approver(caller: Caller, held: ApprovalRequested) -> bool:
    """True if each rule that holds a request lists the caller, or a role of the caller."""
    principal, roles = caller.principal, caller.roles
    return all(any(one in roles or (":" in one and fnmatchcase(principal, one)) for one in by) for _, by in held.rules)


def _visible(reader: Reader) -> list[ApprovalRequested]:
    caller, held = reader.caller, reader.api.cluster.held.values()
    return [
        one for one in held if caller.principal == one.principal or is_approver(caller, one) or reader.allows(one.name)
    ]


def _held(reader: Reader, request_id: str, verb: str) -> list[ApprovalRequested]:
    """The topics of a held request that the caller may decide. Raises Refused without any, which the log records if the
    caller sees the request."""
    caller, found = reader.caller, [one for one in _visible(reader) if one.request_id == request_id]
    if not found:
        raise refused(404, ErrorCode.RESOURCE_NOT_FOUND, gone(request_id))
    is_own, code = found[0].principal == caller.principal, ErrorCode.POLICY_VIOLATION
    decidable = [one for one in found if (verb == "deny" if is_own else is_approver(caller, one))]
    if not decidable:
        message = f"{caller.principal} may not {verb} this request, but {approvers(found[0])} may."
        reader.api.controller.refusals.record_denial(caller, "", f"Topic:{found[0].name}", int(code), "approval")
        raise refused(403, code, own(caller.principal) if is_own else message)
    return decidable


@post("/requests/{request_id:str}/approve", status_code=200)
async def approve(reader: _Reader, changes: NamedDependency[Changes], request_id: FromPath[str]) -> ApprovalView:
    """Approve a request, for the topics that the caller may approve: its changes are decided now, by the rules of now
    except those that held it. A change that is refused waits on; the status is 200 if one of several is done."""
    caller, api, held = reader.caller, reader.api, _held(reader, request_id, "approve")
    new_id, at_ms = api.controller.new_request_id(), api.controller.now_ms()
    approval = Approval(RequestId(request_id), caller.principal, caller.client_id, caller.host)
    commands = [
        approved_command(one, approval, request_id=new_id, at_ms=at_ms, topic_id=topic_id)
        for one, topic_id in zip(held, api.new_topic_ids(len(held)), strict=True)
    ]
    is_create = isinstance(commands[0], CreateTopic)
    answering = api.submit(commands, APPROVED_TIMEOUT_MS) if is_create else api.submit_change(commands)
    answers = await changes.answers(new_id, answering)
    if all(one.code and not (one.code == ErrorCode.REQUEST_TIMED_OUT and one.topic) for one in answers):
        raise refusal_of(answers[0])
    return ApprovalView(new_id, request_id, {one.topic_name: refusal(one) for one in answers})


@post("/requests/{request_id:str}/deny", status_code=200, **takes(DenyBody))
async def deny(reader: _Reader, request_id: FromPath[str], content: NamedDependency[DenyBody]) -> ApprovalView:
    """Deny a request. Its requester may do this too, to withdraw it."""
    if UNPRINTABLE.search(content.because):  # it is sent on, for example to Slack
        raise invalid("because: has control characters; allowed: one line of printable text")
    held = tuple((one.request_id, one.name) for one in _held(reader, request_id, "deny"))
    answer = await _decided(reader, EndApprovals, held=held, reason=content.because)
    return ApprovalView(answer.request_id, request_id)
