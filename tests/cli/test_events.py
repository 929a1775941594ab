"""`topicwright events`, `requests`, `explain`, `brokers` and `settings`, for recorded events and while following."""

import asyncio
import json
import re
from typing import Any

import msgspec
import pytest

from controller.cli.output import Style
from controller.cli.reads import events
from controller.cli.reads.events import in_columns, joined, line_of
from projections.views import lines as in_lines
from projections.views.events import STEPS_BEFORE_GAP, CauseView, EventView, ExplanationView, StepView
from projections.views.lines import outcome_mark
from tests.cli.commands import Run, columns
from tests.http.service import service


def test_events_are_printed_and_filtered_by_topic_request_and_offset(offline: Run) -> None:
    header, *lines = offline("events", "-o", "wide").out.splitlines()
    assert header.split() == ["OFFSET", "TIME", "TYPE", "TOPIC", "REQUEST", "WHAT"]
    assert [int(line.split()[0]) for line in lines] == list(range(len(lines)))
    assert lines[1].split()[2:4] == ["BrokerRegistered", "-"]
    assert lines[1].endswith("  broker 1 registers in rack-a, with epoch 1")
    of_topic = [json.loads(line) for line in offline("events", "--topic", "u", "--json").out.splitlines()]
    assert {event["fields"]["topic"] for event in of_topic} == {"u"}
    assert offline("events", "--since", 3, "-o", "wide").out.splitlines()[1:] == lines[3:]
    request = json.loads(offline("topics", "u", "--json").out)["created_by"]["request_id"]
    shown = [line.split() for line in offline("events", "--request", request).out.splitlines()[1:]]
    assert [words[2] for words in shown] == ["CreateRequested", "TopicCreated", "CreateAnswered"]
    assert {(words[3], words[4]) for words in shown} == {("u", request)}, "each line names topic and request"


def test_rejected_and_answered_events_are_merged_into_one_line(offline: Run) -> None:
    lines = offline("events", "--topic", "u").out.splitlines()
    refused = [line for line in lines if "already exists" in line]
    assert len(refused) == 1
    assert re.search(r"is rejected with TOPIC_ALREADY_EXISTS .* \(answered after \d+ ms\)$", refused[0])
    wide = offline("events", "--topic", "u", "-o", "wide").out
    assert wide.count("already exists") == 2


def test_events_are_filtered_by_type_principal_and_time(offline: Run) -> None:
    def shown(*words: object) -> list[dict[str, Any]]:
        return [json.loads(line) for line in offline("events", *words, "--json").out.splitlines()]

    every = shown()
    assert {one["type"] for one in shown("--type", "TopicCreated", "--type", "TopicDeleted")} == {
        "TopicCreated",
        "TopicDeleted",
    }
    nobodys = ("events", "--type", "TopicCreated", "--principal", "User:nobody")
    assert (offline(*nobodys).out, offline(*nobodys, "--json").out) == ("No event matches.\n", "")
    assert shown("--tail", 2) == every[-2:]
    assert shown("--tail", 9, "--until", 12) == every[5:14], "12 is not the last event of its command"
    assert shown("--tail", 9, "--since", 20) == [one for one in every if one["offset"] >= 20][-9:]
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


# command on the folder of a stopped service | exit code, and the error
WRONG = """
events --topic none         | 1 no event of topic 'none'
events --request none       | 1 no event belongs to request 'none'
events --topic a.t --request ID | 1 request 'ID' has no event of topic 'a.t'
events --follow             | 2 --follow needs a running service
requests none               | 1 no request 'none' is in the log
explain nonesuch            | 1 no topic and no request 'nonesuch' is in the log (RESOURCE_NOT_FOUND)
brokers 7                   | 1 broker 7 is not registered; registered are: 1,2,3
settings none               | 1 no setting matches 'none'; there are: default.replication.factor
topics v                    | 1 it was deleted at offset
topics --at 9999            | 2 at: offset 9999 is not reached yet: the newest event is at offset
"""


def test_what_does_not_exist_is_an_error(offline: Run) -> None:
    request = json.loads(offline("topics", "u", "--json").out)["created_by"]["request_id"]
    for line in WRONG.replace("ID", request).strip().splitlines():
        command, expected = (column.strip() for column in line.split("|"))
        code, message = expected.split(" ", 1)
        outcome = offline(*command.split())
        assert (outcome.code, outcome.out, message in outcome.err) == (int(code), "", True), f"{command}: {outcome}"
    late = offline("events", "--topic", "u", "--since", 9999)
    assert late == (0, "No event matches.\n", ""), "no event from that time on"


async def test_events_follow_ends_when_the_service_stops(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[int] = []

    def as_json(event: EventView) -> str:
        printed.append(event.offset)
        return msgspec.json.encode(event).decode()

    monkeypatch.setattr(events, "as_json", as_json)
    async with service() as one:
        address = f"127.0.0.1:{one.port}"
        following = asyncio.create_task(
            asyncio.to_thread(run, "events", "--follow", "--topic", "t", "--json", "--http", address)
        )
        await one.until(lambda: len(one.http.followers) == 1)
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
    assert offsets == printed == [*range(end - 5, end), deleted], "only events of topic t"


AT = "2026-07-17T10:00:00.000Z"


def event(offset: int, kind: str, command: str = "ReconcileTopics", text: str = "…", **fields: Any) -> EventView:
    return EventView(offset, AT, 0, kind, text, CauseView(command, f"review-{command}"), fields)


def change(offset: int, leader: int = 1, **fields: Any) -> EventView:
    known: dict[str, Any] = {"topic": "t", "partition": offset, "reason": "live brokers changed"}
    return event(offset, "PartitionChanged", **known | {"before": {"leader": 1}, "after": {"leader": leader}} | fields)


def test_partition_changes_of_one_cause_are_summarized_in_one_line() -> None:
    stop = event(0, "BrokerFenced", "FenceBroker", "broker 3 is fenced (stopped)", broker_id=3)
    moved = [change(n, 2 if n % 3 == 0 else 1, topic=f"t{n % 2}") for n in range(1, 101)]
    after = event(101, "BrokerUnfenced", "UnfenceBroker", "broker 3 is live (started)", broker_id=3)
    lines = list(joined([stop, *moved, after]))
    assert [line.place for line in lines] == ["0", "1-100", "101"]
    assert lines[1].text == (
        "100 partitions of 2 topics changed in 100 events; 33 leader changes (live brokers changed); -o wide shows each"
    )
    assert lines[1].topic == "(2)"


def test_few_partition_changes_or_different_causes_are_not_merged() -> None:
    few = [change(n) for n in range(3)]
    assert list(joined(few)) == [line_of(one) for one in few]
    two_causes = [change(n) for n in range(5)] + [change(n, reason="reported by the leader") for n in range(5, 10)]
    assert [line.place for line in joined(two_causes)] == ["0-4", "5-9"]
    one_topic = next(iter(joined([change(n) for n in range(5)])))
    assert (one_topic.topic, one_topic.text.startswith("5 partitions of t changed in 5 events (")) == ("t", True)


def test_event_columns_are_aligned() -> None:
    names = ["a", "a" * 20, "b" * 35, "c"]
    lines = [line_of(event(n, "TopicReady", text="ready", topic=name, request_id=name)) for n, name in enumerate(names)]
    shown = list(in_columns(lines, Style()))
    assert {line.rindex("ready") for line in shown[1:]} == {shown[0].index("WHAT")}
    assert next(in_columns(iter(lines), Style(), 1)).index("WHAT") < shown[0].index("WHAT"), "narrower while following"


def refusal(offset: int, kind: str, **fields: Any) -> EventView:
    known = {"topic": "t", "request_id": "r", "error_code": 36, "message": "it is there"}
    return event(offset, kind, "CreateTopic", f"t is rejected: {known['message']}", **{**known, **fields})


def test_rejected_and_answered_events_merge_only_for_one_request() -> None:
    rejected, answered = refusal(1, "CreateRejected", rule="x"), refusal(2, "CreateAnswered", waited_ms=7)
    (line,) = joined([rejected, answered])
    assert (line.place, line.text) == ("1", "t is rejected: it is there (answered after 7 ms)")
    assert line.request == "r"
    other = refusal(2, "CreateAnswered", waited_ms=7, request_id="s")
    assert list(joined([rejected, other])) == [line_of(rejected), line_of(other)]
    assert list(joined([rejected])) == [line_of(rejected)]
    assert list(joined([rejected, rejected])) == [line_of(rejected)] * 2


def test_event_lines_wrap_at_the_terminal_width() -> None:
    text = "words " * 40
    lines = [line_of(event(n, "TopicCreated", "CreateTopic", text.strip(), topic="t")) for n in range(3)]
    for width in (80, 100, 120, 200):
        shown = list(in_columns(lines, Style(width)))
        assert max(map(len, shown)) <= width
        assert " ".join(" ".join(shown).split()).count("words") == 120
        assert "TopicCreated" not in "".join(shown)
    whole = list(in_columns(lines, Style()))
    assert len(whole) == 4
    assert whole[0].split() == ["OFFSET", "TIME", "TYPE", "TOPIC", "REQUEST", "WHAT"]
    assert all(line.endswith(text.strip()) for line in whole[1:])


def test_requests_are_listed_newest_first_with_filters(offline: Run) -> None:
    listed = json.loads(offline("requests", "--json").out)["requests"]
    times = [one["requested_offset"] for one in listed]
    assert times == sorted(times, reverse=True)
    ids = offline("requests", "-o", "name").out.splitlines()
    assert ids == [one["request_id"] for one in listed]
    header, *rows = columns(offline("requests").out)
    assert header == ["REQUEST", "TIME", "BY", "API", "TOPICS", "OUTCOME", "RULE"]
    assert [row[0] for row in rows] == ids
    rejected = json.loads(offline("requests", "--outcome", "rejected", "--json").out)["requests"]
    assert [(one["topics"], one["rules"]) for one in rejected] == [(["u"], ["validation:exists"])]
    by_rule = offline("requests", "--rule", "validation:exists", "-o", "name").out.split()
    assert by_rule == [one["request_id"] for one in rejected]
    shown = offline("requests", by_rule[0]).out
    assert shown.startswith(f"request {by_rule[0]}: HTTP by User:ANONYMOUS")
    assert "TOPIC_ALREADY_EXISTS" in shown
    assert offline("requests", "--principal", "ANONYMOUS", "--rule", "exists", "-o", "name").out.split() == by_rule
    assert offline("requests", "--principal", "ANON*", "--rule", "*exi*", "-o", "name").out.split() == by_rule
    assert offline("requests", "--principal", "User:a*").out == "No request matches.\n"
    assert "'Http' is not HTTP or an API of Kafka" in offline("requests", "--api", "Http").err
    assert len(offline("requests", "--api", "H*", "--host", "127.*", "-o", "name").out.split()) == len(ids)
    assert "'local' is not an IP address, or a pattern of one" in offline("requests", "--host", "local").err
    assert offline("requests", "--limit", 1, "-o", "name").out.split() == ids[:1]
    assert re.search(r"is in the future: it is \S+ now\n", offline("requests", "--since", "2099-01-01").err)


@pytest.mark.parametrize(
    ("outcomes", "mark"),
    [
        ({"created": 3}, "good"),
        ({"created": 1, "timed-out": 1}, "warning"),
        ({"waiting": 1}, "warning"),
        ({"timed-out": 1, "rejected": 1}, "bad"),
        ({"failed": 1}, "bad"),
    ],
)
def test_failed_and_pending_request_outcomes_are_not_marked_good(outcomes: dict[str, int], mark: str) -> None:
    assert outcome_mark(outcomes) == mark


def test_explain_prints_a_topic_and_a_request(offline: Run) -> None:
    outcome = offline("explain", "u")
    assert outcome.code == 0
    first, blank, header, *steps = outcome.out.splitlines()
    assert first.startswith("Topic u: ready, 2 partitions, created 20")
    assert (blank, header.split()) == ("", ["OFFSET", "TIME", "AFTER", "WHAT"])
    assert "requests by HTTP to create u with 2 partitions, the default factor" in steps[0]
    assert "is rejected with TOPIC_ALREADY_EXISTS (36) by validation:exists" in outcome.out
    request = json.loads(offline("topics", "u", "--json").out)["created_by"]["request_id"]
    assert offline("explain", request).out.startswith(f"u created; request {request}: HTTP by User:ANONYMOUS")
    assert json.loads(offline("explain", request, "--json").out)["kind"] == "request"
    first = steps[0].split()[0]
    assert len(offline("explain", "u", "--at", first).out.splitlines()) == 6, "the steps of a single command"


def test_a_long_explanation_marks_omitted_steps() -> None:
    steps = tuple(
        StepView(
            offset=number,
            at="2026-07-17T10:00:00.000Z",
            at_ms=0,
            after_ms=number * 60_000,
            event="PartitionChanged",
            text=f"step {number}",
            because="broker 3 is fenced" if number < 2 else "",
            cause=CauseView("ReconcileTopics", "r"),
        )
        for number in range(STEPS_BEFORE_GAP + 2)
    )
    chain = ExplanationView(subject="t", kind="topic", summary="topic t", steps=steps, omitted=7)
    lines = [line.strip() for line in in_lines.explanation(chain)]
    gap = lines.index("… 7 steps are left out; `topicwright events` shows all …")
    assert lines[gap + 1].endswith(f"step {STEPS_BEFORE_GAP}")
    assert sum(line.startswith("because") for line in lines) == 1
    first = next(number for number, line in enumerate(lines) if line.endswith("0 ms  step 0"))
    assert lines[first + 1 : first + 3] == ["step 1", "because broker 3 is fenced"], "steps with one cause are folded"
    assert f"… and {STEPS_BEFORE_GAP - 5} more, up to offset {STEPS_BEFORE_GAP - 1}" in lines


def test_brokers_and_settings_are_printed_now_and_at_an_offset(offline: Run) -> None:
    header, *rows = columns(offline("brokers").out)
    assert header == ["BROKER", "STATE", "SINCE", "WHY", "RACK", "LISTENERS"]
    assert [row[:2] for row in rows] == [["1", "live"], ["2", "live"], ["3", "live"]]
    assert offline("brokers", "2", "-o", "name").out == "2\n"
    assert offline("brokers", "--at", 1, "-o", "name").out == "1\n"
    settings = json.loads(offline("settings", "num.*", "--json").out)
    assert settings["settings"] == {"num.partitions": "2"}


def test_changes_are_printed_newest_first_with_principal_and_request(offline: Run) -> None:
    by_pattern = offline("events", "--topic", "[uv]", "--type", "TopicCreated").out.splitlines()
    assert [line.split()[3] for line in by_pattern[1:]] == ["v", "u"]
    code, out, _ = offline("changes")
    header, *lines = out.splitlines()
    assert (code, header.split()) == (0, ["OFFSET", "TIME", "TYPE", "TOPIC", "REQUEST", "WHAT"])
    assert re.search(r"TopicDeleted +v +\S+ +User:ANONYMOUS \(.*\) deletes v$", lines[0])
    assert [line.split()[3] for line in offline("changes", "[uv]").out.splitlines()[1:]] == ["v", "u", "v"]
    assert len(offline("changes", "--principal", "User:A*", "--limit", 2).out.splitlines()) == 3
    assert offline("changes", "--since", "now").out == "Nothing was changed.\n"
    shown = json.loads(offline("changes", "u", "--json").out)
    assert [one["type"] for one in shown["changes"]] == ["TopicCreated"]
    assert offline("explain", shown["changes"][0]["request_id"]).code == 0
