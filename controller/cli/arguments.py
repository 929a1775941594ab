"""Parses flag values and times, and prints errors with suggestions, for all modules of the command line. All parsers
of values raise ArgumentTypeError.

Times such as `5m`, `2h`, `yesterday 14:00`, `14:00`, `today` and `now` become absolute when they are parsed, in the
terminal's time zone, as do ISO-8601 times without a zone. Offsets and milliseconds pass unchanged.
"""

import argparse
import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, NoReturn

from controller.cli.output import with_local_times
from events.errors import UserError
from projections.text.names import is_pattern

DONE, NEGATIVE, WRONG = 0, 1, 2
EXIT_CODES: Final = """\
Exit codes: 0 done; 1 the answer is no: a change is refused, nothing has that name, or a check found something;
2 no answer: wrong usage, settings, input or login, a read without permission, or no service."""


def print_error(message: str, code: int = WRONG) -> int:
    """Print an error after all other output; returns the exit code."""
    sys.stdout.flush()
    lines = "\n".join(map(with_local_times, message.split("\n")))
    print(f"topicwright: {lines}", file=sys.stderr)
    return code


class Negative(UserError):
    """The answer is no: not found, refused, or not valid."""

    exit_code = NEGATIVE


def with_output(run: Callable[[], int | None]) -> int:
    """Run a command, print its errors, and return its exit code; None is 0. A closed pipe (`| head`) ends it quietly; a
    full disk behind standard output is an error."""
    try:
        code = _reported(run) or DONE
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard_output()
        return DONE
    except OSError as error:
        _discard_output()
        return print_error(f"cannot write to standard output: {error_text(error)}")


def _reported(run: Callable[[], int | None]) -> int | None:
    """Run a command and print its errors. Raises OSError if standard output cannot be written."""
    try:
        return run()
    except UserError as error:
        return print_error(str(error) or type(error).__name__, error.exit_code)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None and error.errno in _WRITE_ERRORS:
            print(flush=True)  # raises again if standard output is the cause
        return print_error(error_text(error))


_WRITE_ERRORS: Final = (errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)
"""The errors of a write to a full or failed disk, perhaps through standard output."""


def _discard_output() -> None:
    """Let Python flush standard output at exit without another error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def error_text(error: OSError) -> str:
    """The file and the reason of an error."""
    if error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def non_empty(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


NUMBER_DIGITS_MAX: Final = 20


def count_within(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < NUMBER_DIGITS_MAX and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low} to {high}")
        return int(text)

    return parse


_ADDRESS: Final = re.compile(r"(?:(https?)://)?(\[[0-9a-fA-F:.]+\]|[^\s/\[\]]+):(\d{1,5})/?")


class HttpAddress(NamedTuple):
    """The address of a service. `is_secure` means TLS."""

    host: str
    port: int
    is_secure: bool = False

    def __str__(self) -> str:
        return f"{'https://' if self.is_secure else ''}{self.host}:{self.port}"


def http_address(text: str) -> HttpAddress:
    found = _ADDRESS.fullmatch(text)
    if found is None or not 1 <= int(found[3]) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not [https://]HOST:PORT with a port from 1 to 65535")
    return HttpAddress(found[2].strip("[]"), int(found[3]), found[1] == "https")


def http_address_text(text: str) -> str:
    http_address(text)
    return text


OTHER_TOOLS: Final = {"list": "topics", "get": "topics", "describe": "topics NAME", "version": "--version"}
"""Commands of other tools."""
CHOICES_SHOWN_MAX: Final = 12


class Parser(argparse.ArgumentParser):
    """argparse without abbreviated flags. Errors come from the sub-command's parser, with its usage and suggestions."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **more})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Reject unknown arguments here, not in the parent parser."""
        found, unknown = super().parse_known_args(args, namespace)
        flag = next((word.partition("=")[0] for word in unknown if word.startswith("-")), None)
        if flag is not None:
            self.error(f"unknown flag {flag}{suggestion(flag, self._option_string_actions)}")
        if unknown:
            self.error(f"unexpected argument {unknown[0]!r}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(one) for one in action.choices]
        other = OTHER_TOOLS.get(str(value), "")
        hint = f"; did you mean `topicwright {other}`?" if other else suggestion(str(value), choices)
        listed = "" if hint or len(choices) > CHOICES_SHOWN_MAX else f"; allowed: {', '.join(choices)}"
        raise argparse.ArgumentError(action, f"unknown value {value!r}{hint}{listed}")

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, f"{self.prog}: error: {message}\n`{self.prog} --help` shows the flags.\n")


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of a message that suggests known words that contain the word, or a close one; "" if there is none."""
    from difflib import get_close_matches

    known = list(known)
    near = [one for one in known if len(word) > 3 and word.lower() in one.lower()][:3]
    near = near or get_close_matches(word, known, 1, 0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def event_types(**_: Any) -> Iterable[str]:
    from events.catalog import EVENT_TYPES

    return sorted(kind.__name__ for kind in EVENT_TYPES)


def event_type(text: str) -> str:
    known = list(event_types())
    if text not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is not an event type{suggestion(text, known)}")
    return text


def api_pattern(text: str) -> str:
    from controller.kafka.api_keys import ApiKey

    known = ["HTTP", *(one.name for one in ApiKey)]
    if not is_pattern(text) and text not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is not HTTP or an API of Kafka{suggestion(text, known)}")
    return text


def host_pattern(text: str) -> str:
    from ipaddress import ip_address

    try:
        return text if is_pattern(text) else str(ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an IP address, or a pattern of one") from None


def principal_pattern(text: str) -> str:
    return text if ":" in text or text.startswith("*") else f"User:{text}"


def rule_pattern(text: str) -> str:
    return text if ":" in text else f"*{text}"


AGO = "5m, 2h or 3d (ago), yesterday 14:00, 14:00"
_SPAN = re.compile(r"(\d{1,6})\s*(s|sec|m|min|h|d|w)(\s+ago)?")
_UNITS = {"s": "seconds", "sec": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAY = re.compile(r"(today|yesterday)?\s*(?:(\d{1,2}):(\d\d)(?::(\d\d))?)?")
SPAN_MAX = timedelta(days=365 * 50)


def absolute(text: str, now: datetime) -> str | None:
    """A relative time as ISO-8601 in UTC; None for any other text. Raises ValueError for an invalid hour, and a time
    too long ago."""
    word = " ".join(text.lower().split())
    span = _SPAN.fullmatch(word)
    if span is not None:
        ago = timedelta(**{_UNITS[span[2]]: int(span[1])})
        if ago > SPAN_MAX:
            raise ValueError(f"{text!r} is more than 50 years ago")
        return _iso(now - ago)
    if word == "now":
        return _iso(now)
    day = _DAY.fullmatch(word)
    if day is None or not word:
        return None
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if day[1] == "yesterday":
        midnight = (midnight - timedelta(hours=12)).replace(hour=0)
    hour, minute, second = (int(part or 0) for part in day.groups()[1:])
    return _iso(midnight.replace(hour=hour, minute=minute, second=second))


def _iso(point_in_time: datetime) -> str:
    return point_in_time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def point_in_time(text: str) -> str:
    """A point in time, or an offset."""
    from projections.text.points_in_time import InvalidPointInTime, parse_point_in_time, refuse_future

    now = datetime.now().astimezone()  # noqa: TID251 - the terminal's zone
    try:
        given = absolute(text, now) or text
        parsed = parse_point_in_time(given, is_local=True)
        refuse_future(text, parsed, round(now.timestamp() * 1000))
        if isinstance(parsed, datetime):
            given = _iso(parsed)
    except ValueError as error:
        more = f", or {AGO}" if isinstance(error, InvalidPointInTime) and "in the future" not in str(error) else ""
        raise argparse.ArgumentTypeError(f"{error}{more}") from None
    return given
