"""What Kafka's clients say about themselves, in the lines that everything else is told in."""

from __future__ import annotations

import logging

import structlog

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
