"""Log lines: JSON on standard error, through structlog, and in bulk for decisions.

What cannot be written is dropped: a full disk or a closed pipe behind standard error must not stop the controller,
which may be about to say why it cannot write its own log.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import MutableMapping
from typing import Any

import msgspec
import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

OF_STRANGERS = frozenset(
    {"connection_closed", "connection_refused", "tls_handshake_failed", "authentication_failed", "http server"}
)
"""The lines that clients can cause before they log in."""
LINES_A_MINUTE = 300
TEXT_CHARACTERS_MAX = 500
_TO_THE_MINUTE = len("2026-01-01T00:00")

_encoder = msgspec.json.Encoder(enc_hook=str)


def configure_logs(level: str) -> None:
    """Write log lines of at least this level as JSON, one a line, to standard error."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            SparingLines(),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_to_json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=_LineLogger,
        cache_logger_on_first_use=True,
    )


class SparingLines:
    """Bounds what clients can have logged before they log in: of each kind of line so many a minute, and so long.

    The first line of its kind in a later minute says how many were left out before it.
    """

    def __init__(self) -> None:
        self._written: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._minutes: dict[str, str] = {}

    def __call__(self, _: object, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """A line as it is to be written. Raises DropEvent for one that is not."""
        event = line["event"]
        if event not in OF_STRANGERS:
            return line
        minute = line["timestamp"][:_TO_THE_MINUTE]
        if self._minutes.get(event) != minute:
            self._minutes[event], self._written[event] = minute, 0
        self._written[event] += 1
        if self._written[event] > LINES_A_MINUTE:
            self._left_out[event] += 1
            raise structlog.DropEvent
        if left_out := self._left_out.pop(event, 0):
            line["left_out_before"] = left_out
        return {key: _cut(value) for key, value in line.items()}


def _cut(value: object) -> object:
    if not isinstance(value, str) or len(value) <= TEXT_CHARACTERS_MAX:
        return value
    return f"{value[:TEXT_CHARACTERS_MAX]}… ({len(value)} characters)"


def _to_json(line: dict[str, object], **_: object) -> str:
    try:
        return _encoder.encode(line).decode()
    except (UnicodeEncodeError, TypeError):  # a lone surrogate, or a key that is not text: some exceptions hold those
        return json.dumps(line, default=str, skipkeys=True)


def write_lines(lines: bytes) -> None:
    """Write whole lines to standard error at once, or drop what it does not take."""
    try:
        descriptor = sys.stderr.fileno()
        rest = memoryview(lines)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        return


class _LineLogger:
    """Where structlog's lines end: whatever their level, they have been filtered and rendered."""

    def __init__(self, *_: object) -> None:
        pass

    def msg(self, line: str) -> None:
        """Write one line."""
        write_lines(line.encode("utf-8", "replace") + b"\n")

    log = debug = info = warn = warning = error = critical = fatal = exception = failure = msg


_LIBRARIES = ("aiokafka", "kafka", "faust", "mode", "asyncio")


class _ToLogLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(f"topicwright.{record.name.partition('.')[0]}")
        write = log.error if record.levelno >= logging.ERROR else log.warning
        write("kafka client", said=record.getMessage(), by=record.name, exc_info=record.exc_info or None)


def forward_foreign_logs() -> None:
    """From now on warnings and errors of Kafka's clients and of Faust are log lines like all others."""
    for name in _LIBRARIES:
        logger = logging.getLogger(name)
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        if not any(isinstance(handler, _ToLogLines) for handler in logger.handlers):
            logger.addHandler(_ToLogLines())
