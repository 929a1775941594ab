"""What the commands read and print alike: values of flags, each checked as it is parsed, and complaints."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from controller.cli.terminal.tables import harmless

WRONG = 2
"""The exit code of wrong usage or settings, or of what cannot be read."""


def complain(message: str, code: int = WRONG) -> int:
    """Print why a command ends, after all that it printed before; returns the exit code."""
    sys.stdout.flush()
    shown = "\n".join(map(harmless, message.split("\n")))
    print(f"topicwright: {shown}", file=sys.stderr)
    return code


def with_output(run: Callable[[], int]) -> int:
    """Run a command that prints; the exit code. Who has read enough of it ends it quietly, as `| head` does; a full
    disk behind standard output is said, since what was printed is not all."""
    try:
        code = run()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _print_nowhere()
        return 0
    except OSError as error:
        if error.filename is not None:
            return complain(in_words(error))
        _print_nowhere()
        return complain(f"what is printed cannot be written: {in_words(error)}")


def _print_nowhere() -> None:
    """Let Python flush what it still holds of standard output without another error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def in_words(error: Exception) -> str:
    """What an error says, for people: of the operating system's the file and the reason, without numbers."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def pair(text: str) -> tuple[str, str]:
    """The two sides of KEY=VALUE. Raises ArgumentTypeError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def named(text: str) -> str:
    """A name that is not empty. Raises ArgumentTypeError."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty: name one")
    return text


def count(text: str) -> int:
    """A whole number, such as an offset. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)
