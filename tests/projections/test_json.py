"""The JSON of queries: every answer about a golden history has the types that its shape declares."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from events.names import RequestId, TopicName
from projections.queries import overviews
from projections.queries.events import EventFilter, events_page
from projections.queries.explain import explain
from projections.queries.query import NotThere, Questions
from projections.queries.requests import request_at
from projections.queries.topics import topic_at, topics_at
from projections.views.topics import created, deleted, refusal
from projections.views.view import ErrorView
from tests.events.golden import HISTORIES, history
from tests.machine.tables import command
from tests.projections.logs import kept, questions_of, story


def _answers(query: Questions, topics: set[str], requests: set[str], end: int) -> Iterator[msgspec.Struct]:
    """Every answer that a query can give about a history."""
    yield events_page(query, EventFilter(), 0, end)
    for at in map(str, range(end)):
        yield topics_at(query, at, None, end)
        yield overviews.brokers(query, at)
    for request_id in requests:
        yield request_at(query, request_id)
    for subject in topics | requests:
        yield explain(query, subject)
    for name in topics:
        try:
            yield topic_at(query.of_topic(name), name, None)
        except NotThere:
            continue


@pytest.mark.parametrize("name", HISTORIES)
def test_every_answer_reads_back_as_itself(name: str) -> None:
    records = history(name)
    query = questions_of(records)
    topics = {topic for one in records if (topic := getattr(one.event, "topic", None))}
    requests = {request for one in records if (request := getattr(one.event, "request_id", None))}
    for answer in _answers(query, topics, requests, len(records)):
        encoded = msgspec.json.encode(answer)
        assert msgspec.json.encode(msgspec.json.decode(encoded, type=type(answer))) == encoded


def test_a_create_a_delete_and_a_refusal_read_back_as_themselves() -> None:
    rig = story("1 2 3\ncreate t 2x3 id=q")
    store = kept(rig.log)[1]
    topic = store.durable_named("t")
    answer = Answer(RequestId("q"), TopicName("t"), 0, topic=topic)
    refused = rig.put(command(rig, "create t 2x3 id=again")).answers[0]
    made = created(answer, store.durable_cluster.live, False)
    for shape in (made, deleted(answer, topic), refusal(refused)):
        assert msgspec.json.decode(msgspec.json.encode(shape), type=type(shape)) == shape
    assert (made.status, made.replication_factor) == ("ready", 3)
    assert created(answer, (), True).topic_id is None, "a dry run has no id"
    assert refusal(refused) == ErrorView(
        error="TOPIC_ALREADY_EXISTS",
        code=ErrorCode.TOPIC_ALREADY_EXISTS,
        message=refused.message,
        request_id="again",
        rule="validation:exists",
    )
