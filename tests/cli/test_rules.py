"""`topicwright rules` with a running service: test, apply, show, history, diff, and the rules file of the settings."""

import asyncio
import json
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Run, columns
from tests.http.service import Half, service
from tests.support.topicwright import Topicwright, topicwright

SMALL = """
[[rule]]
name = "small"
partitions = { max = 3 }

[[rule.exception]]
topics = "big.*"
reason = "migration"
until = 2020-01-01

[[default]]
name = "two"
partitions = 2

[[example]]
topic = "a"
after = { partitions = 4 }
violates = ["small"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "settings.toml").write_text("[[rule]]\nname = 'first'\npartitions = 1\n")
    (folder / "small.toml").write_text(SMALL)
    (folder / "wrong.toml").write_text(SMALL.replace('violates = ["small"]', "violates = []"))
    (folder / "bad.toml").write_text("[[rule]]\nname = 'r'\n\npartitons = 4\n")
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[Topicwright]:
    with topicwright(folder, {"topic.rules.file": str(folder / "settings.toml")}) as served:
        yield served


def test_rules_test_checks_a_file_without_a_server(run: Run, folder: Path) -> None:
    assert run("rules", "test", folder / "small.toml") == (0, "1 rule, 1 default; 1 of 1 examples hold\n", "")
    wrong = run("rules", "test", folder / "wrong.toml")
    assert wrong.code == 1
    assert wrong.out.startswith("line 15: create a should violate no rule, but rule 'small': partitions is 4, allowed")
    bad = run("rules", "test", folder / "bad.toml")
    assert (bad.code, bad.out) == (2, "")
    assert "bad.toml: line 4: rule 'r': partitons = 4: unknown key; allowed: name, mode" in bad.err
    assert "none.toml: cannot be read: No such file" in run("rules", "test", folder / "none.toml").err


def test_diff_of_texts_that_are_no_versions_and_of_control_characters(
    run: Run, server: Topicwright, folder: Path
) -> None:
    for text in ("\u00b2", "9" * 5000, "-"):  # Python's isdigit() accepts superscripts
        refused = run("rules", "diff", text, "--http", server.http)
        assert refused.code == 2
        assert f"topicwright: file {text}: cannot be read: " in refused.err
    (folder / "red.toml").write_text("# \x1b[31mred\n")
    assert "+# \\x1b[31mred" in run("rules", "diff", folder / "red.toml", "--http", server.http).out.splitlines()


@pytest.mark.parametrize(
    ("line", "code", "needed"),
    [
        ("rules apply small.toml", 1, "Alter on the cluster"),
        ("rules remove", 1, "Alter on the cluster"),
        ("topic alter t --config retention.ms=5", 1, "AlterConfigs on Topic:t"),
        ("rules backtest small.toml", 2, "Describe on the cluster"),
        ("risks", 2, "Describe on the cluster"),
        ("topics t", 2, "Describe on topic 't'"),
    ],
)
async def test_a_change_without_permission_is_refused_and_a_read_is_an_error(
    run: Run, folder: Path, line: str, code: int, needed: str
) -> None:
    words = [folder / word if word.endswith(".toml") else word for word in line.split()]
    async with service(authorizer=Half()) as one:
        denied = await asyncio.to_thread(run, *words, "--http", f"127.0.0.1:{one.port}")
    assert denied.code == code
    assert needed in denied.out + denied.err


async def test_a_login_with_alter_alone_applies_rules(run: Run, folder: Path) -> None:
    async with service(authorizer=Half(("Alter", "Cluster"))) as one:
        done = await asyncio.to_thread(run, "rules", "apply", folder / "small.toml", "--http", f"127.0.0.1:{one.port}")
    assert done == (0, "version 1 of the rules is effective\n", "")


def test_rules_apply_show_history_and_diff(run: Run, server: Topicwright, folder: Path) -> None:
    at = ("--http", server.http)
    first = run("rules", "show", *at)
    assert first.out.startswith("Version 1, applied 20")
    assert "by User:topicwright" in first.out
    different = run("rules", "diff", folder / "small.toml", *at)
    assert different.code == 1
    assert "-name = 'first'" in different.out.splitlines()
    assert run("rules", "apply", folder / "small.toml", "--after", 7, *at).err == (
        "topicwright: Version 1 of the rules was applied meanwhile, after version 7. (INVALID_UPDATE_VERSION)\n"
    )
    assert (
        run("rules", "apply", folder / "small.toml", "--after", 1, *at).out == "version 2 of the rules is effective\n"
    )
    again = run("rules", "apply", folder / "small.toml", *at)
    assert again.out == "version 2 of the rules is effective already\n"
    shown = columns(run("rules", "show", *at).out)
    changes = "create,grow,alter,reassign,defaults,discovered"
    assert ["small", "enforce", changes, "partitions", "=", "{", "max", "=", "3", "}"] in shown
    assert ["two", "default", "create", "partitions", "=", "2"] in shown
    assert ["small", "topics", "=", "'big.*'", "2020-01-01", "migration"] in shown
    assert run("rules", "show", "--text", *at).out.strip() == SMALL.strip()
    assert run("rules", "diff", folder / "small.toml", *at).code == 0
    assert "+++ version 2" in run("rules", "diff", 1, *at).out.splitlines()
    assert (
        run("rules", "diff", 9, *at)
        .err.splitlines()[0]
        .endswith("no version 9; `topicwright rules history` lists them")
    )
    assert [row[0] for row in columns(run("rules", "history", *at).out)] == ["VERSION", "2", "1"]
    assert run("rules", "apply", folder / "bad.toml", *at).code == 2
    assert run("rules", "remove", *at).out == "version 3 of the rules is effective\n"
    assert run("rules", "show", *at).out.endswith("It has no rules.\n")
    assert run("rules", "apply", folder / "small.toml", *at).out == "version 4 of the rules is effective\n"
    assert json.loads(run("rules", "show", "--json", *at).out)["version"]["number"] == 4


def test_rules_apply_defaults_refuse_and_explain_creates(run: Run, server: Topicwright, folder: Path) -> None:
    at = ("--http", server.http)
    run("rules", "apply", folder / "small.toml", *at)
    refused = run("topic", "create", "four", "--partitions", 4, *at)
    assert "rule 'small': partitions is 4, allowed is at most 3 (POLICY_VIOLATION" in refused.out
    assert run("topic", "create", "filled", *at).code == 0
    assert "partitions = 2 filled by policy:rules/two" in run("explain", "filled", *at).out
    assert run("topic", "grow", "filled", "--partitions", 4, *at).code != 0
    by_rule = run("requests", "--rule", "policy:rules/small", "--json", *at).out
    assert len(json.loads(by_rule)["requests"]) == 2


def test_rules_backtest_and_redecide_try_past_requests(run: Run, server: Topicwright, folder: Path) -> None:
    at = ("--http", server.http)
    assert run("topic", "create", "one", "--partitions", 1, *at).code == 0
    (folder / "none.toml").write_text("[[rule]]\nname = 'none'\nrefuse = 'nothing new'\n")
    found = run("rules", "backtest", folder / "none.toml", "--since", "1d", *at)
    assert found.code == 1
    assert found.out.startswith("would have rejected 1 request of 1 principal; tried 1 request since 20")
    head, group = (line.split() for line in found.out.splitlines()[2:4])
    assert " ".join(head) == "refused: was done, would be refused (1)"
    assert " ".join(group) == "1 x User:ANONYMOUS over HTTP, now by policy:rules/none"
    assert re.search(r"^ +such as one at offset \d+: rule 'none': nothing new$", found.out, re.MULTILINE)
    same = run("rules", "backtest", folder / "settings.toml", *at)
    assert (same.code, same.out[:35]) == (0, "would have rejected 0 requests; tri")
    again = run("rules", "redecide", *at)
    assert (again.code, again.out.startswith("1 request since 20")) == (0, True)
    assert "decided again by release" in again.out
    assert again.out.endswith(": 0 otherwise\n")
    bad = run("rules", "backtest", folder / "bad.toml", *at)
    assert (bad.code, "bad.toml: line 4: rule 'r': partitons = 4: unknown key" in bad.err) == (2, True)


def test_reload_of_the_rules_file(run: Run, server: Topicwright, folder: Path) -> None:
    def version() -> int:
        with urllib.request.urlopen(f"http://{server.http}/v1/policies", timeout=60) as answer:
            number: int = json.load(answer)["version"]["number"]
        return number

    run("rules", "apply", folder / "small.toml", "--http", server.http)
    before = version()
    server.process.popen.send_signal(signal.SIGHUP)
    (folder / "settings.toml").write_text("[[rule]]\nname = 'broken'\n")
    server.process.popen.send_signal(signal.SIGHUP)
    server.process.wait_for_line("rules not reloaded", within_s=240)
    assert version() == before, "unchanged and invalid files are not applied"
    (folder / "settings.toml").write_text("[[rule]]\nname = 'changed'\npartitions = 1\n")
    server.process.popen.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 240
    while version() != before + 1:
        assert time.monotonic() < deadline, "the changed file was not applied"
        time.sleep(0.05)
