"""Explanations, request rows and topic rows of decisions that Kafka's controller made; and long listings of past
topics, which read the events since the snapshot once."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given as drawn
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from events.catalog import Cause, HistorySkipped, Recorded
from events.external_decision import FOLLOW, ExternalDecision, external_decision, skipped_snapshot
from events.logs.log import EventLog
from events.names import RequestId, shard_key
from projections.queries import past
from projections.queries.past import ABANDONED_AFTER_PAGES
from projections.queries.query import Queries, Query
from projections.views.events import event_view as shown_event
from projections.views.lines import explanation
from tests.events.golden import FOLLOWED, history
from tests.machine.walks import Walk, walked, walks
from tests.projections.logs import explain, listed
from tests.projections.logs import kept as in_memory
from tests.store.test_snapshotting import commits_of, kept, story


def questions() -> Queries:
    """Queries on the golden history, recorded as a voter records it."""
    records = history(FOLLOWED)
    log, store = in_memory(records, len(records))
    return Queries([Query(log, lambda: store)])


EXPLAINED = {
    "orders": """
Topic orders: offline, 4 partitions, created 1970-01-01T00:00:01.009Z

OFFSET  TIME                         AFTER  WHAT
     8  1970-01-01T00:00:01.009Z      0 ms  the cluster has orders with 2 partitions, replicas 0: [1,2,3], 1: [2,3,1], retention.ms=60000 (decided by Kafka's controller 3002, which led epoch 7)
    10  1970-01-01T00:00:01.014Z      5 ms  partition 1: the ISR is [2,3], eligible leader replicas are [1] (decided by Kafka's controller 3002, which led epoch 7)
    12  1970-01-01T00:00:01.015Z      6 ms  partition 0: broker 2 leads in epoch 1, the ISR is [2,3] (decided by Kafka's controller 3002, which led epoch 7)
    15  1970-01-01T00:00:01.018Z      9 ms  Kafka's controller 3002 changes the configs of orders; now set: none (decided by Kafka's controller 3002, which led epoch 7)
    19  1970-01-01T00:00:01.023Z     14 ms  Kafka's controller 3002 raises orders from 2 to 4 partitions; replicas 2: [3,2,1], 3: [2,3,1] (decided by Kafka's controller 3002, which led epoch 7)
    26  1970-01-01T00:00:01.032Z     23 ms  the cluster has orders with 4 partitions, replicas 0: [1,2,3], 1: [2,3,1], 2: [3,2,1], 3: [2,3,1] (decided by Kafka's controller 3002, which led epoch 7)
    34  1970-01-01T00:00:09.000Z       8 s  the cluster has orders with 4 partitions, replicas 0: [1,2,3], 1: [2,3,1], 2: [3,2,1], 3: [2,3,1] (as in a snapshot of epoch 8)
""",  # noqa: E501
    "controller-3002-epoch-7-offset-27": """
controller-3002-epoch-7-offset-27: decided by Kafka's controller 3002, which led epoch 7, from offset 27 of the metadata log, at 1970-01-01T00:00:01.027Z

OFFSET  TIME                         AFTER  WHAT
    21  1970-01-01T00:00:01.027Z      0 ms  pay.eu no longer exists in the cluster (decided by Kafka's controller 3002, which led epoch 7)
    22  1970-01-01T00:00:01.027Z      0 ms  the cluster has pay_eu with 1 partition, replicas 0: [2] (decided by Kafka's controller 3002, which led epoch 7)
""",  # noqa: E501
    "snapshot-epoch-8-offset-137": """
snapshot-epoch-8-offset-137: as in a snapshot of epoch 8, up to offset 137 of the metadata log, at 1970-01-01T00:00:09.000Z

OFFSET  TIME                         AFTER  WHAT
    31  1970-01-01T00:00:09.000Z      0 ms  the changes in the metadata log from offset 37 up to 137 are unknown (the leader had cleaned its log up to a snapshot)
    32  1970-01-01T00:00:09.000Z      0 ms  broker 1 gets the producer ids 4000 to 4999 (as in a snapshot of epoch 8)
    33  1970-01-01T00:00:09.000Z      0 ms  the cluster changes the configs of all brokers; now set: none (as in a snapshot of epoch 8)
    34  1970-01-01T00:00:09.000Z      0 ms  the cluster has orders with 4 partitions, replicas 0: [1,2,3], 1: [2,3,1], 2: [3,2,1], 3: [2,3,1] (as in a snapshot of epoch 8)
    35  1970-01-01T00:00:09.000Z      0 ms  pay_eu no longer exists in the cluster (as in a snapshot of epoch 8)
    36  1970-01-01T00:00:09.000Z      0 ms  the cluster has audit with 1 partition, replicas 0: [2,1] (as in a snapshot of epoch 8)
""",  # noqa: E501
}


@pytest.mark.parametrize("subject", EXPLAINED)
def test_explain_covers_decisions_of_another_controller(subject: str) -> None:
    lines = list(explanation(explain(questions(), subject)))
    lines[0] = lines[0].rpartition(". ")[2]  # without the conclusion: the brokers are not registered in this history
    assert "\n".join(lines) == EXPLAINED[subject].strip()


def test_explain_names_the_controller_that_deleted_a_topic() -> None:
    summary = explain(questions(), "pay.eu").summary
    assert summary == "Topic pay.eu: deleted 1970-01-01T00:00:01.027Z by Kafka's controller 3002"


def test_events_of_an_external_decision_are_found_by_request_id() -> None:
    query = questions()
    by_request: dict[str, list[Recorded]] = {}
    for record in history(FOLLOWED)[1:]:
        by_request.setdefault(record.cause.request_id, []).append(record)
    for request_id, records in by_request.items():
        (part,) = query.parts
        assert list(part.records(0, part.end(), None, request_id)) == records
        assert query.request(request_id).api == FOLLOW


def test_event_texts_name_the_external_controller_decision() -> None:
    for record in history(FOLLOWED)[1:]:
        decided = external_decision(record.cause)
        assert decided is not None, record
        text = shown_event(record).text
        assert isinstance(record.event, HistorySkipped) or text.count(decided.summary) == 1, text


def test_external_decision_ids_round_trip() -> None:
    for one in (
        ExternalDecision(0, 1, 0),
        ExternalDecision(2**31 - 1, 2**31 - 1, 2**63 - 1),
        skipped_snapshot(HistorySkipped(3, 9, 4, "")),
    ):
        assert external_decision(one.cause) == one
    assert external_decision(Cause("CreateTopic", ExternalDecision(1, 2, 3).request_id)) is None
    assert external_decision(Cause(FOLLOW, RequestId("controller-1-epoch-2"))) is None


@contextmanager
def long_from(limit: int) -> Iterator[None]:
    with patch.object(past, "LONG_PAGE", limit):
        yield


@drawn(walks(60), st.integers(1, 12), st.integers(1, 3))
@hypothesis_settings(max_examples=8, deadline=None)
def test_paged_past_topics_equal_one_page(walk: Walk, interval: int, limit: int) -> None:
    records = list(walked(walk).log)
    with kept(interval) as one, long_from(1):
        for commit in commits_of(records):
            one.commit(commit)
            one.work()
        for end in range(0, len(records) + 1, 3):
            assert tuple(listed(one.query, end, limit)) == one.query.topics_at(end, "", 1000).rows, f"at end {end}"


class Counting:
    """A query on a log that records each sequential read of events."""

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


def test_a_past_listing_reads_events_once_and_is_released() -> None:
    one = Counting(story(60))
    end = one.log.durable_offset
    with long_from(2):
        rows = listed(one.query, end, 2)
        assert [row.name for row in rows] == one.names
        assert one.reads == [(0, end)], "the second page reads the events once for all pages"
        listed(one.query, end, 2)
        assert one.reads == [(0, end)] * 2, "a finished listing is not cached"
        one.query.topics_at(end, one.first, 1)
        assert one.reads == [(0, end)] * 2, "a short page does not read all events"


def test_two_concurrent_past_listings_do_not_evict_each_other() -> None:
    one = Counting(story(60))
    end = one.log.durable_offset
    with long_from(1):
        for _ in range(ABANDONED_AFTER_PAGES * 2):
            for point_in_time in (end, end - 1):
                page = one.query.topics_at(point_in_time, one.first, 1)
                assert [row.name for row in page.rows] == one.names[1:2], "both listings return the same page"
        assert one.reads == [(0, end)]
        for _ in range(ABANDONED_AFTER_PAGES + 1):
            one.query.topics_at(end - 1, one.first, 1)
        assert one.reads == [(0, end), (0, end - 1)], "the first listing was abandoned"


def test_a_past_listing_beyond_the_memory_limit_is_not_cached() -> None:
    one = Counting(story(60))
    end = one.log.durable_offset
    with long_from(1), patch.object(past, "TAIL_BYTES", 0):
        for _ in range(3):
            page = one.query.topics_at(end, one.first, 1)
            assert [row.name for row in page.rows] == one.names[1:2]
        assert one.reads == [(0, end)]
