"""When a group stands still, and when by a known fault of its client: lines as librdkafka 2.16.0 wrote them."""

from __future__ import annotations

import logging

import pytest

from tests.soak.standstills import STILL_LOOKS, Progress, fault_of_client
from tests.support.churn import LINES, Said

ASKED = "METADATA [rdkafka#consumer-1] [thrd:main]: GroupCoordinator/1: Request metadata for 1 topic(s): broker down"
NONE = "METADATA [rdkafka#consumer-1] [thrd:main]: 127.0.0.1:1/1: 0 brokers, 1 topics"
ONE = "METADATA [rdkafka#consumer-1] [thrd:main]: 127.0.0.1:1/1: 1 brokers, 1 topics"
LATER = 'CGRPQUERY [rdkafka#consumer-1] [thrd:main]: Group "g": no broker available for coordinator query: intervaled'
REFUSED, ANSWERED = (
    f"OFFFETCH [rdkafka#consumer-4] [thrd:main]: GroupCoordinator/1: OffsetFetch for {what}"
    for what in (
        "0/0 partition(s) (0 unstable partition(s)) returned Broker: Not coordinator",
        "3/3 partition(s) (0 unstable partition(s)) returned Success",
    )
)


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ([], ""),
        ([ASKED, ONE, LATER], ""),
        ([ONE, ASKED, NONE, LATER], "only broker"),
        ([NONE, ASKED, ONE], ""),
        ([ONE, ANSWERED, REFUSED, LATER], "offsets"),
        ([ONE, REFUSED, ANSWERED], ""),
    ],
    ids=["nothing", "a broker", "no broker", "a broker again", "offsets refused", "offsets after all"],
)
def test_the_last_that_a_client_heard_tells_its_fault(said: list[str], fault: str) -> None:
    found = fault_of_client(said)
    assert bool(found) is bool(fault), found
    assert fault in found


def _stands_still(looks: list[tuple[dict[int, int], dict[int, int]]]) -> int | None:
    """At which look."""
    progress = Progress()
    return next((at for at, (acked, read) in enumerate(looks) if progress.stands_still(acked, read)), None)


def test_it_stands_still_where_one_partition_is_written_and_not_read() -> None:
    assert _stands_still([({0: at, 1: at}, {0: at, 1: min(at, 5)}) for at in range(100)]) == STILL_LOOKS + 5


def test_it_does_not_where_nothing_is_written_or_something_is_read() -> None:
    down = [({0: 7}, {0: 5})] * 100
    slow = [({0: at}, {0: at // (STILL_LOOKS - 1)}) for at in range(100)]
    assert (_stands_still(down), _stands_still(slow)) == (None, None)


def test_what_a_client_says_again_and_again_leaves_room_for_what_came_before() -> None:
    said = Said()
    for text in (ASKED, *(f"{number}" for number in range(LINES)), ONE, *(NONE, LATER) * LINES, ONE):
        said.handle(logging.LogRecord("member", logging.DEBUG, "", 0, text, None, None))
    last = [line.split(" ", 2)[2] for line in said.lines]
    assert len(last) == LINES
    assert last[-4:] == [f"{LINES - 1}", NONE, LATER, ONE]
