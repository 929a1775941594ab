"""Questions about a log: what is, what was at every offset, and which events made it so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from controller.machine.apply import apply
from controller.machine.state import DictTopics, State, Topic
from events.catalog import CreateAnswered, Recorded
from events.logs.log import Commit, Entry
from events.logs.memory_log import InMemoryLog
from projections.queries.query import NoTopic, NotThere, Query, QueryClosed
from projections.views.rows import TopicRow
from tests.machine.rig import Rig, topics_of
from tests.machine.tables import command
from tests.machine.walks import NAMES, Walk, walked, walks
from tests.projections.logs import kept, query_of, questions_of, story

LIMIT = 1000


def _states(records: list[Recorded]) -> Iterator[tuple[int, State]]:
    """The machine's state before the first event and after each."""
    state = State(DictTopics())
    yield 0, state
    for record in records:
        apply(state, record)
        yield record.offset + 1, state


def _brief(rows: tuple[TopicRow, ...]) -> list[tuple[object, ...]]:
    return [(one.name, one.topic_id, one.partitions, one.configs, one.created_offset, one.ready_at_ms) for one in rows]


@drawn(walks(50))
def test_what_was_at_every_offset_is_what_the_machine_knew_then(walk: Walk) -> None:
    records = walked(walk).log
    query = query_of(records)
    for end, state in _states(records):
        truth = [
            (one.name, one.topic_id, one.partitions, one.configs, one.created_offset, one.ready_at_ms)
            for one in topics_of(state)
        ]
        page = query.topics_at(end, "", LIMIT)
        assert _brief(page.rows) == truth, f"topics at end {end}"
        assert page.reached is None, "all fit into one page"
        assert query.live_at(end) == set(state.cluster.live), f"live brokers at end {end}"
        for row in page.rows:
            assert query.topic_at(row.name, end) == row, f"{row.name} at end {end}"


@drawn(walks(50), st.lists(st.integers(0, 100), max_size=6))
def test_moments_may_be_queried_in_any_order(walk: Walk, ends: list[int]) -> None:
    records = walked(walk).log
    query = query_of(records)
    for end in (min(one, len(records)) for one in ends):
        fresh = query_of(records)
        assert query.topics_at(end, "", LIMIT) == fresh.topics_at(end, "", LIMIT), f"topics at end {end}"
        assert query.cluster_at(end) == fresh.cluster_at(end), f"brokers at end {end}"


@drawn(walks())
def test_what_is_now_is_what_the_events_say(walk: Walk) -> None:
    query = questions_of(walked(walk).log)
    end = query.end()
    newest = query.newest(None, LIMIT)
    assert query.rows(newest) == query.topics_at(end, None, LIMIT).rows, "the live store and the fold agree"
    for name in NAMES:
        topic = query.of_topic(name).newest_named(name)
        assert (topic in newest) == (topic is not None), f"{name} is in the list if it is there"


@drawn(walks(), st.integers(1, 4))
def test_pages_make_up_the_whole_list(walk: Walk, limit: int) -> None:
    query = questions_of(walked(walk).log)
    rows: list[TopicRow] = []
    end, after = query.end(), None
    while True:
        page = query.topics_at(end, after, limit)
        rows += page.rows
        assert len(page.rows) <= limit, "a page has no more than the limit"
        if page.reached is None:
            break
        after = page.reached
    assert tuple(rows) == query.topics_at(end, None, LIMIT).rows, f"pages of {limit}"
    newest: list[Topic] = []
    while topics := query.newest(newest[-1].name if newest else None, limit):
        newest += topics
    assert query.rows(newest) == tuple(rows), f"pages of {limit}, now"


@drawn(walks(), st.integers(0, 60), st.integers(1, 20))
def test_events_of_a_topic_and_of_a_request_are_those_that_name_them(walk: Walk, start: int, limit: int) -> None:
    records = walked(walk).log
    query = query_of(records)
    end = query.end()
    for topic in (None, *NAMES):
        for request_id in (None, "q1", "q7", "none"):
            found = [
                one
                for one in records
                if one.offset >= start
                and (topic is None or getattr(one.event, "topic", None) == topic)
                and (request_id is None or getattr(one.event, "request_id", None) == request_id)
            ]
            page = query.events(start, limit, end, topic=topic, request_id=request_id)
            which = f"topic {topic} request {request_id} from {start} limit {limit}"
            assert list(page.records) == found[:limit], which
            assert page.next_offset == (found[limit].offset if len(found) > limit else None), which


@drawn(walks())
def test_every_request_of_a_log_can_be_looked_up(walk: Walk) -> None:
    records = walked(walk).log
    query = questions_of(records)
    for request_id in sorted({one for record in records if (one := getattr(record.event, "request_id", ""))}):
        row = query.request(request_id)
        codes = {one.topic: one.code for one in row.topics if one.status not in {"waiting", "requested"}}
        answers = {
            (record.event.topic, record.event.error_code)
            for record in records
            if isinstance(record.event, CreateAnswered) and record.event.request_id == request_id
        }
        assert answers <= set(codes.items()), f"request {request_id}: {row}"


PAST = """
1 2 3
create t 1x1 id=first
confirm 1 2 3
delete t id=gone as=User:bob
create t 2x1 id=second
"""


def _offset(rig: Rig, kind: str, number: int = 0) -> int:
    return [record.offset for record in rig.log if type(record.event).__name__ == kind][number]


def test_the_error_for_a_missing_topic_says_when_it_existed() -> None:
    rig = story(PAST)
    query = query_of(rig.log)
    born, gone, again = _offset(rig, "TopicCreated"), _offset(rig, "TopicDeleted"), _offset(rig, "TopicCreated", 1)
    why = rf"there is no topic 't' at offset 3: it was created at offset {born} \(2023-11-14T"
    with pytest.raises(NoTopic, match=why):
        query.topic_at("t", 4)
    with pytest.raises(
        NoTopic, match=rf"it was deleted at offset {gone} \(.*Z\) by User:bob; it was created again at offset {again} "
    ):
        query.topic_at("t", gone + 1)
    with pytest.raises(NoTopic, match="no topic 'u' was ever created"):
        query.topic_at("u", query.end())
    assert query.topic_at("t", gone).created_offset == born
    assert query.topic_at("t", query.end()).created_offset == again


def test_only_the_name_itself_counts_where_names_collide() -> None:
    rig = story("1 2 3\ncreate a.b 1x1\ncreate a_b 1x1 id=collides\nconfirm 1 2 3")
    query = query_of(rig.log)
    with pytest.raises(NoTopic, match="no topic 'a_b' was ever created"):
        query.topic_at("a_b", query.end())
    assert {one.event.request_id for one in query.topic_events("a_b")} == {"collides"}  # type: ignore[union-attr]
    assert query.newest_named("a_b") is None


def test_a_request_that_is_not_recorded_is_not_there() -> None:
    with pytest.raises(NotThere, match="no request 'q' is in the log: dry runs and requests that change nothing"):
        questions_of(story("1 2 3\ncreate t 1x1 dry").log).request("q")


def test_what_is_not_durable_yet_is_not_shown() -> None:
    records = story(PAST).log
    log, store = kept(records)
    lost = InMemoryLog("kept")
    for number, record in enumerate(records):
        if number == 10:
            lost.flush()
        offset, value = next(log.read(record.offset))
        assert offset == number
        lost.write(Commit((Entry(value, "t" if hasattr(record.event, "topic") else ""),)))
    query = Query(lost, lambda: store)
    assert query.end() == 10
    assert [record.offset for record in query.events(0, LIMIT, query.end()).records] == list(range(10))
    assert all(record.offset < 10 for record in query.topic_events("t"))
    assert all(record.offset < 10 for record in query.broker_events())


def test_a_closed_query_lets_go_of_a_long_fold() -> None:
    rig = story(PAST)
    for number in range(300):
        rig.put(command(rig, f"settings num.partitions={number}"))
    query = query_of(rig.log)
    query.close()
    with pytest.raises(QueryClosed):
        query.cluster_at(query.end())
