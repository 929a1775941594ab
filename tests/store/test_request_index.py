"""The index of requests equals their events at every offset and for any commit size. Retried requests are answered from
their events."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest
from msgspec.structs import replace

from controller.http.changes import TRIES_MAX, earlier_attempt
from controller.http.errors import Refused
from controller.machine.commands.commands import TopicCommand
from controller.store.request_index import API, OUTCOME, PRINCIPAL, RULE, IndexedRequest, newest_requests, values_of
from controller.store.store import TopicStore
from events.access import RequestsRefused
from events.catalog import Cause, Recorded
from events.names import Offset, RequestId
from projections.queries.query import Queries, Query
from projections.queries.requests import RequestFilter, scan_requests
from projections.views.requests import request_view
from tests.events.golden import HISTORIES, history
from tests.machine.tables import command, given
from tests.projections.logs import kept, query_of, questions_of, story
from tests.support.memory_log import InMemoryLog


def questions(*logs: InMemoryLog) -> Queries:
    numbers: Sequence[int | None] = range(len(logs)) if len(logs) > 1 else (None,)
    return Queries([Query(log, partial(TopicStore, log), number) for log, number in zip(logs, numbers, strict=True)])


ALL = RequestFilter()


def page(query: Queries, which: RequestFilter = ALL, end: tuple[int, ...] = ()) -> list[IndexedRequest]:
    end = end or query.end()
    since = (0,) * len(end)
    found = scan_requests(query, which, end, until=end, since=since, limit=1000)
    assert found.next_place is None
    return list(found.requests)


@pytest.mark.parametrize("name", HISTORIES)
def test_indexed_requests_equal_their_events_at_every_offset(name: str) -> None:
    records = history(name)
    query = questions(kept(records)[0])
    step = max(1, len(records) // 25)
    for end in (*range(1, len(records), step), len(records)):
        by_id = [one for one in page(query, end=(end,)) if not one.counted]
        assert [one.requested_offset for one in by_id] == sorted((one.requested_offset for one in by_id), reverse=True)
        for one in by_id:
            row = request_view(
                record for record in query.parts[0].request_events(one.request_id) if record.offset < end
            )
            assert row is not None, one
            assert (one.principal, one.client_id, one.requested_at_ms) == (
                row.principal,
                row.client_id,
                row.requested_at_ms,
            )
            if len(set(one.topics)) < len(one.topics):
                continue  # a history whose requests share one id: no client request changes a topic twice
            if row.topics:
                assert dict(one.outcomes) == Counter(topic.status for topic in row.topics), f"{one} before {end}"
                assert set(one.rules) == {topic.rule for topic in row.topics if topic.rule}, f"{one} before {end}"
                assert one.topics == tuple(topic.topic for topic in row.topics)[: len(one.topics)]
            else:
                assert one.outcomes == {"done": 1}
        ids = {getattr(record.event, "request_id", "") for record in records[:end]} - {""}
        assert {one.request_id for one in by_id} == ids


@pytest.mark.parametrize("name", HISTORIES)
def test_request_index_is_independent_of_commit_sizes(name: str) -> None:
    records = history(name)
    whole = dict(kept(records, len(records))[0].scan(b"h")), dict(kept(records, len(records))[0].scan(b"f"))
    for at_once in (1, 3):
        log = kept(records, at_once)[0]
        assert (dict(log.scan(b"h")), dict(log.scan(b"f"))) == whole, at_once
    restarted = kept(records, 2, restarts=True)[0]
    assert (dict(restarted.scan(b"h")), dict(restarted.scan(b"f"))) == whole, "one process per commit"


@pytest.mark.parametrize("name", HISTORIES)
def test_request_index_filters_equal_a_full_scan(name: str) -> None:
    log = kept(history(name), 4)[0]
    query = questions(log)
    everyone = page(query)
    for kind, field in ((PRINCIPAL, "principal"), (API, "api"), (OUTCOME, "outcome"), (RULE, "rule")):
        for value in values_of(log, kind):
            which = replace(RequestFilter(), **{field: value})
            found = page(query, which)
            assert found == [one for one in everyone if which.matches(one)], which
            assert [one.requested_offset for one in found] == list(newest_requests(log, log.next_offset, (kind, value)))
            assert found, f"{value} has no request in the index"


STORY = """1 2 3
create t 2x3 id=q
create t 2x3 id=again
create u 2x3 id=r
delete t id=s"""


def test_request_pages_have_every_request_once() -> None:
    query = questions(kept(story(STORY).log, 2)[0])
    end = query.end()
    place, seen = end, []
    for _ in range(10):
        found = scan_requests(query, ALL, end, until=place, since=(0,), limit=1)
        seen += [one.request_id for one in found.requests]
        if found.next_place is None:
            break
        place = found.next_place
    assert seen == ["s", "r", "again", "q"]
    first = scan_requests(query, RequestFilter(outcome="deleted", api="none"), end, until=end, since=(0,), limit=9)
    assert (first.requests, first.next_place) == ((), None)
    looked = scan_requests(query, ALL, end, until=end, since=(0,), limit=9, may_show=lambda _: False, scanned_max=3)
    assert looked.requests == ()
    assert looked.next_place is not None, "the scan ends after three requests"


def test_a_request_of_two_partitions_is_listed_once() -> None:
    log = story(STORY).log
    later = [replace(record, at_ms=record.at_ms + 1) for record in log]
    query = questions(kept(log)[0], kept(later)[0])
    found = page(query)
    assert [one.request_id for one in found] == ["s", "r", "again", "q"]
    assert [one.num_topics for one in found] == [2, 2, 2, 2]
    assert found[0].outcomes == {"deleted": 2}
    assert [one.request_id for one in page(query, RequestFilter(outcome="rejected"))] == ["again"]


def test_counted_refusals_are_listed_as_requests() -> None:
    event = RequestsRefused(
        "User:eve", None, "10.0.0.9", "DescribeConfigs", "Describe", "Topic:pay", 29, "authorizer", 7, 1
    )
    record = Recorded(Offset(0), 5, Cause("RecordRefusals", RequestId("refusals-1")), event)
    (one,) = page(questions(kept([record])[0]), RequestFilter(rule="authorizer"))
    assert (one.counted, one.outcomes, one.topics, one.host) == (True, {"rejected": 7}, ("pay",), "10.0.0.9")


def test_long_filter_values_with_a_common_prefix_are_distinguished() -> None:
    first, second = "User:" + "x" * 300, "User:" + "x" * 300 + "y"
    records = [
        Recorded(
            Offset(number),
            5,
            Cause("RecordRefusals", RequestId("refusals-1")),
            RequestsRefused(name, None, "", "Fetch", "Read", "Topic:t", 29, "authorizer", 1, 1),
        )
        for number, name in enumerate((first, second))
    ]
    query = questions(kept(records)[0])
    for name in (first, second):
        assert [one.principal for one in page(query, RequestFilter(principal=name))] == [name]


# given | steps, separated by `;` | the retry of request q | if the request is the same, and its answer
TABLE = """
1 2 3         |                                                  | create t 1x1 | try q
1 2 3         | create t 1x1                                     | create t 1x1 | same, due
1 2 3         | create t 1x1; confirm 1 2 3                      | create t 1x1 | same, 0 with 1 partitions
1 2 3         | create t 1x1; confirm 1 2 3                      | create t 2x1 | other, 0 with 1 partitions
1 2 3         | create t 1x1; confirm 1 2 3                      | create u 1x1 | other, 0 with 1 partitions
1 2 3         | create t 1x1; confirm 1 2 3                      | create t 1x1 as=User:b timeout=5 | same, 0 with 1 partitions
1 2 3         | create t 1x1; confirm 1 2 3                      | delete t | other, 0 with 1 partitions
1 2 3         | create t 1x1; confirm 1 2 3; partitions t to=4 id=p; delete t id=d | create t 1x1 | same, 0 with 1 partitions
1 2 3         | create t 1x1 timeout=0                           | create t 1x1 | same, 7 with 1 partitions
1 2 3         | create t 1x1; delete t id=d                      | create t 1x1 | same, 3
1 2 3         | create t 0x1                                     | create t 0x1 | same, 37 by validation:partitions
1 2 3 has:t   | partitions t to=3; partitions t to=5 id=p        | partitions t to=3 | same, 0 with 3 partitions
1 2 3 has:t   | partitions t to=3                                | partitions t to=4 | other, 0 with 3 partitions
1 2 3 has:t   | alter t set:retention.ms=5                       | alter t set:retention.ms=5 | same, 0 with 1 partitions
1 2 3 has:t   | alter t set:retention.ms=5                       | alter t set:retention.ms=6 | other, 0 with 1 partitions
1 2 3 has:t   | delete t                                         | delete t | same, 0 with 1 partitions
1 2 3         | delete t                                         | delete t | same, 3 by validation:unknown-topic
1 2 3 cluster | create t 1x1 clear=41                            | create t 1x1 | try q-2
1 2 3 cluster | create t 1x1 clear=7                             | create t 1x1 | try q-2
1 2 3 cluster | create t 1x1 clear=89; create t 2x1 clear=0 id=q-2 | create t 2x1 | same, due
1 2 3 cluster | create t 1x1 clear=89; create t 1x1 clear=56 id=q-2 | create t 1x1 | try q-3
1 2 3 cluster | create t 1x1 clear=89; create t 1x1 clear=44 id=q-2 | create t 1x1 | same, 44 by cluster
1 2 3 cluster | create t 1x1 clear=44 id=q-3                     | create t 1x1 | same, 44 by cluster
1 2 3 cluster | create t 1x1 clear=44 id=q-10                    | create t 1x1 | try q
1 2 3 cluster | seen t 1::1:0 conf=; delete t clear=0                  | delete t | same, due
1 2 3 cluster | seen t 1::1:0 conf=; partitions t to=3 clear=0; done t id=q | partitions t to=3 | same, 0 with 3 partitions
1 2 3 cluster | seen t 1::1:0 conf=; partitions t to=3 clear=0; done t id=q code=44 | partitions t to=3 | same, 44 by cluster
"""  # noqa: E501


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_retried_requests_are_answered_from_their_events(line: str) -> None:
    begin, steps, again, expected = (column.strip() for column in line.split("|"))
    rig = given(begin)
    for step in filter(None, steps.split(";")):
        rig.put(command(rig, step.strip()))
    carried_out = "cluster" in begin.split()
    request_id, found = earlier_attempt(questions_of(rig.log), RequestId("q"), has_target_cluster=carried_out)
    if found is None:
        assert f"try {request_id}" == expected
        return
    sent = command(rig, again)
    assert isinstance(sent, TopicCommand)
    wish, answer = "same" if found.has_same_parameters(sent) else "other", found.answer
    if answer is None:
        assert f"{wish}, due" == expected
        return
    rule = f" by {answer.rule}" if answer.rule else ""
    topic = f" with {len(answer.topic.partitions)} partitions" if answer.topic is not None and not answer.rule else ""
    assert f"{wish}, {answer.code}{rule}{topic}" == expected


def test_retries_skip_request_ids_that_may_still_be_decided() -> None:
    rig = given("1 2 3 cluster")
    query = questions_of(rig.log)
    late = [RequestId("q"), RequestId("q-2")]
    assert earlier_attempt(query, RequestId("q"), late) == ("q-3", None)
    for number in range(1, TRIES_MAX + 1):
        rig.put(command(rig, f"create t 1x1 clear=89 id=q{'' if number == 1 else f'-{number}'}"))
    with pytest.raises(Refused, match="use another key"):
        earlier_attempt(questions_of(rig.log), RequestId("q"))


def test_earlier_requests_are_found_in_any_partition() -> None:
    rig = given("1 2 3")
    rig.put(command(rig, "create t 1x1 timeout=0"))
    both = Queries([query_of(given("1 2 3").log), query_of(rig.log)], lambda key: 1)
    request_id, found = earlier_attempt(both, RequestId("q"))
    assert (request_id, found is not None) == ("q", True)
    assert earlier_attempt(both, RequestId("other")) == ("other", None)
