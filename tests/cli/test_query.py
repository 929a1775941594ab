"""`topicwright topics`, `events` and `explain` against a running service, and on the folder of a stopped one."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from controller.cli.main import main
from controller.cli.reads import common, event_lines
from events.catalog import EVENT_VERSION
from events.logs.rocksdb_log import RocksDbLog
from projections.shown import lines as in_lines
from projections.shown.json_types import CauseShape, EventShape, ExplanationShape, StepShape
from projections.words.explain import STEPS_FIRST
from tests.http.service import POLICY, Judge, Service, owned, service
from tests.support.topicwright import COMMAND

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class Outcome(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, as `topicwright` would."""

    def run_it(*arguments: object) -> Outcome:
        try:
            code: object = main([str(one) for one in arguments])
        except SystemExit as end:
            code = end.code
        assert isinstance(code, int)
        return Outcome(code, *capsys.readouterr())

    return run_it


def _open(folder: Path) -> RocksDbLog:
    return RocksDbLog.open(
        folder, cluster_id=CLUSTER_ID, event_version=EVENT_VERSION, new_cluster_id=lambda: CLUSTER_ID
    )


@asynccontextmanager
async def _running() -> AsyncIterator[tuple[Service, str]]:
    async with service() as one:
        yield one, f"127.0.0.1:{one.port}"


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The folder of a service that has stopped: topics a.t and u, v deleted, one create refused."""

    async def live() -> None:
        log = _open(tmp_path / "data")
        async with service(log=log) as one:
            await one.create("a.t", num_partitions=1, configs={"retention.ms": "5"})
            await one.create("v", num_partitions=1)
            await one.create("u", num_partitions=2)
            await one.create("u", 409)
            await one.request("DELETE", "/topics/v")
        log.close()

    asyncio.run(live())
    return tmp_path / "data"


def _columns(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_topics_are_listed_in_columns(run: Run, stopped: Path) -> None:
    outcome = run("topics", "--data", stopped)
    assert (outcome.code, outcome.err) == (0, "")
    header, first, second = _columns(outcome.out)
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
    assert _columns(outcome.out)[-2:] == [
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


def test_pages_are_put_together(run: Run, stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [("topics",), ("topics", "--at", 20), ("events",)]
    whole = [run(*one, "--data", stopped) for one in commands]
    monkeypatch.setattr(common, "PAGE", 1)
    assert [run(*one, "--data", stopped) for one in commands] == whole


def test_a_topic_and_a_request_are_explained(run: Run, stopped: Path) -> None:
    outcome = run("explain", "u", "--data", stopped)
    assert outcome.code == 0
    first, blank, header, *steps = outcome.out.splitlines()
    assert first.startswith("topic u: ready, 2 partitions, created 20")
    assert (blank, header.split()) == ("", ["OFFSET", "TIME", "AFTER", "WHAT"])
    assert "asks over HTTP to create u with 2 partitions, the default factor" in steps[0]
    assert "is refused with TOPIC_ALREADY_EXISTS (36) by validation:exists" in outcome.out
    request = json.loads(run("topics", "u", "--json", "--data", stopped).out)["created_by"]["request_id"]
    assert run("explain", request, "--data", stopped).out.startswith(f"request {request}: HTTP by User:ANONYMOUS")
    assert json.loads(run("explain", request, "--data", stopped, "--json").out)["kind"] == "request"
    unknown = run("explain", "nonesuch", "--data", stopped)
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err == "topicwright: no topic and no request 'nonesuch' is in the log (RESOURCE_NOT_FOUND)\n"


def test_a_long_chain_shows_what_it_omits_and_each_cause_once(run: Run, stopped: Path) -> None:
    steps = tuple(
        StepShape(
            offset=number,
            at="2026-07-17T10:00:00.000Z",
            at_ms=0,
            after_ms=number * 60_000,
            event="IsrChanged",
            text=f"step {number}",
            because="broker 3 is fenced" if number < 2 else "",
            cause=CauseShape("ReviewTopics", "r"),
        )
        for number in range(STEPS_FIRST + 2)
    )
    chain = ExplanationShape(subject="t", kind="topic", summary="topic t", steps=steps, omitted=7)
    lines = [line.strip() for line in in_lines.explanation(chain)]
    assert [line for line in lines if line.startswith("…")] == [
        "… 7 steps are left out; `topicwright events` shows all …"
    ]
    gap = lines.index("… 7 steps are left out; `topicwright events` shows all …")
    assert lines[gap - 1].endswith(f"step {STEPS_FIRST - 1}")
    assert lines[gap + 1].endswith(f"step {STEPS_FIRST}")
    assert sum(line.startswith("because") for line in lines) == 1
    assert any("1.0 min  step 1" in line for line in lines)


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
    assert "a stopped service creates nothing: --data goes with --dry-run" in real.err
    odd = run("topic", "create", "new", "--dry-run", "--partitions", -7, "--data", stopped)
    assert odd.code == 1
    assert "num_partitions" in odd.out


def test_requests_are_listed_newest_first_chosen_and_shown(run: Run, stopped: Path) -> None:
    listed = json.loads(run("requests", "--json", "--data", stopped).out)["requests"]
    times = [one["asked_offset"] for one in listed]
    assert times == sorted(times, reverse=True)
    ids = run("requests", "-o", "name", "--data", stopped).out.splitlines()
    assert ids == [one["request_id"] for one in listed]
    header, *rows = _columns(run("requests", "--data", stopped).out)
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
    assert run("requests", "--since", "2099-01-01", "--data", stopped).out.startswith("There are no such requests")
    gone = run("requests", "none", "--data", stopped)
    assert (gone.code, gone.out) == (1, "")
    assert "no request 'none' is in the log" in gone.err


def test_brokers_and_settings_are_shown_now_and_then(run: Run, stopped: Path) -> None:
    header, *rows = _columns(run("brokers", "--data", stopped).out)
    assert header == ["BROKER", "STATE", "SINCE", "WHY", "RACK", "LISTENERS"]
    assert [row[:2] for row in rows] == [["1", "live"], ["2", "live"], ["3", "live"]]
    assert run("brokers", "2", "-o", "name", "--data", stopped).out == "2\n"
    assert run("brokers", "--at", 1, "-o", "name", "--data", stopped).out == "1\n"
    nobody = run("brokers", 7, "--data", stopped)
    assert (nobody.code, nobody.out, nobody.err) == (
        1,
        "",
        "topicwright: no broker 7 is registered; there are: 1,2,3\n",
    )
    settings = json.loads(run("settings", "num.*", "--json", "--data", stopped).out)
    assert settings["settings"] == {"num.partitions": "2"}
    none = run("settings", "none", "--data", stopped)
    assert none.code == 1
    assert "no setting 'none' decides here; there are: default.replication.factor" in none.err


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


def test_every_format_has_the_same_answer(run: Run, stopped: Path) -> None:
    for words in (("topics",), ("topics", "u"), ("requests",), ("brokers",), ("settings",), ("explain", "u")):
        as_json = json.loads(run(*words, "-o", "json", "--data", stopped).out)
        assert yaml.safe_load(run(*words, "-o", "yaml", "--data", stopped).out) == as_json, words
    events = [json.loads(line) for line in run("events", "-o", "json", "--data", stopped).out.splitlines()]
    assert list(yaml.safe_load_all(run("events", "-o", "yaml", "--data", stopped).out)) == events
    wide = run("topics", "-o", "wide", "--data", stopped).out
    assert wide.splitlines()[0].split()[-4:] == ["ID", "READY", "REQUEST", "CONFIGS"]
    assert "retention.ms=5" in wide


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


async def test_a_running_service_answers_the_same(run: Run, tmp_path: Path) -> None:
    log = _open(tmp_path / "data")
    commands: list[tuple[object, ...]] = [
        ("topics",),
        ("topics", "--json"),
        ("topics", "--at", 9),
        ("topics", "a.t"),
        ("topics", "a.t", "--at", 10, "--json"),
        ("topics", "none"),
        ("topic", "create", "x", "--dry-run", "--partitions", 3),
        ("topic", "create", "x", "--dry-run", "--partitions", 0),
        ("topics", "--at", 9999),
        ("events",),
        ("events", "--topic", "a.t", "--json"),
        ("events", "--tail", 7),
        ("events", "--type", "TopicCreated", "--until", 12, "--since", "1h"),
        ("explain", "a.t"),
        ("explain", "none"),
        ("explain", "a.t", "--at", 9),
        ("requests",),
        ("requests", "--json"),
        ("brokers", "-o", "wide"),
        ("settings",),
        ("settings", "none"),
        ("diff", 3),
        ("diff", 3, 9, "--json"),
        ("diff", 9999),
    ]
    async with service(log=log) as one:
        await one.create("a.t", num_partitions=2)
        await one.request("DELETE", "/topics/a.t")
        await one.create("a.t", num_partitions=2)
        address = f"127.0.0.1:{one.port}"
        online = [await asyncio.to_thread(run, *command, "--http", address) for command in commands]
        locked = await asyncio.to_thread(run, "topics", "--data", tmp_path / "data")
    log.close()
    assert locked.code == 2
    assert "one process writes a log" in locked.err
    assert "--http HOST:PORT" in locked.err
    assert [one.code for one in online] == [0, 0, 0, 0, 0, 1, 0, 1, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 2]
    for command, seen in zip(commands, online, strict=True):
        assert run(*command, "--data", tmp_path / "data") == seen, command


async def test_events_are_followed_until_the_service_stops(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[int] = []

    def as_json(event: EventShape) -> str:
        printed.append(event.offset)
        return msgspec.json.encode(event).decode()

    monkeypatch.setattr(event_lines, "as_json", as_json)
    async with _running() as (one, address):
        following = asyncio.create_task(
            asyncio.to_thread(run, "events", "--follow", "--topic", "t", "--json", "--http", address)
        )
        await one.until(lambda: len(one.http._parts.followers) == 1)
        await one.create("t", num_partitions=1)
        end = one.log.durable_offset
        await one.create("u", num_partitions=1)
        await one.request("DELETE", "/topics/t")
        deleted = one.log.durable_offset - 1
        await one.until(lambda: deleted in printed)
        await one.http.stop()
        outcome = await following
    assert outcome.code == 2
    assert outcome.err == f"topicwright: the service at {address} has stopped\n"
    offsets = [json.loads(line)["offset"] for line in outcome.out.splitlines()]
    assert offsets == printed == [*range(end - 5, end), deleted], "those of topic t alone"


async def test_a_dry_run_names_the_policy_that_refuses_and_says_when_none_was_consulted(
    run: Run, tmp_path: Path
) -> None:
    log = _open(tmp_path / "data")
    async with service(log=log, settings=POLICY, judge=Judge(owned)) as one:
        refused = await asyncio.to_thread(run, "topic", "create", "t", "--dry-run", "--http", f"127.0.0.1:{one.port}")
    log.close()
    assert refused.code == 1
    assert refused.out == "t would be refused: t has no owner (POLICY_VIOLATION, by policy:tests.Owned/owner)\n"
    without_policy = run("topic", "create", "t", "--dry-run", "--data", tmp_path / "data")
    assert without_policy.code == 0
    assert "no policy was consulted: a stopped service has none running" in without_policy.out


# arguments | what standard error says
MISUSE = """
topic create --dry-run                  | the following arguments are required: NAME
topic create t --dry-run --timeout-ms 3 | a dry run waits for nothing: it goes without --timeout-ms
topic create t --config retention       | argument --config: 'retention' is not KEY=VALUE
topic create t --partitions many        | argument --partitions: invalid int value: 'many'
topic alter t                           | say what to change: --config KEY=VALUE or --delete-config KEY
topic grow t                            | the following arguments are required: --partitions
topic shrink t                          | 'shrink' is not known; say one of create, delete, alter, grow
topics --at tomorrow                    | argument --at: 'tomorrow' is not a valid point in time: say an offset (1234)
topics --at 25:00                       | argument --at: hour must be in 0..23
topics t --status ready                 | --status and --principal choose from a list
topics --statsu ready                   | there is no flag --statsu; did you mean --status?
topics --stat ready                     | there is no flag --stat; did you mean --status?
topics a b                              | 'b' is one word too many
events --type TopicCreate               | argument --type: 'TopicCreate' is no type of event; did you mean TopicCreated?
events --follow --tail 3                | --follow has no end: it goes without --until and --tail
events --from 3 --since 1h              | --from and --since both say where to begin: give one
events --tail 0                         | argument --tail: '0' is not a number from 1 to 100000
topcs                                   | 'topcs' is not known; did you mean topics?
topics --http here                      | argument --http: 'here' is not HOST:PORT with a port from 1 to 65535
topics --http h:0                       | argument --http: 'h:0' is not HOST:PORT with a port from 1 to 65535
topics --http h:1 --data x              | argument --data: not allowed with argument --http
topics --data nowhere                   | nowhere holds no log: name the folder that `topicwright serve --data`
events --from -1                        | argument --from: '-1' is not a whole number, 0 or more
events --from x                         | argument --from: 'x' is not a whole number, 0 or more
explain                                 | the following arguments are required: TOPIC|REQUEST
explain EMPTY                           | argument TOPIC|REQUEST: it is empty: name one
topics EMPTY                            | argument NAME|PATTERN: it is empty: name one
"""


@pytest.mark.parametrize("line", MISUSE.strip().splitlines())
def test_misuse_gets_an_error_with_what_is_allowed(
    line: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, message = (column.strip() for column in line.split(" | ", 1))
    outcome = run(*("" if word == "EMPTY" else word for word in arguments.split()))
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.startswith(
        ("usage: topicwright " + (arguments.split()[0] if not arguments.startswith("topcs") else ""), "topicwright: ")
    )
    assert not list(tmp_path.iterdir()), "nothing is made of it"


def test_following_needs_a_running_service(run: Run, stopped: Path) -> None:
    outcome = run("events", "--follow", "--data", stopped)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--follow needs a running service" in outcome.err


async def test_no_service_and_another_service_have_different_errors(run: Run) -> None:
    async def not_ours(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(not_ours, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    other = await asyncio.to_thread(run, "topics", "--http", address)
    server.close()
    await server.wait_closed()
    nobody = await asyncio.to_thread(run, "topics", "--http", address)
    assert other.code == nobody.code == 2
    assert f"what answers at {address} is not Topicwright's HTTP" in other.err
    assert f"no answer from a service at {address} (Connection refused)" in nobody.err
    assert "--data DIR" in nobody.err


def test_events_of_what_is_not_there_are_an_error(run: Run, stopped: Path) -> None:
    request = json.loads(run("topics", "u", "--json", "--data", stopped).out)["created_by"]["request_id"]
    expected = {
        ("--topic", "none"): "no event speaks of a topic 'none'",
        ("--request", "none"): "no event belongs to request 'none'",
        ("--topic", "a.t", "--request", request): f"request '{request}' has no event of topic 'a.t'",
    }
    for words, message in expected.items():
        outcome = run("events", *words, "--data", stopped)
        assert (outcome.code, outcome.out) == (1, ""), words
        assert message in outcome.err
    late = run("events", "--topic", "u", "--from", 9999, "--data", stopped)
    assert (late.code, late.out, late.err) == (0, "", ""), "it has events, but none from there on"


def test_a_full_disk_behind_standard_output_is_said(stopped: Path) -> None:
    for words in (("events",), ("topics", "--json")):
        with Path("/dev/full").open("w") as full:
            argv = [COMMAND, *words, "--data", str(stopped)]
            done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert done.stderr == "topicwright: what is printed cannot be written: No space left on device\n"


def test_whoever_reads_the_beginning_alone_gets_no_error(stopped: Path) -> None:
    argv = f"{COMMAND} events --data {stopped} | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", argv], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
