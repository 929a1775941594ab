"""What the commands read and print alike: values of flags, each checked as it is parsed, and complaints."""

from __future__ import annotations

import argparse
import sys

from projections.queries.moments import BadMoment, parse_moment

WRONG = 2
"""The exit code of wrong usage or settings, or of what cannot be read."""


def complain(message: str, code: int = WRONG) -> int:
    """Print why a command ends, after all that it printed before; returns the exit code."""
    sys.stdout.flush()
    print(f"topicwright: {message}", file=sys.stderr)
    return code


def moment(text: str) -> str:
    """A point in time or an offset, for the service to read. Raises ArgumentTypeError."""
    try:
        parse_moment(text)
    except BadMoment as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def pair(text: str) -> tuple[str, str]:
    """The two sides of KEY=VALUE. Raises ArgumentTypeError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def count(text: str) -> int:
    """A whole number, such as an offset. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)
