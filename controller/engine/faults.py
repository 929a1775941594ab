"""Commands on which deciding raised: each fails alone.

The client gets UNKNOWN_SERVER_ERROR. The failure is counted, logged with its trace, and recorded as a refusal by the
rule `fault:EXCEPTION`. Of similar failures in an interval only the first is logged and recorded, so that no client can
fill a log with them.

Non-goal: undoing the command's changes. The recorder restores the state (`savepoint`).
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Hashable
from typing import Any, Final

import msgspec

from controller.access.refusals import RefusalRecords
from controller.machine.access.permissions import CLUSTER_NAME
from controller.machine.commands import NO_TOPIC
from controller.machine.commands.access import RecordRefusals
from controller.machine.commands.commands import AnyCommand
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode

FAILED: Final = "The controller failed on this request. Its log has the cause."
CONTROLLER: Final = "(controller)"
"""The principal of commands without a client."""
INTERVAL_S: Final = 60.0
KINDS_MAX: Final = 1000
NAME_CHARS_MAX: Final = 249
"""Kafka's limit for a topic name."""
TRACE_CHARS_MAX: Final = 8000


class Failed(msgspec.Struct, frozen=True):
    """The requester of a failed command."""

    principal: str
    client_id: str | None
    api: str
    host: str = ""


class LogRateLimiter:
    """Passes the first line of a kind in an interval, and counts the others."""

    def __init__(self) -> None:
        self._since_s: dict[Hashable, float] = {}
        self._others: dict[Hashable, int] = {}

    def passes(self, kind: Hashable) -> int | None:
        """The number of lines suppressed since the last one of this kind; None if this one is suppressed too."""
        now_s = asyncio.get_running_loop().time()
        if kind not in self._since_s and len(self._since_s) >= KINDS_MAX:
            kind = None
        if now_s - self._since_s.get(kind, -INTERVAL_S) < INTERVAL_S:
            self._others[kind] = self._others.get(kind, 0) + 1
            return None
        self._since_s[kind] = now_s
        return self._others.pop(kind, 0)


class Faults:
    """Reports failed commands: log lines, a counter, and refusals."""

    def __init__(self, log: Any, count: Callable[[str], None], refusals: RefusalRecords) -> None:
        self._log = log
        self._count = count
        self._refusals = refusals
        self._log_limiter = LogRateLimiter()

    def record(self, command: AnyCommand, error: Exception) -> Answer:
        """Report a failed command; returns the answer for its client."""
        kind, topic = type(command).__name__, _topic_of(command)
        self._count(kind)
        self.log(kind, command.request_id, topic, error)
        if not isinstance(command, RecordRefusals):  # recording its failure would submit another one, forever
            client_id = getattr(command, "client_id", None)
            requester = Failed(_plain(getattr(command, "principal", CONTROLLER)), client_id and _plain(client_id), kind)
            resource = f"Topic:{topic}" if topic else f"Cluster:{CLUSTER_NAME}"
            rule = f"fault:{type(error).__name__}"
            self._refusals.record_denial(requester, "", resource, int(ErrorCode.UNKNOWN_SERVER_ERROR), rule)
        topic_name = getattr(command, "topic", NO_TOPIC)
        return Answer(command.request_id, topic_name, int(ErrorCode.UNKNOWN_SERVER_ERROR), FAILED)

    def log(self, kind: str, request_id: str, topic: str, error: Exception) -> None:
        """Write the log line, if it is the first of its kind in an interval."""
        suppressed = self._log_limiter.passes((kind, place_of(error)))
        if suppressed is None:
            return
        self._log.error(
            "command failed",
            command=kind,
            request=request_id,
            topic=topic,
            why=one_line(error),
            suppressed=suppressed,
            trace=trace_of(error),
        )


def one_line(error: BaseException) -> str:
    """The exception in one line of bounded length."""
    return f"{type(error).__name__}: {error}"[:TRACE_CHARS_MAX]


def trace_of(error: BaseException) -> str:
    """The end of the traceback, with the exception."""
    return "".join(traceback.format_exception(error))[-TRACE_CHARS_MAX:]


def place_of(error: BaseException) -> tuple[str, str, int]:
    """Type, file and line of the exception."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    file, line = ("", 0) if last is None else (last.tb_frame.f_code.co_filename, last.tb_lineno)
    return type(error).__name__, file, line


def _topic_of(command: AnyCommand) -> str:
    """The topic of a command; empty for none or several."""
    several: tuple[str, ...] = getattr(command, "topics", ())
    return _plain(several[0] if len(several) == 1 else getattr(command, "topic", NO_TOPIC))


def _plain(text: str) -> str:
    """The text in bounded length and valid UTF-8."""
    return text[:NAME_CHARS_MAX].encode("utf-8", "replace").decode()
