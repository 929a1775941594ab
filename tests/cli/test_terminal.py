"""Tables, times, contexts, colours and the pager."""

import argparse
import json
import os
import pty
import re
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from controller.cli.arguments import absolute, point_in_time
from controller.cli.main import main
from controller.cli.output import Marked, Style, harmless
from tests.cli.commands import Run
from tests.support.tools import ROOT

NOW = datetime(2026, 7, 17, 15, 30, 20, 5000, timezone(timedelta(hours=2)))

TIMES = """
5m               | 2026-07-17T13:25:20.005Z
90 s ago         | 2026-07-17T13:28:50.005Z
2h               | 2026-07-17T11:30:20.005Z
3d               | 2026-07-14T13:30:20.005Z
1w               | 2026-07-10T13:30:20.005Z
now              | 2026-07-17T13:30:20.005Z
today            | 2026-07-16T22:00:00.000Z
yesterday        | 2026-07-15T22:00:00.000Z
Yesterday 14:00  | 2026-07-16T12:00:00.000Z
14:00            | 2026-07-17T12:00:00.000Z
today 9:05:07    | 2026-07-17T07:05:07.000Z
1234             |
1784282400000ms  |
2026-07-17       |
tomorrow         |
now 14:00        |
5 months         |
"""


@pytest.mark.parametrize("row", TIMES.strip().splitlines())
def test_relative_times_become_absolute(row: str) -> None:
    text, expected = (cell.strip() for cell in row.split("|"))
    assert absolute(text, NOW) == (expected or None)


@pytest.mark.parametrize("text", ["24:00", "9:60", "today 23:59:60", "999999d", "99999w", "2999-01-01"])
def test_invalid_times_are_rejected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        point_in_time(text)


@pytest.mark.parametrize(
    ("zone", "words", "shown", "local"),
    [
        ("America/New_York", (), "2023-11-14T17:13:20.010", "2023-11-14T17:13:21"),
        ("America/New_York", ("--utc",), "2023-11-14T22:13:20.010Z", "2023-11-14T22:13:21"),
        ("UTC", (), "2023-11-14T22:13:20.010Z", "2023-11-14T22:13:21"),
    ],
)
def test_times_are_local_or_utc_in_input_and_output(
    zone: str, words: tuple[str, ...], shown: str, local: str, day: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    on_day = ("--data", day, *words)
    assert f"{shown}  " in run("events", *on_day).out.splitlines()[1]
    known = {run("topics", "--at", at, *on_day).out.splitlines()[0] for at in (local, "2023-11-14T22:13:21Z")}
    assert len(known) == 1
    assert known.pop().endswith("Z:") == shown.endswith("Z")
    assert os.environ["TZ"] == zone
    monkeypatch.undo()
    time.tzset()


def test_ages_and_whole_request_ids_on_a_terminal_of_80_columns(stopped: Path) -> None:
    requests, topics, brokers, changes = on_terminal(
        *(
            ((words, "--data", str(stopped)), {"PAGER": "cat", "NO_COLOR": "1"})
            for words in ("requests", "topics", "brokers", "changes")
        )
    )
    header, newest, *_ = requests.splitlines()
    assert header.split() == ["REQUEST", "TIME", "BY", "TOPICS", "OUTCOME", "RULE"]
    assert re.match(r"\S+-\d+-[0-9a-f]{10}  \d+[smhd]  ", newest), "a whole id, and the age"
    assert re.search(r" \d+[smhd] ", topics.splitlines()[1])
    assert re.search(r" \d+[smhd] ", brokers.splitlines()[1])
    assert re.match(r" +\d+  \d+[smhd] ", changes.splitlines()[1])
    assert max(map(len, (requests + topics + brokers).splitlines())) <= 80
    for at, age in (("13:28:50", "90s"), ("13:28:00", "2m"), ("11:00:00", "2h"), ("13:30:21", "0s")):
        assert Style(now=NOW).age(f"2026-07-17T{at}.005Z") == age
    assert Style(now=NOW).age("2026-07-10T13:30:20.005Z") == "7d"


ROWS = [("a", 1, "ready"), ("long-name-of-a-topic", 100, "under-replicated (3 of 100)")]


def test_tables_are_limited_to_the_terminal_width() -> None:
    whole = list(Style().table(("NAME", "N", "STATUS"), ROWS))
    assert whole[0].split() == ["NAME", "N", "STATUS"]
    assert whole[1].split() == ["a", "1", "ready"]
    assert whole[2].endswith("under-replicated (3 of 100)")
    assert whole[1].index("1") == whole[2].index("100") + 2, "numbers are right-aligned"
    for width in range(26, 60):
        cut = list(Style(width).table(("NAME", "N", "STATUS"), ROWS))
        assert max(map(len, cut)) <= width
        assert ("…" in "".join(cut)) is (width < max(map(len, whole)))
    assert list(Style().table(("NAME",), [])) == ["NAME"]
    assert max(map(len, Style(1).table(("NAME", "N", "STATUS"), ROWS))) == 8 + 2 + 3 + 2 + 8, (
        "columns keep a minimum width"
    )


def test_marks_are_colours_if_colour_is_enabled() -> None:
    rows = [(Marked("live", "good"),), (Marked("fenced", "bad"),)]
    assert list(Style().table(("STATE",), rows)) == ["STATE", "live", "fenced"]
    assert list(Style(colour=True).table(("STATE",), rows))[1] == Style(colour=True).painted("live  ", "good").rstrip()


HOSTILE = {
    "a\x1b]0;title\x07b": "a\\x1b]0;title\\x07b",
    "\x1b[2Jgone": "\\x1b[2Jgone",
    "one\ntwo\rthree\tfour": "one\\ntwo\\rthree\\tfour",
    "\x9b31m": "\\x9b31m",
    "abc\u202ecba": "abc\\u202ecba",
    "a\u200eb\u200fc\u061cd": "a\\u200eb\\u200fc\\u061cd",
    "lone \ud800": "lone \\ud800",
    "ä – ok": "ä – ok",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_control_characters_of_clients_do_not_reach_the_terminal(text: str) -> None:
    assert harmless(text) == HOSTILE[text]
    for colour in (True, False):
        assert harmless(text, colour) == HOSTILE[text]
    red = Style(colour=True).painted("fenced", "bad")
    assert harmless(f"{text}{red}", True) == HOSTILE[text] + red
    assert "\x1b" not in harmless(red)


ON_TERMINAL = """
import json, os, sys
from controller.cli.main import main

environment = dict(os.environ)
for words, more in json.loads(sys.argv[1]):
    os.environ.clear()
    os.environ.update(environment | more)
    main(words)
    print(end="\\0", flush=True)
"""
"""Runs commands one after another, each with its own environment variables."""


def on_terminal(*runs: tuple[tuple[str, ...], dict[str, str]]) -> list[str]:
    """The output of each command on a terminal with 80 columns."""
    leader, follower = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    env.pop("NO_COLOR", None)
    argv = [sys.executable, "-c", ON_TERMINAL, json.dumps(runs)]
    with subprocess.Popen(argv, stdin=follower, stdout=follower, stderr=follower, env=env) as process:
        os.close(follower)
        shown = b""
        with suppress(OSError):  # the process has ended
            while some := os.read(leader, 65536):
                shown += some
        process.wait(60)
    os.close(leader)
    *each, rest = shown.decode().replace("\r\n", "\n").split("\0")
    assert rest == ""
    return each


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The data folder of a log with one user."""
    monkeypatch.setattr("getpass.getpass", lambda prompt: "secret")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert main(["users", "add", "alice", "--data", str(tmp_path / "data")]) == 0
    return str(tmp_path / "data")


def test_colour_width_and_pager(folder: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho through the pager $LESS; cat\n")
    pager.chmod(0o700)
    words = ("events", "--data", folder)
    shown, plain, dumb, paged, unpaged, empty, missing = on_terminal(
        (words, {"PAGER": "cat"}),
        (words, {"PAGER": "cat", "NO_COLOR": "1"}),
        (words, {"PAGER": "cat", "TERM": "dumb"}),
        (words, {"PAGER": str(pager), "LESS": ""}),
        ((*words, "--no-pager"), {"PAGER": str(pager)}),
        (words, {"PAGER": ""}),
        (words, {"PAGER": "/nowhere/less"}),
    )
    assert "\x1b[1m" in shown
    assert "\x1b" not in plain + dumb
    assert max(map(len, plain.splitlines())) <= 80
    assert "through the pager" in paged
    assert "alice" in paged
    assert "through" not in unpaged
    assert "alice" in unpaged
    assert "alice" in empty, "an empty PAGER disables the pager"
    assert "alice" in missing, "a missing pager is ignored"
    capfd.readouterr()
    assert main(list(words)) == 0
    to_file = capfd.readouterr().out
    assert "\x1b" not in to_file
    assert max(map(len, to_file.splitlines())) > 80, "output to a file is not truncated"


def test_contexts_are_added_used_and_removed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("TOPICWRIGHT_HTTP", "TOPICWRIGHT_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    assert run("context", "list")[1] == f"There are no contexts in {tmp_path / 'topicwright' / 'contexts.json'}.\n"
    assert run("context", "add", "prod", "--http", "https://127.0.0.1:1")[1].endswith("and in use\n")
    assert run("context", "add", "test", "--http", "127.0.0.1:2")[0] == 0
    assert run("context", "list", "-o", "name")[1] == "prod\ntest\n"
    assert "127.0.0.1:1 " in run("topics")[2], "the current context is used"
    assert "127.0.0.1:2 " in run("topics", "--context", "test")[2]
    monkeypatch.setenv("TOPICWRIGHT_CONTEXT", "test")
    assert "127.0.0.1:2 " in run("topics")[2]
    monkeypatch.setenv("TOPICWRIGHT_HTTP", "127.0.0.1:3")
    assert "127.0.0.1:3 " in run("topics")[2]
    assert "127.0.0.1:3 " in run("demo")[2], "the demo starts no service in place of one that is named"
    assert "127.0.0.1:4 " in run("topics", "--http", "127.0.0.1:4")[2], "a flag overrides the context"
    monkeypatch.setenv("TOPICWRIGHT_HTTP", "nonsense")
    err = run("topics")[2]
    assert "the address in TOPICWRIGHT_HTTP or in the context in use is invalid: 'nonsense' is not [https://]" in err
    monkeypatch.delenv("TOPICWRIGHT_HTTP")
    monkeypatch.delenv("TOPICWRIGHT_CONTEXT")
    code, _, err = run("topics", "--context", "none")
    assert (code, err) == (
        2,
        "topicwright: there is no context 'none'; there are: prod, test (topicwright context add NAME)\n",
    )
    assert run("context", "use", "test")[1] == "context test is in use: 127.0.0.1:2\n"
    assert run("context", "remove", "test")[0] == 0
    assert run("context", "remove", "test")[0] == 2
    assert "127.0.0.1:8080 " in run("topics")[2] or run("topics")[0] == 0, "no context is used"
    assert run("context", "add", "a/b", "--http", "h:1")[0] == 2
    (tmp_path / "topicwright" / "contexts.json").write_text('{"by_name": {"x": {"port": 3}}}')
    assert "missing required field `http`" in run("topics")[2]
