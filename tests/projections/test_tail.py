"""Who lists all topics of a moment in long pages has the events since the snapshot read once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from hypothesis import given as drawn
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from events.catalog import Recorded
from events.logs.log import EventLog
from events.names import shard_key
from projections.queries import past
from projections.queries.past import ABANDONED_AFTER_PAGES
from projections.queries.query import Query
from projections.views.rows import TopicRow
from tests.machine.walks import Walk, walked, walks
from tests.projections.logs import kept as in_memory
from tests.projections.test_snapshotting import commits_of, kept, story


@contextmanager
def long_from(limit: int) -> Iterator[None]:
    with patch.object(past, "LONG_PAGE", limit):
        yield


def listed(query: Query, end: int, limit: int) -> list[TopicRow]:
    rows: list[TopicRow] = []
    after = ""
    while True:
        page = query.topics_at(end, after, limit)
        rows += page.rows
        if page.reached is None:
            return rows
        after = page.reached


@drawn(walks(60), st.integers(1, 12), st.integers(1, 3))
@hypothesis_settings(max_examples=25, deadline=None)
def test_long_pages_have_what_one_page_has(walk: Walk, interval: int, limit: int) -> None:
    records = list(walked(walk).log)
    with kept(interval) as one, long_from(1):
        for commit in commits_of(records):
            one.commit(commit)
            one.work()
        for end in range(0, len(records) + 1, 3):
            assert tuple(listed(one.query, end, limit)) == one.query.topics_at(end, "", 1000).rows, f"at end {end}"


class Counting:
    """A query of a log, of which it is counted how often events were read in their order."""

    def __init__(self, records: list[Recorded]) -> None:
        log, store = in_memory(records)
        self.reads: list[tuple[int, int | None]] = []
        read = log.read

        def counted(start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
            self.reads.append((start, end))
            return read(start, end)

        log.read = counted  # type: ignore[method-assign]
        self.log: EventLog = log
        self.query = Query(log, lambda: store)
        self.names = [topic.name for topic in store.durable_from(None)]
        self.first = shard_key(self.names[0])


def test_a_list_is_read_once_and_then_let_go() -> None:
    one = Counting(story(60))
    end = one.log.durable_offset
    with long_from(2):
        rows = listed(one.query, end, 2)
        assert [row.name for row in rows] == one.names
        assert one.reads == [(0, end)], "by the second page, for all"
        listed(one.query, end, 2)
        assert one.reads == [(0, end)] * 2, "nothing is kept of a list that is at its end"
        one.query.topics_at(end, one.first, 1)
        assert one.reads == [(0, end)] * 2, "nor is all read for a short page"


def test_two_lists_at_once_do_not_read_in_turns() -> None:
    one = Counting(story(60))
    end = one.log.durable_offset
    with long_from(1):
        for _ in range(ABANDONED_AFTER_PAGES * 2):
            for moment in (end, end - 1):
                page = one.query.topics_at(moment, one.first, 1)
                assert [row.name for row in page.rows] == one.names[1:2], "whichever way"
        assert one.reads == [(0, end)]
        for _ in range(ABANDONED_AFTER_PAGES + 1):
            one.query.topics_at(end - 1, one.first, 1)
        assert one.reads == [(0, end), (0, end - 1)], "who listed the first has left"


def test_a_tail_that_takes_more_memory_than_wanted_is_given_up_once() -> None:
    one = Counting(story(60))
    end = one.log.durable_offset
    with long_from(1), patch.object(past, "TAIL_BYTES", 0):
        for _ in range(3):
            page = one.query.topics_at(end, one.first, 1)
            assert [row.name for row in page.rows] == one.names[1:2]
        assert one.reads == [(0, end)]
