"""Queries on a log: the state now and at every offset, and the events behind it. Points in time, as users write them,
and their offsets."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import given as drawn
from hypothesis import strategies as st

from controller.machine.apply import apply
from controller.machine.commands.commands import AlterResourceConfigs, DiscoverDeletion, TopicCommand
from controller.machine.state import DictTopics, State, Topic
from events.catalog import Cause, CreateAnswered, Event, Recorded, SettingsChanged
from events.codec import encode_event
from events.logs.log import Commit, Entry
from events.names import Offset, RequestId, TopicName
from projections.queries import differences
from projections.queries.differences import TopicDifference, change_of, topic_differences
from projections.queries.events import EventFilter, Listing
from projections.queries.past import QueryClosed, everything
from projections.queries.query import Ends, NotFound, NoTopic, Queries, Query
from projections.text.points_in_time import ONE_TOPIC, InvalidPointInTime, end_at, iso, parse_point_in_time, time_at
from projections.views.requests import request_view
from projections.views.rows import TopicRow
from tests.events.golden import history
from tests.http.service import service
from tests.machine.rig import Rig, topics_of
from tests.machine.tables import command
from tests.machine.walks import NAMES, Walk, walked, walks
from tests.projections.logs import kept, query_of, questions_of, story
from tests.support.memory_log import InMemoryLog

LIMIT = 1000


def _states(records: list[Recorded]) -> Iterator[tuple[int, State]]:
    """Yields the machine's state before the first event and after each event."""
    state = State(DictTopics())
    yield 0, state
    for record in records:
        apply(state, record)
        yield record.offset + 1, state


def _check_past(records: list[Recorded]) -> None:
    query = query_of(records)
    for end, state in _states(records):
        page, row, cluster = query.topics_at(end, "", LIMIT), query.cluster_at(end), state.cluster
        names = ("name", "topic_id", "partitions", "configs", "created_offset", "ready_at_ms")
        shown, truth = ([[getattr(one, name) for name in names] for one in of] for of in (page.rows, topics_of(state)))
        assert shown == truth, f"topics at end {end}"
        assert page.reached is None, "all fit into one page"
        for one in page.rows:
            assert query.topic_at(one.name, end) == one, f"{one.name} at end {end}"
        assert row.live == set(cluster.live), f"live brokers at end {end}"
        assert (row.settings, row.release) == (cluster.settings_pairs, cluster.release), f"settings at end {end}"
        assert row.brokers.keys() == cluster.brokers.keys(), f"brokers at end {end}"
        for broker_id, known in cluster.brokers.items():
            for name in ("broker_epoch", "incarnation", "rack", "fenced"):
                assert getattr(row.brokers[broker_id], name) == getattr(known, name), f"broker {broker_id} at end {end}"


@drawn(walks(50))
def test_past_queries_equal_the_state_machine_at_every_offset(walk: Walk) -> None:
    _check_past(walked(walk).log)


def test_what_was_is_known_of_a_target_cluster_too() -> None:
    _check_past(history("cluster"))


@drawn(walks(50), st.lists(st.integers(0, 100), max_size=6))
def test_past_queries_work_in_any_offset_order(walk: Walk, ends: list[int]) -> None:
    records = walked(walk).log
    query = query_of(records)
    for end in (min(one, len(records)) for one in ends):
        fresh = query_of(records)
        assert query.topics_at(end, "", LIMIT) == fresh.topics_at(end, "", LIMIT), f"topics at end {end}"
        assert query.cluster_at(end) == fresh.cluster_at(end), f"brokers at end {end}"


@drawn(walks(), st.integers(1, 4))
def test_topic_pages_add_up_to_the_full_list(walk: Walk, limit: int) -> None:
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
    for name in NAMES:
        topic = query.of_topic(name).live().durable_named(name)
        assert (topic in newest) == (topic is not None), f"{name} is in `newest` if and only if it exists"


@drawn(walks(), st.integers(0, 60), st.integers(1, 20))
def test_topic_and_request_events_are_those_that_name_them(walk: Walk, start: int, limit: int) -> None:
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
            page = Listing((query,), EventFilter(topic, request_id)).oldest((start,), limit, (end,))
            which = f"topic {topic} request {request_id} from {start} limit {limit}"
            assert [one for _, one in page.events] == found[:limit], which
            assert page.next_place == ((found[limit - 1].offset + 1,) if len(found) > limit else None), which


@drawn(walks())
def test_every_request_of_a_log_is_found_by_id(walk: Walk) -> None:
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


def test_a_missing_topic_error_has_its_creation_and_deletion_times() -> None:
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


def test_colliding_topic_names_are_distinguished_in_queries() -> None:
    rig = story("1 2 3\ncreate a.b 1x1\ncreate a_b 1x1 id=collides\nconfirm 1 2 3")
    query = query_of(rig.log)
    with pytest.raises(NoTopic, match="no topic 'a_b' was ever created"):
        query.topic_at("a_b", query.end())
    assert {one.event.request_id for one in query.events_of("a_b")} == {"collides"}  # type: ignore[union-attr]
    assert query.live().durable_named("a_b") is None


def test_a_dry_run_request_is_not_found() -> None:
    with pytest.raises(NotFound, match="no request 'q' is in the log: dry runs and requests that change nothing"):
        questions_of(story("1 2 3\ncreate t 1x1 dry").log).request("q")


def test_queries_exclude_events_that_are_not_durable() -> None:
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
    assert [record.offset for record in query.records(0, query.end(), None, None)] == list(range(10))
    assert all(record.offset < 10 for record in query.events_of("t"))
    assert all(record.offset < 10 for record in query.events_of(None, 0, query.end()))


def test_a_closed_query_aborts_a_long_fold() -> None:
    rig = story(PAST)
    for number in range(300):
        rig.put(command(rig, f"settings num.partitions={number}"))
    query = query_of(rig.log)
    query.close()
    with pytest.raises(QueryClosed):
        query.cluster_at(query.end())


def test_a_discovered_topic_is_listed() -> None:
    query = questions_of(history("cluster")[:-2])
    rows = query.rows(query.newest(None, 100))
    assert [(row.name, row.created_by, len(row.partitions)) for row in rows] == [("d", None, 2)]


def test_requests_are_answered_when_the_target_cluster_applies_them() -> None:
    log = history("cluster")

    def fared(request_id: str) -> list[tuple[str, int | None, str]]:
        row = request_view(r for r in log if getattr(r.event, "request_id", None) == request_id)
        assert row is not None, request_id
        return [(topic.status, topic.code, topic.rule) for topic in row.topics]

    assert fared("q1") == [("rejected", 44, "cluster")]
    assert fared("q2") == [("failed", 44, "")]
    assert fared("q3") == [("partitions-added", 0, "")]
    assert fared("q4") == [("rejected", 40, "cluster")]
    assert fared("q5") == [("deleted", 0, "")]


FAR, NEAR = 0, 20_000


def listed(query: Queries, end: int) -> dict[str, TopicRow]:
    return {row.name: row for row in query.parts[0].topics_at(end, "", 1000).rows}


def by_lists(query: Queries, start: int, end: int) -> set[TopicDifference]:
    before, after = listed(query, start), listed(query, end)
    both = ((name, before.get(name), after.get(name)) for name in before.keys() | after.keys())
    return {one for one in both if one[1] != one[2]}


def paged(query: Queries, start: Ends, end: Ends, limit: int) -> list[TopicDifference]:
    found: list[TopicDifference] = []
    after = ""
    while True:
        page, reached = topic_differences(query, start, end, after, limit, everything)
        found += page
        if reached is None:
            return found
        assert reached > after, "each page makes progress"
        after = reached


@pytest.mark.parametrize("scanned_max", [FAR, NEAR])
async def test_diff_equals_the_difference_of_two_listings(scanned_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "SCANNED_MAX", scanned_max)
    monkeypatch.setattr(differences, "SCANNED_KEYS_MAX", 4)
    monkeypatch.setattr(differences, "FOLDED_MAX", 3)
    async with service() as one:
        for name in ("a.b", "c", "d", "e_f", "g", "h", "i"):
            await one.create(name, num_partitions=1)
        for name, again in (("a.b", "a_b"), ("c", "c"), ("e_f", "e.f"), ("h", None)):
            await one.request("DELETE", f"/v1/topics/{name}")
            await one.create(again or "refused", num_partitions=1)
        await one.create("d", 409)
        await one.request("PATCH", "/v1/topics/g", json={"num_partitions": 3})
        query, end = one.query, one.log.durable_offset
        moments = range(0, end, 3)
        changes = set()
        for start in moments:
            for until in (end, end - 7):
                found = paged(query, (start,), (until,), limit=2)
                names = [name for name, _, _ in found]
                assert len(names) == len(set(names)), f"from {start} to {until}"
                assert set(found) == (by_lists(query, start, until) if until > start else set()), f"{start} to {until}"
                changes |= {change_of(before, after) for _, before, after in found}
        assert changes == {"created", "deleted", "recreated", "changed"}


# the text | the offset, or the time in ms since the epoch
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
def test_at_accepts_an_offset_or_a_time(line: str) -> None:
    written, _, meant = line.partition("|")
    point_in_time = parse_point_in_time(written)
    shown = str(point_in_time) if isinstance(point_in_time, int) else f"{round(point_in_time.timestamp() * 1000)}ms"
    assert shown == meant.strip()


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "ms", "-5ms", "2026-13-01", "99999999999999999ms", "٣", "1e3"])
def test_an_invalid_at_is_rejected_with_the_allowed_forms(text: str) -> None:
    with pytest.raises(
        InvalidPointInTime, match=r"is not a valid point in time: use an offset \(1234\), an ISO-8601 time"
    ):
        parse_point_in_time(text)


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
def test_state_at_a_time_includes_events_of_that_time(times: list[int], at_ms: int) -> None:
    end = end_at(_log(times), parse_point_in_time(f"{at_ms}ms"))
    assert end == sum(1 for one in times if one <= at_ms), f"{times} at {at_ms}"


def test_a_state_at_an_offset_is_that_at_the_end_of_its_command() -> None:
    log = InMemoryLog("commands")
    changed = SettingsChanged((), "1")
    both = [CreateAnswered(RequestId("r"), TopicName(name), 0, "", 0) for name in "ab"]
    commands: list[tuple[str, str, Sequence[Event]]] = [
        ("Reconcile", "r1", [changed] * 5),
        ("Reconcile", "r2", [changed]),
        ("CreateTopic", "r", both),
        ("X", "r3", [changed] * 2),
    ]
    for kind, request_id, events in commands:
        cause = Cause(kind, RequestId(request_id))
        log.write(Commit(tuple(Entry(encode_event(7, cause, event)) for event in events)))
    log.flush()
    assert [end_at(log, Offset(at)) for at in range(10)] == [5, 5, 5, 5, 5, 6, 7, 8, 10, 10]


def test_commands_of_one_topic_are_those_that_name_one() -> None:
    kinds = {DiscoverDeletion.__name__, *(one.__name__ for one in TopicCommand.__subclasses__())}
    assert kinds - {AlterResourceConfigs.__name__} == ONE_TOPIC


def test_an_offset_beyond_the_durable_end_is_rejected() -> None:
    with pytest.raises(InvalidPointInTime, match="offset 3 is not reached yet: the newest event is at offset 2"):
        end_at(_log([5, 6, 7]), parse_point_in_time("3"))
    with pytest.raises(InvalidPointInTime, match="the newest event is at offset 1"):
        end_at(_log([5, 6, 7], durable=2), parse_point_in_time("2"))
    with pytest.raises(InvalidPointInTime, match="the log is empty"):
        end_at(_log([]), parse_point_in_time("0"))


def test_time_of_a_state_is_that_of_its_last_event() -> None:
    log = _log([5, 6, 7])
    assert [time_at(log, end) for end in range(4)] == [None, 5, 6, 7]


def test_times_are_formatted_in_utc_milliseconds() -> None:
    assert iso(1784282400007) == "2026-07-17T10:00:00.007Z"
