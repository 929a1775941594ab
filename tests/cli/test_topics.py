"""`topicwright topics`, and what a create would get: on the folder of a stopped service."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from controller.cli.reads import common
from tests.cli.commands import Run, columns, open_log
from tests.http.service import POLICY, Judge, owned, service


def test_topics_are_listed_incolumns(run: Run, stopped: Path) -> None:
    outcome = run("topics", "--data", stopped)
    assert (outcome.code, outcome.err) == (0, "")
    header, first, second = columns(outcome.out)
    assert header == ["TOPIC", "PARTITIONS", "FACTOR", "STATUS", "CREATED", "BY"]
    assert first[:4] == ["a.t", "1", "3", "ready"]
    assert second[:4] == ["u", "2", "3", "ready"]
    assert second[5] == "User:ANONYMOUS"
    starts = {line.index("ready") for line in outcome.out.splitlines()[1:]}
    assert starts == {outcome.out.index("STATUS")}, "in one column with its heading"


def test_one_topic_is_shown_in_full(run: Run, stopped: Path) -> None:
    outcome = run("topics", "a.t", "--data", stopped)
    assert outcome.code == 0
    assert outcome.out.startswith("a.t: ready, as of offset ")
    for words in (
        "partitions  1, factor 3",
        "by User:ANONYMOUS (python-httpx",
        "over HTTP, in request boot-",
        "later\n",
    ):
        assert words in outcome.out
    assert "configs     retention.ms=5" in outcome.out
    assert columns(outcome.out)[-2:] == [
        ["PARTITION", "LEADER", "REPLICAS", "IN", "SYNC", "OFFLINE"],
        ["0", *_replicas(outcome.out), "-"],
    ]


def _replicas(text: str) -> list[str]:
    last = text.splitlines()[-1].split()
    assert last[1] == last[2].partition(",")[0] == last[3].partition(",")[0], "led by its first replica"
    return last[1:4]


def test_the_past_is_shown_by_offset_and_by_time(run: Run, stopped: Path) -> None:
    events = [json.loads(line) for line in run("events", "--data", stopped, "--json").out.splitlines()]
    born = next(event for event in events if event["type"] == "TopicCreated" and event["fields"]["topic"] == "v")
    for at in (born["offset"], born["at"], f"{born['at_ms']}ms"):
        outcome = run("topics", "v", "--at", at, "--data", stopped)
        assert outcome.code == 0, outcome.err
        assert outcome.out.startswith("v: ")
    gone = run("topics", "v", "--data", stopped)
    assert gone.code == 1
    assert "it was deleted at offset" in gone.err
    assert gone.out == ""
    listed = json.loads(run("topics", "--at", born["offset"], "--data", stopped, "--json").out)
    assert [topic["name"] for topic in listed["topics"]] == ["a.t", "v"]
    before = run("topics", "--at", "2001-01-01", "--data", stopped)
    assert (before.code, before.out) == (0, "There are no topics before the first event.\n")
    beyond = run("topics", "--at", 9999, "--data", stopped)
    assert (beyond.code, beyond.out) == (2, "")
    assert "at: offset 9999 is not reached yet: the newest event is at offset" in beyond.err


def test_topics_are_chosen_by_pattern_status_and_principal(run: Run, stopped: Path) -> None:
    def names(*words: str) -> list[str]:
        return run("topics", *words, "-o", "name", "--data", stopped).out.split()

    assert names() == ["a.t", "u"]
    assert names("a.*") == names("?.t") == ["a.t"]
    assert names("--status", "ready") == ["a.t", "u"]
    assert names("--status", "offline") == []
    assert names("--principal", "User:ANON*") == ["a.t", "u"]
    assert names("--principal", "User:bob") == []
    assert run("topics", "z*", "--data", stopped).out.startswith("There are no topics that match as of offset ")


def test_pages_are_put_together(run: Run, stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [("topics",), ("topics", "--at", 20), ("events",)]
    whole = [run(*one, "--data", stopped) for one in commands]
    monkeypatch.setattr(common, "PAGE", 1)
    assert [run(*one, "--data", stopped) for one in commands] == whole


def test_a_dry_run_shows_what_a_create_would_get_and_says_when_it_would_be_refused(run: Run, stopped: Path) -> None:
    outcome = run(
        "topic", "create", "new", "--dry-run", "--partitions", 2, "--config", "retention.ms=9", "--data", stopped
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("new would be created: 2 partitions, factor 3\n  retention.ms=9\n\nPARTITION  LEADER")
    assert len(outcome.out.splitlines()) == 6
    again = json.loads(run("topic", "create", "new", "--dry-run", "--partitions", 2, "--data", stopped, "--json").out)
    assert [part["partition"] for part in again["partitions"]] == [0, 1]
    refused = run("topic", "create", "u", "--dry-run", "--replication-factor", 2, "--data", stopped)
    assert refused.code == 1
    assert refused.out.startswith("u would be refused: Topic 'u' already exists.")
    assert refused.out.endswith("(TOPIC_ALREADY_EXISTS, by validation:exists)\n")
    real = run("topic", "create", "new", "--data", stopped)
    assert (real.code, real.out) == (2, "")
    assert "a stopped service creates nothing: --data needs --dry-run" in real.err
    odd = run("topic", "create", "new", "--dry-run", "--partitions", -7, "--data", stopped)
    assert odd.code == 1
    assert "num_partitions" in odd.out


async def test_a_dry_run_names_the_policy_that_refuses_and_says_when_none_was_consulted(
    run: Run, tmp_path: Path
) -> None:
    log = open_log(tmp_path / "data")
    async with service(log=log, settings=POLICY, judge=Judge(owned)) as one:
        refused = await asyncio.to_thread(run, "topic", "create", "t", "--dry-run", "--http", f"127.0.0.1:{one.port}")
    log.close()
    assert refused.code == 1
    assert refused.out == "t would be refused: t has no owner (POLICY_VIOLATION, by policy:tests.Owned/owner)\n"
    without_policy = await asyncio.to_thread(run, "topic", "create", "t", "--dry-run", "--data", tmp_path / "data")
    assert without_policy.code == 0
    assert "policies were not called: a stopped service runs none" in without_policy.out
