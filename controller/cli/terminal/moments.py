"""Times as people say them, made absolute where they are typed: `5m`, `2h`, `yesterday 14:00`, `14:00`, `today`, `now`.

Hours of a day are those of the terminal's time zone. What a log understands (an offset, ISO-8601, milliseconds) goes
through as it is.
"""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta

AGO = "5m, 2h or 3d (so long ago), yesterday 14:00, 14:00"
_SPAN = re.compile(r"(\d{1,6})\s*(s|sec|m|min|h|d|w)(\s+ago)?")
_UNITS = {"s": "seconds", "sec": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAY = re.compile(r"(now|today|yesterday)?\s*(?:(\d{1,2}):(\d\d)(?::(\d\d))?)?")
NEWEST_SPAN = timedelta(days=365 * 50)


def absolute(text: str, now: datetime) -> str | None:
    """A time that is named relative to `now`, as ISO-8601 in UTC; None for other texts. Raises ValueError for an hour
    that no day has, and a span that goes back beyond all logs."""
    word = " ".join(text.lower().split())
    span = _SPAN.fullmatch(word)
    if span is not None:
        ago = timedelta(**{_UNITS[span[2]]: int(span[1])})
        if ago > NEWEST_SPAN:
            raise ValueError(f"{text!r} is longer ago than any log")
        return _iso(now - ago)
    day = _DAY.fullmatch(word)
    if day is None or not word:
        return None
    if word == "now":
        return _iso(now)
    if day[1] == "now":
        return None
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if day[1] == "yesterday":
        midnight = (midnight - timedelta(hours=12)).replace(hour=0)
    hour, minute, second = (int(part or 0) for part in day.groups()[1:])
    return _iso(midnight.replace(hour=hour, minute=minute, second=second))


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str) -> str:
    """A point in time or an offset, for a log to read. Raises ArgumentTypeError."""
    from projections.text.moments import BadMoment, parse_moment

    try:
        given = absolute(text, datetime.now().astimezone()) or text  # noqa: TID251 - the terminal's zone
        parse_moment(given)
    except BadMoment as error:
        raise argparse.ArgumentTypeError(f"{error}, or {AGO}") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return given


def time(text: str) -> str:
    """A point in time, not an offset. Raises ArgumentTypeError."""
    given = moment(text)
    if given.isascii() and given.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is an offset: say a time, such as {AGO}")
    return given
