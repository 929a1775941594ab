"""What a cluster that carries decisions out did, as rows, in words, and in queries of any moment."""

from __future__ import annotations

from controller.machine.apply import apply
from controller.machine.state import DictTopics, State
from projections.views.requests import request_view
from tests.events.golden import history
from tests.machine.rig import topics_of
from tests.projections.logs import query_of, questions_of


def test_topics_of_any_moment_are_those_of_the_folds() -> None:
    log = history("cluster")
    query = query_of(log)
    for end in range(1, len(log) + 1):
        state = State(DictTopics())
        for record in log[:end]:
            apply(state, record)
        found = [row.name for row in query.topics_at(end, "", 100).rows]
        assert found == [topic.name for topic in topics_of(state)], f"before offset {end}"


def test_a_topic_that_was_found_has_a_row_now() -> None:
    query = questions_of(history("cluster")[:-2])
    rows = query.rows(query.newest(None, 100))
    assert [(row.name, row.created_by, len(row.partitions)) for row in rows] == [("d", None, 2)]


def test_requests_are_answered_when_their_change_is_carried_out() -> None:
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
