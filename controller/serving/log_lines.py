"""Writes the log lines of every process: JSON on standard error, through structlog; lines of decisions in bulk.

Lines that cannot be written are dropped: a full disk or a closed pipe behind standard error must not stop the
controller, which may be about to log why it cannot write its own log.

Clients and peers cause log lines without authentication, so their rate is bounded. The text (`event`) of a line is its
kind and contains nothing that a client sent. Of each kind LINES_AT_ONCE are written immediately and then LINES_PER_S;
the next line reports how many were left out. Long values are truncated, except `trace`.
"""

import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import structlog

from projections.text.points_in_time import iso


def configure_logs(level: str) -> None:
    """Write log lines of at least this level as JSON, one a line, to standard error; also those of the HTTP server."""
    structlog.configure(
        processors=[
            LogLimits(time.monotonic),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _in_order,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str, skipkeys=True, ensure_ascii=False, separators=(",", ":")),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_LineLogger,
        cache_logger_on_first_use=True,
    )
    forward_logs(HTTP_SERVER)


def _in_order(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Time, level and event first, as in the lines of decisions (`controller.engine.reports`)."""
    at = iso(time.time_ns() // 1_000_000)
    return {"at": at, "level": line.pop("level"), "event": line.pop("event"), **line}


def write_lines(lines: bytes) -> None:
    """Write whole lines to standard error at once, and drop those that it does not accept."""
    try:
        descriptor = sys.stderr.fileno()
        rest = memoryview(lines)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        return


class _LineLogger:
    """Writes rendered lines; structlog has filtered them by level."""

    def __init__(self, *_: object) -> None:
        pass

    def msg(self, line: str) -> None:
        write_lines(line.encode("utf-8", "replace") + b"\n")

    log = debug = info = warn = warning = error = critical = fatal = exception = failure = msg


HTTP_SERVER: Final = "uvicorn.error"
KAFKA_CLIENTS: Final = ("aiokafka", "kafka", "faust", "mode", "asyncio")


class _ToLogLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log, message = structlog.get_logger("topicwright"), record.getMessage()
        write = log.error if record.levelno >= logging.ERROR else log.warning
        if record.name == HTTP_SERVER:
            write("http server", why=message, exc_info=record.exc_info or None)
        else:
            write("kafka client", message=message, by=record.name, exc_info=record.exc_info or None)


def forward_logs(*libraries: str) -> None:
    """Write warnings and errors of libraries as JSON log lines."""
    for name in libraries:
        logger = logging.getLogger(name)
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        if not any(isinstance(handler, _ToLogLines) for handler in logger.handlers):
            logger.addHandler(_ToLogLines())


LINES_AT_ONCE: Final = 200
LINES_PER_S: Final = 2
CHARACTERS_MAX: Final = 500


class LogLimits:
    """A structlog processor that limits the rate and length of lines; `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}
        """The last time of a line of each kind, and how many lines were left then."""
        self._suppressed = Counter[str]()

    def __call__(self, _: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Return the truncated line. Raises DropEvent if it exceeds the rate."""
        kind, now_s = line["event"], self._clock()
        at_s, left = self._left.get(kind, (now_s, LINES_AT_ONCE))
        left = min(LINES_AT_ONCE, left + (now_s - at_s) * LINES_PER_S)
        self._left[kind] = now_s, left - 1 if left >= 1 else left
        if left < 1:
            self._suppressed[kind] += 1
            raise structlog.DropEvent
        for name, value in line.items():
            if isinstance(value, str) and len(value) > CHARACTERS_MAX and name != "trace":
                line[name] = f"{value[:CHARACTERS_MAX]}… ({len(value)} characters)"
        if suppressed := self._suppressed.pop(kind, 0):
            line["suppressed"] = suppressed
        return line
