"""Parses points in time of a log, an offset or a time, from URLs and command lines, and finds them in the log.

    1234                          the state right after the command behind the event at offset 1234
    2026-07-17T10:00:00Z          the state right after the last event at or before that time; without a zone it is UTC
    2026-07-17                    the same, for 00:00 of that day (UTC)
    1784282400000ms               the same, in milliseconds since the epoch

Times in a log never decrease, so a binary search finds the event at a time.
"""

import re
from bisect import bisect_left, bisect_right
from datetime import UTC, datetime
from functools import lru_cache

from events.codec import decode_event
from events.errors import UserError
from events.logs.log import EventLog, read_one
from events.names import Offset

SYNTAX = (
    "an offset (1234), an ISO-8601 time (2026-07-17T10:00:00Z; UTC unless it names a zone) "
    "or milliseconds since the epoch (1784282400000ms)"
)

TEXT_SHOWN_MAX = 100
OFFSET_END = 2**63
"""The exclusive upper limit of offsets."""
_LOST_PLUS = re.compile(r"(?<=\d) (\d\d:?\d\d)$")
"""In a URL a `+` that is not escaped arrives as a space: `10:00:00+02:00` as `10:00:00 02:00`."""


class InvalidPointInTime(UserError, ValueError):
    """Text that is not a valid point in time, or one that the log has not reached; the message says what is allowed."""


PointInTime = Offset | datetime
"""An offset, or a time with its zone."""
CLOCK_SKEW_MS = 300_000
"""The clock of a client may be ahead by so much."""


def parse_point_in_time(text: str, *, is_local: bool = False) -> PointInTime:
    """Parse a point in time; without a zone it is UTC, or with `is_local` this machine's. Raises InvalidPointInTime."""
    word = text.strip()
    try:
        if word.isascii() and word.isdigit():
            return Offset(int(word))
        if word.endswith("ms") and word[:-2].isascii() and word[:-2].isdigit():
            return datetime.fromtimestamp(int(word[:-2]) / 1000, UTC)
        point_in_time = datetime.fromisoformat(_LOST_PLUS.sub(r"+\1", word) if "T" in word else word)
        if is_local:
            return point_in_time.astimezone()
    except (ValueError, OverflowError, OSError):
        raise InvalidPointInTime(f"{text[:TEXT_SHOWN_MAX]!r} is not a valid point in time: use {SYNTAX}") from None
    return point_in_time if point_in_time.tzinfo is not None else point_in_time.replace(tzinfo=UTC)


def refuse_future(text: str, point_in_time: PointInTime, now_ms: int, prefix: str = "") -> None:
    """Raise InvalidPointInTime for a time in the future; its message begins with the prefix."""
    if isinstance(point_in_time, datetime) and point_in_time.timestamp() * 1000 > now_ms + CLOCK_SKEW_MS:
        raise InvalidPointInTime(f"{prefix}{text[:TEXT_SHOWN_MAX]!r} is in the future: it is {iso(now_ms)} now")


def end_at(log: EventLog, point_in_time: PointInTime) -> int:
    """The offset after the last durable event at a point in time: 0 before the first event.

    A time after the newest event means now. Raises InvalidPointInTime for an offset that the log has not reached.
    """
    end = log.durable_offset
    if isinstance(point_in_time, datetime):
        at_ms = round(point_in_time.timestamp() * 1000)
        return bisect_right(range(end), at_ms, key=lambda offset: decode_event(offset, read_one(log, offset)).at_ms)
    if point_in_time >= end:
        shown = str(point_in_time) if point_in_time < OFFSET_END else f"{OFFSET_END} and more"
        newest = f"the newest event is at offset {end - 1}" if end else "the log is empty"
        raise InvalidPointInTime(f"offset {shown} is not reached yet: {newest}")
    return end if point_in_time == end - 1 else _end_of_command(log, point_in_time, end)


ONE_TOPIC = frozenset(
    [
        "CreateTopic",
        "CreatePartitions",
        "DeleteTopic",
        "AlterTopicConfigs",
        "ElectLeaders",
        "ReassignPartitions",
        "DiscoverDeletion",
    ]
)
"""Commands of one topic each, of which a request may have several."""


def _end_of_command(log: EventLog, offset: int, end: int) -> int:
    """The offset after the last event of the command behind an event. A state between two events of a command never
    existed."""

    def command(at: int) -> tuple[object, ...]:
        record = decode_event(Offset(at), read_one(log, Offset(at)))
        topic = getattr(record.event, "topic", None) if record.cause.command in ONE_TOPIC else None
        return record.at_ms, record.cause, topic

    own, step = command(offset), 1
    while offset + step < end and command(offset + step) == own:
        step *= 2
    return bisect_left(range(end), True, offset + step // 2, min(offset + step, end), key=lambda at: command(at) != own)


def time_at(log: EventLog, end: int) -> int | None:
    """The time of the last event before `end`, in ms since the epoch; None if there is none."""
    return decode_event(end - 1, read_one(log, end - 1)).at_ms if end > 0 else None


def iso(at_ms: int) -> str:
    """A time as ISO-8601 in UTC, to the millisecond."""
    day, in_day = divmod(at_ms, 86_400_000)
    minute, ms = divmod(in_day, 60_000)
    return f"{_day(day)}{_MINUTES[minute]}{ms // 1000:02}.{ms % 1000:03}Z"


_MINUTES = tuple(f"T{minute // 60:02}:{minute % 60:02}:" for minute in range(24 * 60))


@lru_cache(maxsize=1024)
def _day(day: int) -> str:
    return datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()
