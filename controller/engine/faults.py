"""Commands on which deciding raised: each fails for itself, and nothing else does.

Its client is answered UNKNOWN_SERVER_ERROR. It is counted, logged with its trace, and in the log of events as a
refusal by the rule `fault:` and the exception; of those alike in an interval the first is logged and recorded, the
others are counted, so that nobody fills a log with them.

What it does not do: undo what the command changed. Whoever decides goes back to the state before it
(`projections.store.savepoint`).
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Hashable
from typing import Any, Final

import msgspec

from controller.access.refusals import RefusalRecords
from controller.machine.access.permissions import CLUSTER_NAME
from controller.machine.commands.access import RecordRefusals
from controller.machine.commands.base import NO_TOPIC
from controller.machine.commands.commands import AnyCommand
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode

FAILED: Final = "The controller failed on this request. Its log has the cause."
CONTROLLER: Final = "(controller)"
"""Stands for the principal of commands that no client requested."""
INTERVAL_S: Final = 60.0
KINDS_MAX: Final = 1000
NAME_CHARS_MAX: Final = 249
"""As long as Kafka lets a topic's name be."""
TRACE_CHARS_MAX: Final = 8000


class Failed(msgspec.Struct, frozen=True):
    """Who sent a command that failed, as permissions name it."""

    principal: str
    client_id: str | None
    api: str
    host: str = ""


class LogRateLimiter:
    """Lets through the first of a kind in an interval, and counts the others."""

    def __init__(self) -> None:
        self._since_s: dict[Hashable, float] = {}
        self._others: dict[Hashable, int] = {}

    def passes(self, kind: Hashable) -> int | None:
        """How many of the kind were held back since the last one that passed; None if this one is held back too."""
        now_s = asyncio.get_running_loop().time()
        if kind not in self._since_s and len(self._since_s) >= KINDS_MAX:
            kind = None
        if now_s - self._since_s.get(kind, -INTERVAL_S) < INTERVAL_S:
            self._others[kind] = self._others.get(kind, 0) + 1
            return None
        self._since_s[kind] = now_s
        return self._others.pop(kind, 0)


class Faults:
    """Takes note of commands that failed: in log lines of `log`, by `count`, and as refusals."""

    def __init__(self, log: Any, count: Callable[[str], None], refusals: RefusalRecords) -> None:
        self._log = log
        self._count = count
        self._refusals = refusals
        self._log_limiter = LogRateLimiter()

    def note(self, command: AnyCommand, error: Exception) -> Answer:
        """A command failed; returns what its client is answered."""
        kind, topic = type(command).__name__, _topic_of(command)
        self._count(kind)
        self.log(kind, command.request_id, topic, error)
        if not isinstance(command, RecordRefusals):  # or one that fails would be recorded by the next, for ever
            client_id = getattr(command, "client_id", None)
            who = Failed(_plain(getattr(command, "principal", CONTROLLER)), client_id and _plain(client_id), kind)
            resource = f"Topic:{topic}" if topic else f"Cluster:{CLUSTER_NAME}"
            rule = f"fault:{type(error).__name__}"
            self._refusals.note_denial(who, "", resource, int(ErrorCode.UNKNOWN_SERVER_ERROR), rule)
        topic_name = getattr(command, "topic", NO_TOPIC)
        return Answer(command.request_id, topic_name, int(ErrorCode.UNKNOWN_SERVER_ERROR), FAILED)

    def log(self, kind: str, request_id: str, topic: str, error: Exception) -> None:
        """Write the log line of the first of its kind in an interval."""
        held_back = self._log_limiter.passes((kind, place_of(error)))
        if held_back is None:
            return
        self._log.error(
            "command failed",
            command=kind,
            request=request_id,
            topic=topic,
            why=one_line(error),
            held_back=held_back,
            trace=trace_of(error),
        )


def one_line(error: BaseException) -> str:
    """An exception in one line of bounded length."""
    return f"{type(error).__name__}: {error}"[:TRACE_CHARS_MAX]


def trace_of(error: BaseException) -> str:
    """The end of an exception's trace, with the exception."""
    return "".join(traceback.format_exception(error))[-TRACE_CHARS_MAX:]


def place_of(error: BaseException) -> tuple[str, str, int]:
    """What was raised, and where."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    file, line = ("", 0) if last is None else (last.tb_frame.f_code.co_filename, last.tb_lineno)
    return type(error).__name__, file, line


def _topic_of(command: AnyCommand) -> str:
    """The topic of a command; empty for one of none or of many."""
    several: tuple[str, ...] = getattr(command, "topics", ())
    return _plain(several[0] if len(several) == 1 else getattr(command, "topic", NO_TOPIC))


def _plain(text: str) -> str:
    """A client's text as any log can hold it."""
    return text[:NAME_CHARS_MAX].encode("utf-8", "replace").decode()
