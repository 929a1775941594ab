"""Moments as people write them, and where in a log they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.catalog import Cause, SettingsChanged
from events.codec import encode_event
from events.logs.log import Commit, Entry
from events.logs.memory_log import InMemoryLog
from events.names import RequestId
from projections.text.moments import BadMoment, end_at, iso, parse_moment, time_at

# what is written | the offset, or the time in ms since the epoch
WRITTEN = """
0                                | 0
 17                              | 17
2026-07-17T10:00:00Z             | 1784282400000ms
2026-07-17T10:00:00              | 1784282400000ms
2026-07-17 10:00:00              | 1784282400000ms
2026-07-17T10:00:00.123Z         | 1784282400123ms
2026-07-17T12:00:00+02:00        | 1784282400000ms
2026-07-17T12:00:00 02:00        | 1784282400000ms
2026-07-17T12:00:00.500 0200     | 1784282400500ms
20260717T100000Z                 | 1784282400000ms
2026-07-17                       | 1784246400000ms
1784282400123ms                  | 1784282400123ms
"""


@pytest.mark.parametrize("line", WRITTEN.strip().splitlines())
def test_a_moment_is_an_offset_or_a_time(line: str) -> None:
    written, _, meant = line.partition("|")
    moment = parse_moment(written)
    shown = str(moment) if isinstance(moment, int) else f"{round(moment.timestamp() * 1000)}ms"
    assert shown == meant.strip()


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "ms", "-5ms", "2026-13-01", "99999999999999999ms", "٣", "1e3"])
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(BadMoment, match=r"is not a valid point in time: use an offset \(1234\), an ISO-8601 time"):
        parse_moment(text)


def _log(times: list[int], durable: int | None = None) -> InMemoryLog:
    log = InMemoryLog("times")
    for number, at_ms in enumerate(times):
        if number == durable:
            log.flush()
        value = encode_event(at_ms, Cause("ChangeSettings", RequestId("s")), SettingsChanged((), "1"))
        log.write(Commit((Entry(value),)))
    if durable is None:
        log.flush()
    return log


@given(st.lists(st.integers(0, 50)).map(sorted), st.integers(0, 60))
def test_the_state_at_a_time_has_every_event_up_to_it(times: list[int], at_ms: int) -> None:
    end = end_at(_log(times), parse_moment(f"{at_ms}ms"))
    assert end == sum(1 for one in times if one <= at_ms), f"{times} at {at_ms}"


def test_the_state_at_an_offset_has_that_event() -> None:
    log = _log([5, 6, 7])
    assert [end_at(log, parse_moment(text)) for text in ("0", "1", "2")] == [1, 2, 3]


def test_an_offset_that_is_not_reached_is_refused_and_so_is_one_that_is_not_durable() -> None:
    with pytest.raises(BadMoment, match="offset 3 is not reached yet: the newest event is at offset 2"):
        end_at(_log([5, 6, 7]), parse_moment("3"))
    with pytest.raises(BadMoment, match="the newest event is at offset 1"):
        end_at(_log([5, 6, 7], durable=2), parse_moment("2"))
    with pytest.raises(BadMoment, match="the log is empty"):
        end_at(_log([]), parse_moment("0"))


def test_the_time_of_a_state_is_that_of_its_last_event() -> None:
    log = _log([5, 6, 7])
    assert [time_at(log, end) for end in range(4)] == [None, 5, 6, 7]


def test_times_are_shown_in_utc_to_the_millisecond() -> None:
    assert iso(1784282400007) == "2026-07-17T10:00:00.007Z"
