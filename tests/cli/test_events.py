"""`topicwright events`: which are shown, how, and as they happen."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.cli.reads import event_lines
from projections.views.events import EventView
from tests.cli.commands import Run
from tests.http.service import service


def test_events_are_shown_one_a_line_and_chosen_by_topic_request_and_offset(run: Run, stopped: Path) -> None:
    header, *lines = run("events", "-o", "wide", "--data", stopped).out.splitlines()
    assert header.split() == ["OFFSET", "TIME", "TYPE", "TOPIC", "REQUEST", "WHAT"]
    assert [int(line.split()[0]) for line in lines] == list(range(len(lines)))
    assert lines[1].split()[2:4] == ["BrokerRegistered", "-"]
    assert lines[1].endswith("  broker 1 registers in rack-a, with epoch 1")
    of_topic = [
        json.loads(line) for line in run("events", "--topic", "u", "--data", stopped, "--json").out.splitlines()
    ]
    assert {event["fields"]["topic"] for event in of_topic} == {"u"}
    assert run("events", "--from", 3, "-o", "wide", "--data", stopped).out.splitlines()[1:] == lines[3:]
    request = json.loads(run("topics", "u", "--json", "--data", stopped).out)["created_by"]["request_id"]
    shown = [line.split() for line in run("events", "--request", request, "--data", stopped).out.splitlines()[1:]]
    assert [words[2] for words in shown] == ["CreateRequested", "TopicCreated", "CreateAnswered"]
    assert {(words[3], words[4]) for words in shown} == {("u", request)}, "each line names topic and request"


def test_a_refusal_is_one_line(run: Run, stopped: Path) -> None:
    lines = run("events", "--topic", "u", "--data", stopped).out.splitlines()
    refused = [line for line in lines if "already exists" in line]
    assert len(refused) == 1
    assert re.search(r"is refused with TOPIC_ALREADY_EXISTS .* \(answered after \d+ ms\)$", refused[0])
    wide = run("events", "--topic", "u", "-o", "wide", "--data", stopped).out
    assert wide.count("already exists") == 2


def test_events_are_chosen_by_type_principal_and_time(run: Run, stopped: Path) -> None:
    def shown(*words: object) -> list[dict[str, Any]]:
        return [json.loads(line) for line in run("events", *words, "--json", "--data", stopped).out.splitlines()]

    every = shown()
    assert {one["type"] for one in shown("--type", "TopicCreated", "--type", "TopicDeleted")} == {
        "TopicCreated",
        "TopicDeleted",
    }
    nobodys = ("events", "--type", "TopicCreated", "--principal", "User:nobody", "--data", stopped)
    assert (run(*nobodys).out, run(*nobodys, "--json").out) == ("No event matches.\n", "")
    assert shown("--tail", 2) == every[-2:]
    assert shown("--tail", 9, "--until", 12) == every[4:13]
    assert shown("--tail", 9, "--from", 20) == [one for one in every if one["offset"] >= 20][-9:]
    assert shown("--tail", 1000) == every
    assert shown("--type", "TopicCreated", "--tail", 1) == [one for one in every if one["type"] == "TopicCreated"][-1:]
    asked = shown("--principal", "User:ANON*")
    assert {one["fields"]["principal"] for one in asked} == {"User:ANONYMOUS"}
    assert shown("--principal", "User:nobody") == []
    middle = next(one for one in every if one["type"] == "TopicDeleted")
    assert shown("--since", middle["at"]) == [one for one in every if one["at_ms"] >= middle["at_ms"]]
    assert shown("--until", middle["at"]) == [one for one in every if one["at_ms"] <= middle["at_ms"]]
    assert shown("--since", middle["offset"], "--until", middle["offset"]) == [middle]
    assert shown("--since", "1h") == every
    assert shown("--until", "1d") == []


def test_events_of_what_is_not_there_are_an_error(run: Run, stopped: Path) -> None:
    request = json.loads(run("topics", "u", "--json", "--data", stopped).out)["created_by"]["request_id"]
    expected = {
        ("--topic", "none"): "no event of topic 'none'",
        ("--request", "none"): "no event belongs to request 'none'",
        ("--topic", "a.t", "--request", request): f"request '{request}' has no event of topic 'a.t'",
    }
    for words, message in expected.items():
        outcome = run("events", *words, "--data", stopped)
        assert (outcome.code, outcome.out) == (1, ""), words
        assert message in outcome.err
    late = run("events", "--topic", "u", "--from", 9999, "--data", stopped)
    there_are_none = "No event matches.\n"
    assert (late.code, late.out, late.err) == (0, there_are_none, ""), "it has events, but none from there on"


async def test_events_are_followed_until_the_service_stops(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[int] = []

    def as_json(event: EventView) -> str:
        printed.append(event.offset)
        return msgspec.json.encode(event).decode()

    monkeypatch.setattr(event_lines, "as_json", as_json)
    async with service() as one:
        address = f"127.0.0.1:{one.port}"
        following = asyncio.create_task(
            asyncio.to_thread(run, "events", "--follow", "--topic", "t", "--json", "--http", address)
        )
        await one.until(lambda: len(one.http._parts.followers) == 1)
        await one.create("t", num_partitions=1)
        end = one.log.durable_offset
        await one.create("u", num_partitions=1)
        await one.request("DELETE", "/v1/topics/t")
        deleted = one.log.durable_offset - 1
        await one.until(lambda: deleted in printed)
        await one.http.stop()
        outcome = await following
    assert outcome.code == 2
    assert outcome.err == f"topicwright: the service at {address} has stopped\n"
    offsets = [json.loads(line)["offset"] for line in outcome.out.splitlines()]
    assert offsets == printed == [*range(end - 5, end), deleted], "those of topic t alone"


def test_following_needs_a_running_service(run: Run, stopped: Path) -> None:
    outcome = run("events", "--follow", "--data", stopped)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--follow needs a running service" in outcome.err
