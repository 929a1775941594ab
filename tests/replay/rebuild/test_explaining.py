"""Explanations of topics and requests from a subset of a log's events."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn

from events.catalog import Recorded
from events.codec import encode_event
from events.names import shard_key
from projections.queries.explain import explain
from projections.queries.query import NotFound, Queries, Query
from projections.replay.log.columns import shard_of
from projections.replay.log.log_ref import LogRef
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import Options, ReplayError
from projections.replay.rebuild.explaining import Excerpt, explained, run_explain
from projections.views import lines
from projections.views.events import ExplanationView
from tests.machine.walks import Walk, walked, walks
from tests.projections.logs import query_of
from tests.replay.written import records_of


def _explanation(query: Query, subject: str) -> ExplanationView | str:
    try:
        return explain(Queries([query]), subject)
    except NotFound as error:
        return str(error)


def _query_of_shards(records: Sequence[Recorded], shards: set[str], end: int) -> Query:
    excerpt = Excerpt(end)
    for one in records:
        if shard_of(one.event) in shards:
            value = encode_event(one.at_ms, one.cause, one.event)
            excerpt.add(one.offset, shard_of(one.event), getattr(one.event, "request_id", None), value)
    return Query(excerpt, lambda: pytest.fail("the live state is read"))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@drawn(walks(steps_max=40))
def test_an_explanation_from_shard_events_equals_that_of_the_full_log(walk: Walk) -> None:
    log = walked(walk).log
    whole = query_of(log)
    for name in ("a", "b", "a.b", "a_b", "nobody"):
        some = _query_of_shards(log, {shard_key(name), ""}, len(log))
        assert _explanation(some, name) == _explanation(whole, name), f"topic {name} has another explanation"
    for request_id in dict.fromkeys(record.cause.request_id for record in log):
        shards = {shard_of(one.event) for one in log if getattr(one.event, "request_id", None) == request_id}
        some = _query_of_shards(log, {*shards, ""}, len(log))
        assert _explanation(some, request_id) == _explanation(whole, request_id), (
            f"request {request_id} has another explanation"
        )


def test_replay_explains_topics_and_requests_as_the_service_does(history: LogRef) -> None:
    with frozen_log(history.path) as log:
        query = Query(log, lambda: pytest.fail("the live state is read"))
        refunds = next(one.cause.request_id for one in records_of(history) if "pay_refunds" in str(one.event))
        for subject in ("pay.orders", refunds):
            done = run_explain(None, history, Options(subject=subject))
            whole = explain(Queries([query]), subject)
            assert explained(history, subject) == {0: whole}
            assert done.lines == list(lines.explanation(whole))
            assert not done.found
            assert [step["offset"] for step in done.rows[0]["steps"]] == [step.offset for step in whole.steps]


def test_explain_at_an_offset_ignores_later_events(history: LogRef) -> None:
    created = next(one for one in records_of(history) if type(one.event).__name__ == "TopicCreated")
    explanation = explained(history, "pay.orders", at=str(created.offset))[0]
    assert [step.event for step in explanation.steps] == ["CreateRequested", "TopicCreated"]
    assert "topic pay.orders: pending, 3 partitions" in explanation.summary


def test_explaining_an_unknown_topic_or_request_is_an_error(history: LogRef) -> None:
    with pytest.raises(ReplayError, match=r"^no topic and no request 'pay.orders' is in the log up to 2$"):
        run_explain(None, history, Options(subject="pay.orders", at="2"))
    with pytest.raises(ReplayError, match=r"^no topic and no request 'nobody' is in the log$"):
        run_explain(None, history, Options(subject="nobody"))
