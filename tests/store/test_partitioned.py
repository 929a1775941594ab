"""Queries over several partitions combine the results of each."""

from collections.abc import Callable, Mapping

import pytest

from controller.machine.state import Counts
from controller.store.partitioned_store import PartitionedStore
from controller.store.store import TopicStore, topic_slices
from controller.stream.log.codec import partition_of
from events.catalog import Recorded
from events.names import ShardKey, shard_key
from projections.queries.events import BadPlace, cursor_of, listing
from projections.queries.query import NotFound, NoTopic, Queries, Query
from projections.text.points_in_time import InvalidPointInTime
from tests.projections.logs import explain, kept, questions_of, story

PARTITIONS = 3
NAMES = [f"topic-{number}" for number in range(12)]


def of(key: ShardKey) -> int:
    return partition_of(key, PARTITIONS)


def names_of(partition: int) -> list[str]:
    return [name for name in NAMES if of(shard_key(name)) == partition]


def stories(**more: str) -> dict[int, list[Recorded]]:
    """Returns the records of each partition: one request creates its topics, then the steps `more` (p0, p1…)."""
    logs = {}
    for number in range(PARTITIONS):
        creates = "".join(f"\ncreate {name} 2x1 id=all" for name in names_of(number))
        steps = "\nconfirm 1 2 3" + "".join(f"\n{step}" for step in more.get(f"p{number}", "").split(";") if step)
        logs[number] = list(story("1 2 3" + creates + steps).log)
    return logs


def partitioned(logs: Mapping[int, list[Recorded]]) -> tuple[Queries, PartitionedStore]:
    pairs = [kept(logs[number]) for number in range(PARTITIONS)]
    store = PartitionedStore([one for _, one in pairs], of)
    parts = [Query(log, _giving(one), number) for number, (log, one) in enumerate(pairs)]
    return Queries(parts, of), store


def _giving(store: TopicStore) -> Callable[[], TopicStore]:
    return lambda: store


def _in_order(names: list[str]) -> list[str]:
    return sorted(names, key=shard_key)


def test_topics_of_all_partitions_are_merged_in_shard_order() -> None:
    _, store = partitioned(stories())
    found = list(topic_slices(lambda: store, 6))
    assert all(len(page) <= 3 for page in found), "2 partitions each"
    assert [topic.name for page in found for topic in page] == _in_order(NAMES)
    assert store.durable_counts == Counts(len(NAMES), 2 * len(NAMES))


def test_topics_of_all_partitions_are_found_by_name_and_id() -> None:
    logs = stories(p1=f"create {names_of(1)[0]}x 1x1 id=x" if of(shard_key(names_of(1)[0] + "x")) == 1 else "")
    _, store = partitioned(logs)
    for name in NAMES:
        topic = store.durable_named(name)
        assert topic is not None
        assert topic.name == name
        assert store.durable_name_of(topic.topic_id) is not None
    assert store.durable_named("nonesuch") is None
    assert store.durable_name_of(b"?" * 16) is None


def test_broker_changes_are_visible_when_every_partition_has_them() -> None:
    assert partitioned(stories(p0="fence 3", p1="fence 3"))[1].durable_cluster.live == (1, 2, 3)
    assert partitioned(stories(p0="fence 3", p1="fence 3", p2="fence 3"))[1].durable_cluster.live == (1, 2)
    assert partitioned(stories(p1="register 4;unfence 4"))[1].durable_cluster.live == (1, 2, 3)


def test_settings_are_visible_when_every_partition_has_them() -> None:
    logs = stories()
    assert partitioned(logs)[1].durable_cluster.release
    assert not partitioned({**logs, 2: []})[1].durable_cluster.release


def test_partitioned_queries_equal_those_of_each_partition() -> None:
    logs = stories(p0=f"delete {names_of(0)[0]}")
    query, _ = partitioned(logs)
    end = query.end()
    assert end == tuple(len(logs[number]) for number in range(PARTITIONS))
    assert query.as_of(end).ends == end
    assert query.as_of(end).offset == sum(end) - 1
    there = [name for name in NAMES if name != names_of(0)[0]]
    first = query.topics_at(end, None, 4)
    assert [row.name for row in first.rows] == _in_order(there)[:4]
    assert first.reached == shard_key(first.rows[-1].name)
    rest = query.topics_at(end, first.reached, 99)
    assert [row.name for row in (*first.rows, *rest.rows)] == _in_order(there)
    assert rest.reached is None
    newest = query.newest(None, 99)
    assert [row.name for row in query.rows(newest)] == [topic.name for topic in newest] == _in_order(there)
    with pytest.raises(NoTopic, match="deleted"):
        query.of_topic(names_of(0)[0]).topic_at(names_of(0)[0], end[0])
    assert query.cluster_at(end).live == {1, 2, 3}


def test_partitioned_queries_accept_a_time_and_reject_an_offset() -> None:
    query, _ = partitioned(stories())
    with pytest.raises(
        InvalidPointInTime, match="each of the 3 partitions has its own: give a time, or query one topic"
    ):
        query.end("5")
    assert query.end("2001-01-01") == (0, 0, 0)
    assert query.end("2099-01-01") == query.end()
    assert query.of_topic(NAMES[0]).end("5") == 6


def test_a_request_has_its_topics_from_all_partitions() -> None:
    query, _ = partitioned(stories())
    row = query.request("all")
    assert {topic.topic for topic in row.topics} == set(NAMES)
    with pytest.raises(NotFound, match="no request 'none'"):
        query.request("none")


def test_events_of_all_partitions_are_merged_by_time() -> None:
    logs = stories()
    query, _ = partitioned(logs)
    events = listing(query)
    place, end = events.since(None), events.end()
    found: list[tuple[Query, Recorded]] = []
    while True:
        page = events.oldest(place, 7, end)
        found += page.events
        if page.next_place is None:
            break
        place = events.place(cursor_of(page.next_place))
    assert sorted((part.partition, record.offset) for part, record in found if part.partition is not None) == [
        (number, record.offset) for number in range(PARTITIONS) for record in logs[number]
    ]
    times = [record.at_ms for _, record in found]
    assert times == sorted(times)


def test_event_listing_continues_with_later_events() -> None:
    longer = stories(p2="fence 3;unfence 3")
    short = {number: records[: len(stories()[number])] for number, records in longer.items()}
    before = listing(partitioned(short)[0])
    after = listing(partitioned(longer)[0])
    more = after.oldest(before.end(), 99, after.end()).events
    assert {part.partition for part, _ in more} == {2}
    assert [record.offset for _, record in more] == list(range(len(short[2]), len(longer[2])))


def test_invalid_partitions_and_cursors_are_rejected() -> None:
    query, _ = partitioned(stories())
    with pytest.raises(BadPlace, match="no partition 3; allowed are 0 to 2"):
        listing(query, partition=3)
    with pytest.raises(BadPlace, match="no partition 0; this log has none"):
        listing(questions_of(stories()[0]), partition=0)
    with pytest.raises(BadPlace, match="give partition or topic too, or a time"):
        listing(query).since("7")
    for wrong in ("1-2", "1-2-x", "", "1-2-3-4"):
        with pytest.raises(BadPlace, match="is not the next_cursor of a page"):
            listing(query).place(wrong)


def test_explain_reads_one_partition_for_topics_and_all_for_requests() -> None:
    query, _ = partitioned(stories())
    name = names_of(2)[0]
    topic = explain(query, name)
    assert topic.kind == "topic"
    assert {step.partition for step in topic.steps} == {2}
    request = explain(query, "all")
    assert request.kind == "request"
    assert {step.partition for step in request.steps} == {0, 1, 2}
    assert [step.at_ms for step in request.steps] == sorted(step.at_ms for step in request.steps)
    assert sum(step.event == "CreateAnswered" for step in request.steps) == len(NAMES)
    with pytest.raises(NotFound, match="no request 'x' is in the log"):
        explain(query, "x")
