"""The numbers of a report, compared with a plain loop over the events; and the written page."""

from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest

from controller.machine.state import DictTopics, State
from events.catalog import (
    ChangeRejected,
    CreateRejected,
    PartitionChanged,
    PartitionsAdded,
    Recorded,
    TopicCreated,
    TopicDeleted,
    TopicReady,
)
from projections.replay.checks.invariants import CHECKS
from projections.replay.log.log_ref import LogRef
from projections.replay.outcome import Options
from projections.replay.report import gather, run_report
from projections.replay.report_figures import OUTCOMES, Report, requests
from projections.text.names import error_name_and_code
from projections.views.requests import RequestView, request_view
from tests.machine.audit.planted import at, without
from tests.machine.rig import fold, topics_of
from tests.replay.written import written

PARTITION_EVENTS = TopicCreated | PartitionsAdded | PartitionChanged | TopicDeleted


@pytest.fixture(scope="module")
def report(history: LogRef) -> Report:
    return gather(history, None)


def test_report_counts_requests_by_outcome(report: Report, records: list[Recorded]) -> None:
    counts = Counter(_outcome(row, topic.status) for row in _requests(records) for topic in row.topics)
    assert {name: requests(report, name) for name in OUTCOMES if requests(report, name)} == counts
    assert {"created", "timed-out", "rejected", "changed", "change-rejected"} <= counts.keys(), "every outcome occurs"
    assert all(report.first_ms - report.bucket_ms < one.at_ms <= report.last_ms for one in report.outcomes)
    assert all(one.at_ms % report.bucket_ms == 0 for one in report.outcomes)


def _requests(records: list[Recorded]) -> list[RequestView]:
    of_requests = [one for one in records if hasattr(one.event, "request_id")]
    by_request = sorted(of_requests, key=lambda one: one.event.request_id)  # type: ignore[union-attr]
    grouped = groupby(by_request, key=lambda one: one.event.request_id)  # type: ignore[union-attr]
    return [row for _, group in grouped if (row := request_view(group)) is not None]


def _outcome(request: RequestView, status: str) -> str:
    if status == "rejected":
        return "rejected" if request.timeout_ms is not None else "change-rejected"
    return status if status in OUTCOMES else "changed"


def test_report_waits_are_from_creation_until_ready(report: Report, records: list[Recorded]) -> None:
    created: dict[str, int] = {}
    waits = []
    for one in records:
        if isinstance(one.event, TopicCreated):
            created[one.event.topic] = one.at_ms
        elif isinstance(one.event, TopicReady):
            waits.append(one.at_ms - created[one.event.topic])
    lives = sum(isinstance(one.event, TopicCreated) for one in records)
    assert (report.waits.complete, report.waits.never) == (len(waits), lives - len(waits))
    assert report.waits.max_ms == max(waits)
    assert report.waits.median_ms == sorted(waits)[(len(waits) - 1) // 2]
    for bar in report.wait_bins:
        high = bar.high_ms if bar.high_ms is not None else max(waits) + 1
        assert bar.count == sum(bar.low_ms <= wait < high for wait in waits), bar


def test_report_counts_refusals_by_rule(report: Report, records: list[Recorded]) -> None:
    refused = Counter(
        (one.event.rule, error_name_and_code(one.event.error_code))
        for one in records
        if isinstance(one.event, CreateRejected | ChangeRejected)
    )
    assert {(one.rule, one.error): one.count for one in report.refusals} == refused
    assert [one.count for one in report.refusals] == sorted(refused.values(), reverse=True)


def test_report_broker_loads_equal_the_state(report: Report, records: list[Recorded]) -> None:
    state = fold(records, State(DictTopics()))
    partitions = [partition for topic in topics_of(state) for partition in topic.partitions]
    replicas = Counter(replica for partition in partitions for replica in partition.replicas)
    leaders = Counter(partition.leader for partition in partitions)
    assert (report.held.topics, report.held.partitions) == (len(topics_of(state)), len(partitions))
    assert report.held.leaderless == leaders[-1]  # type: ignore[index]
    assert report.held.placeholders == sum(count for replica, count in replicas.items() if replica < 0)
    shown = {one.broker_id: (one.status, one.rack, one.replicas, one.leaders) for one in report.brokers}
    assert shown == {
        broker.broker_id: ("fenced" if broker.fenced else "live", broker.rack, replicas[number], leaders[number])
        for number, broker in state.cluster.brokers.items()
    }


def test_report_health_over_time_equals_the_folded_events(report: Report, records: list[Recorded]) -> None:
    state, highest = State(DictTopics()), Counter[int]()
    live: dict[int, list[tuple[int, bool]]] = {}
    for record in records:
        state = fold([record], state)
        partitions = [partition for topic in topics_of(state) for partition in topic.partitions]
        under = sum(len(one.isr) < len(one.replicas) for one in partitions)
        bar = record.at_ms // report.bucket_ms * report.bucket_ms
        if isinstance(record.event, PARTITION_EVENTS):
            highest[bar] = max(highest[bar], under)
        for number, broker in state.cluster.brokers.items():
            seen = live.setdefault(number, [])
            if not seen or seen[-1][1] == broker.fenced:
                seen.append((record.at_ms, not broker.fenced))
    assert {one.at_ms: one.under_replicated for one in report.health} == highest
    assert report.health[-1].partitions == report.held.partitions
    lanes = {(one.broker_id, one.since_ms, one.status == "live") for one in report.lanes}
    assert lanes >= {(number, at_ms, is_live) for number, seen in live.items() for at_ms, is_live in seen}
    created = sum(isinstance(r.event, TopicCreated) for r in records)
    refused = sum(isinstance(r.event, CreateRejected | ChangeRejected) for r in records)
    assert sum(count for _, count, _ in report.principals) == created
    assert sum(count for _, _, count in report.principals) == refused > 0
    assert {change for *_, change in report.changes} >= {"deleted", "2 partitions added"}


def test_report_totals_releases_and_checks_equal_the_events(report: Report, records: list[Recorded]) -> None:
    assert (report.events, report.first_ms, report.last_ms) == (len(records), records[0].at_ms, records[-1].at_ms)
    assert dict(report.events_by_type) == Counter(type(one.event).__name__ for one in records)
    assert report.releases == ("1.0",)
    assert [(one.name, one.demands, one.violations) for one in report.checks] == [(*one, 0) for one in CHECKS.items()]


def test_report_at_an_offset_covers_only_events_up_to_it(history: LogRef, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    done = run_report(None, history, Options(to=str(output), at="14"))
    assert not done.found
    assert done.rows[0]["output"] == str(output)
    assert done.rows[0]["offset"] == 14
    assert done.lines == [f"{output} shows {history.text} up to offset 14", f"  all {len(CHECKS)} invariants hold"]
    assert "<p>As of offset 14: 15 events from " in output.read_text(encoding="utf-8")


def test_report_of_a_damaged_log_lists_its_violations(records: list[Recorded], tmp_path: Path) -> None:
    ref = written(tmp_path / "broken", without(records, at(records, TopicCreated, topic="pay.orders")))
    output = tmp_path / "broken.html"
    done = run_report(None, ref, Options(to=str(output)))
    assert done.found
    assert done.rows[0]["violations"]["topic-exists"] > 0
    assert "topic-exists" in done.lines[1]
    text = output.read_text(encoding="utf-8")
    assert "while there is none; expected: the topic" in text
