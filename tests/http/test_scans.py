"""Answers that count all topics: a response has the topics read so far, and repeated requests get all."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from controller.machine.state import Topic
from controller.store.store import TopicStore
from projections.queries.risks import Risks
from tests.http.service import Service


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Steps of one slice, and slices of one topic; all after the first wait for this event."""
    opened = threading.Event()

    def gated(self: Risks, store: TopicStore) -> Iterator[list[Topic]]:
        for number, topics in enumerate([topic] for each in store.durable_topics() for topic in each):
            if number:
                opened.wait()
            yield topics

    monkeypatch.setattr("controller.http.topics.STEP_S", 0)
    monkeypatch.setattr(Risks, "slices", gated)
    yield opened
    opened.set()


async def _complete(one: Service, path: str) -> Any:
    while not (found := await one.get(path))["is_complete"]:
        pass
    return found


async def test_a_count_of_all_topics_answers_after_a_step_and_continues(one: Service, gate: threading.Event) -> None:
    for number in range(3):
        await one.create(f"t{number}", replication_factor=1)
    first = await one.get("/v1/risks")
    assert (first["topics_read"], first["is_complete"], first["counts"]["one-replica"]) == (1, False, 1)
    await one.create("later", replication_factor=1)
    gate.set()
    found = await _complete(one, "/v1/risks")
    assert (found["topics_read"], found["counts"]["one-replica"]) == (3, 3), "as of the first request"
    assert found["as_of"] == first["as_of"]
    assert (await _complete(one, "/v1/risks"))["topics_read"] == 4, "a later event makes a new count"


async def test_an_abandoned_count_begins_again(
    one: Service, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await one.create(f"t{number}")
    assert not (await one.get("/v1/risks"))["is_complete"]
    await one.create("later")
    gate.set()
    with monkeypatch.context() as patched:
        patched.setattr("controller.http.topics.ABANDONED_S", -1)
        assert (await one.get("/v1/risks"))["topics_read"] == 1
    assert (await _complete(one, "/v1/risks"))["topics_read"] == 4


async def test_the_same_count_requested_at_once_is_made_once(one: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Risks] = []
    slices = Risks.slices

    def counted(self: Risks, store: TopicStore) -> Iterator[list[Topic]]:
        made.append(self)
        return slices(store)

    monkeypatch.setattr(Risks, "slices", counted)
    await one.create("t")
    await asyncio.gather(*(one.get("/v1/risks") for _ in range(5)))
    assert len(made) == 1


async def test_the_page_of_an_unfinished_count_says_so(one: Service, gate: threading.Event) -> None:
    for number in range(2):
        await one.create(f"t{number}")
    shown = await one.client.get("/risks", headers={"accept": "text/html"})
    assert "Still counting, topics so far: 1." in shown.text


async def test_a_complete_count_is_reused_until_the_next_event(one: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    await one.create("t")
    found = await one.get("/v1/risks")
    assert found["is_complete"]
    monkeypatch.setattr(Risks, "slices", lambda self, store: pytest.fail("nothing changed"))
    assert await one.get("/v1/risks") == found


async def test_the_number_of_running_counts_is_bounded(
    one: Service, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.http.topics.SCANS_MAX", 2)
    for number in range(2):
        await one.create(f"t{number}")
    for limit in (1, 2):
        assert not (await one.get(f"/v1/risks?limit={limit}"))["is_complete"]
    assert "2 counts of all topics are running" in (await one.get("/v1/risks?limit=3", 503))["message"]
    gate.set()
    await _complete(one, "/v1/risks?limit=1")
    assert (await _complete(one, "/v1/risks?limit=3"))["topics_read"] == 2


async def test_an_error_ends_a_count_and_the_next_request_begins_another(
    one: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.create("t")
    with monkeypatch.context() as patched:
        patched.setattr(Risks, "slices", lambda self, store: 1 / 0)
        await one.get("/v1/risks", 500)
    assert (await one.get("/v1/risks"))["is_complete"]
