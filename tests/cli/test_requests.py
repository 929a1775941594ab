"""`topicwright requests`, `explain`, `brokers` and `settings`: who wanted what, why it went so, and who decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from projections.views import lines as in_lines
from projections.views.events import STEPS_FIRST, CauseView, ExplanationView, StepView
from projections.views.lines import outcome_mark
from tests.cli.commands import Run, columns


def test_requests_are_listed_newest_first_chosen_and_shown(run: Run, stopped: Path) -> None:
    listed = json.loads(run("requests", "--json", "--data", stopped).out)["requests"]
    times = [one["requested_offset"] for one in listed]
    assert times == sorted(times, reverse=True)
    ids = run("requests", "-o", "name", "--data", stopped).out.splitlines()
    assert ids == [one["request_id"] for one in listed]
    header, *rows = columns(run("requests", "--data", stopped).out)
    assert header == ["REQUEST", "TIME", "BY", "API", "TOPICS", "OUTCOME", "REFUSED", "BY"]
    assert [row[0] for row in rows] == ids
    rejected = json.loads(run("requests", "--outcome", "rejected", "--json", "--data", stopped).out)["requests"]
    assert [(one["topics"], one["rules"]) for one in rejected] == [(["u"], ["validation:exists"])]
    by_rule = run("requests", "--rule", "validation:exists", "-o", "name", "--data", stopped).out.split()
    assert by_rule == [one["request_id"] for one in rejected]
    shown = run("requests", by_rule[0], "--data", stopped).out
    assert shown.startswith(f"request {by_rule[0]}: HTTP by User:ANONYMOUS")
    assert "TOPIC_ALREADY_EXISTS" in shown
    assert run("requests", "--limit", 1, "-o", "name", "--data", stopped).out.split() == ids[:1]
    assert run("requests", "--since", "2099-01-01", "--data", stopped).out.startswith("No request matches")
    gone = run("requests", "none", "--data", stopped)
    assert (gone.code, gone.out) == (1, "")
    assert "no request 'none' is in the log" in gone.err


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
def test_an_outcome_that_is_not_good_is_not_green(outcomes: dict[str, int], mark: str) -> None:
    assert outcome_mark(outcomes) == mark


def test_a_topic_and_a_request_are_explained(run: Run, stopped: Path) -> None:
    outcome = run("explain", "u", "--data", stopped)
    assert outcome.code == 0
    first, blank, header, *steps = outcome.out.splitlines()
    assert first.startswith("topic u: ready, 2 partitions, created 20")
    assert (blank, header.split()) == ("", ["OFFSET", "TIME", "AFTER", "WHAT"])
    assert "requests by HTTP to create u with 2 partitions, the default factor" in steps[0]
    assert "is refused with TOPIC_ALREADY_EXISTS (36) by validation:exists" in outcome.out
    request = json.loads(run("topics", "u", "--json", "--data", stopped).out)["created_by"]["request_id"]
    assert run("explain", request, "--data", stopped).out.startswith(f"request {request}: HTTP by User:ANONYMOUS")
    assert json.loads(run("explain", request, "--data", stopped, "--json").out)["kind"] == "request"
    unknown = run("explain", "nonesuch", "--data", stopped)
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err == "topicwright: no topic and no request 'nonesuch' is in the log (RESOURCE_NOT_FOUND)\n"


def test_a_long_chain_shows_what_it_omits_and_each_cause_once(run: Run, stopped: Path) -> None:
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
        for number in range(STEPS_FIRST + 2)
    )
    chain = ExplanationView(subject="t", kind="topic", summary="topic t", steps=steps, omitted=7)
    lines = [line.strip() for line in in_lines.explanation(chain)]
    assert [line for line in lines if line.startswith("…")] == [
        "… 7 steps are left out; `topicwright events` shows all …"
    ]
    gap = lines.index("… 7 steps are left out; `topicwright events` shows all …")
    assert lines[gap - 1].endswith(f"step {STEPS_FIRST - 1}")
    assert lines[gap + 1].endswith(f"step {STEPS_FIRST}")
    assert sum(line.startswith("because") for line in lines) == 1
    assert any("1.0 min  step 1" in line for line in lines)


def test_explanations_end_at_a_moment(run: Run, stopped: Path) -> None:
    events = [json.loads(line) for line in run("events", "--topic", "v", "--json", "--data", stopped).out.splitlines()]
    born = next(one for one in events if one["type"] == "TopicCreated")
    then = run("explain", "v", "--at", born["offset"], "--data", stopped).out
    assert then.splitlines()[-1].split()[0] == str(born["offset"])
    assert "deletes" not in then
    assert "deletes v" in run("explain", "v", "--data", stopped).out
    request = born["fields"]["request_id"]
    assert (
        run("explain", request, "--at", born["offset"], "--data", stopped).out.splitlines()[-1] == then.splitlines()[-1]
    )
    early = run("explain", request, "--at", 0, "--data", stopped)
    assert (early.code, early.out) == (1, "")


def test_brokers_and_settings_are_shown_now_and_then(run: Run, stopped: Path) -> None:
    header, *rows = columns(run("brokers", "--data", stopped).out)
    assert header == ["BROKER", "STATE", "SINCE", "WHY", "RACK", "LISTENERS"]
    assert [row[:2] for row in rows] == [["1", "live"], ["2", "live"], ["3", "live"]]
    assert run("brokers", "2", "-o", "name", "--data", stopped).out == "2\n"
    assert run("brokers", "--at", 1, "-o", "name", "--data", stopped).out == "1\n"
    nobody = run("brokers", 7, "--data", stopped)
    assert (nobody.code, nobody.out, nobody.err) == (
        1,
        "",
        "topicwright: broker 7 is not registered; registered are: 1,2,3\n",
    )
    settings = json.loads(run("settings", "num.*", "--json", "--data", stopped).out)
    assert settings["settings"] == {"num.partitions": "2"}
    none = run("settings", "none", "--data", stopped)
    assert none.code == 1
    assert "no setting matches 'none'; there are: default.replication.factor" in none.err
