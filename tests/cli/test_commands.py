"""`topic`, `check` and `completion`; the location of each command; and wrong usage, which ends with exit code 2 and an
explanation."""

import argparse
import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.cli.commands import COMMANDS
from controller.cli.context import context_names
from controller.cli.main import parser
from controller.cli.reads import common
from tests.cli.commands import Outcome, Run
from tests.http.service import service
from tests.support.tools import ROOT

HEAVY = ("msgspec", "litestar", "confluent_kafka", "rocksdict", "pyspark", "uvloop", "structlog", "kio", "cryptography")


async def test_topic_create_and_topic_delete(run: Run) -> None:
    async with service() as one:

        async def online(*words: object) -> Outcome:
            return await asyncio.to_thread(run, *words, "--http", f"127.0.0.1:{one.port}")

        def topic(action: str, *words: object) -> Coroutine[Any, Any, Outcome]:
            return online("topic", action, "pay.orders", *words)

        code, out, _ = await topic("create", "--partitions", 2, "--dry-run")
        assert code == 0
        assert out.startswith("pay.orders would be created: 2 partitions, factor 3\n")
        code, out, err = await topic("create", "--partitions", 2, "--config", "retention.ms=5")
        assert (code, err) == (0, "")
        assert out.startswith("pay.orders is created: 2 partitions, factor 3\n  retention.ms=5\n\nPARTITION  LEADER")
        code, out, err = await topic("create")
        assert (code, err) == (1, "")
        assert out.startswith("pay.orders is rejected: Topic 'pay.orders' already exists.")
        code, out, _ = await topic("create", "-o", "json")
        assert (code, json.loads(out)["rule"]) == (1, "validation:exists")
        before = one.log.durable_offset - 1
        for dry, told in ((("--dry-run",), "would change"), ((), "is changed")):
            code, out, _ = await topic("grow", "--partitions", 3, *dry)
            assert (code, out) == (0, f"pay.orders {told}:\n  partitions: 2 -> 3\n")
        for dry, told in ((("--dry-run",), "would change"), ((), "is changed")):
            words = ("--config", "cleanup.policy=compact", "--delete-config", "retention.ms", *dry)
            code, out, _ = await topic("alter", *words)
            values = "  cleanup.policy: unset -> compact\n  retention.ms: 5 -> unset\n"
            assert (code, out) == (0, f"pay.orders {told}:\n{values}")
        code, out, _ = await topic("alter", "--config", "retention.ms=x")
        assert (code, out.startswith("pay.orders is not changed: Invalid value x")) == (1, True)
        for name, code in (("retention.mss", 2), ("cleaner.unknown.to.kafka", 2), ("retention.ms", 0)):
            seen = await topic("alter", "--delete-config", name)
            assert (seen.code, "there is no such topic config" in seen.err) == (code, code == 2)
            assert ("did you mean retention.ms?" in seen.err) == (name == "retention.mss")
        code, out, _ = await topic("grow", "--partitions", 2)
        assert (code, "would not be an increase" in out) == (1, True)
        code, out, _ = await online("diff", before)
        assert code == 1
        row = next(line for line in out.splitlines() if line.startswith("pay.orders"))
        assert row.split()[:5] == ["pay.orders", "changed", "2", "->", "3"]
        assert "retention.ms: 5 -> (none)" in row
        assert (await online("diff", before, before)).code == 0
        assert (await online("diff", before, "-o", "name")).out == "pay.orders\n"
        code, out, _ = await topic("delete")
        assert (code, out.startswith("pay.orders is deleted, in request ")) == (0, True)
        code, out, err = await topic("delete")
        assert (code, "it was deleted at offset" in out + err) == (1, True)


GOOD = "num.partitions=3\n"
BAD = {
    "num.partitions=none\n": "num.partitions=none",
    "num.partition=3\n": "did you mean num.partitions?",
    "create.topic.policy.class.name=no.such.Policy\n": "no.such.Policy",
    "listeners=SASL_SSL://127.0.0.1:0\n": "ssl.keystore.location",
    "users.file=/nowhere/users\n": "/nowhere/users",
}


def test_check_validates_settings_without_a_server(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(GOOD)
    assert run("check", "--config", config) == (0, "settings are valid: 1 given; policies: none; listeners: 1\n", "")
    config.write_text("num.io.threads=8\n")
    assert run("check", "--config", config)[1].startswith(
        "ignored, because only Kafka brokers use them: num.io.threads\n"
    )
    for text, says in BAD.items():
        config.write_text(text)
        code, out, err = run("check", "--config", config)
        assert (code, out) == (2, ""), text
        assert says in err, text
    missing = run("check", "--config", tmp_path / "none")
    assert (missing[0], "none" in missing[2]) == (2, True)
    assert run("check")[0] == 2
    assert sorted(one.name for one in tmp_path.iterdir()) == ["server.properties"]


def test_check_validates_rules_without_settings(run: Run, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("nonsense = 3\n")
    code, out, err = run("check", "--rules", rules)
    assert (code, out) == (2, "")
    assert "nonsense" in err
    assert str(rules) in err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(run: Run, shell: str) -> None:
    code, out, _ = run("completion", shell)
    assert (code, "_ARGCOMPLETE" in out, "topicwright" in out) == (0, True, True)


def completed(line: str, tmp_path: Path) -> list[str]:
    """The completions that the shell gets for a line."""
    into = tmp_path / "offered"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    env |= {"_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(into), "_ARGCOMPLETE_SHELL": "bash"}
    subprocess.run([sys.executable, "-m", "controller.cli.main"], env=env, check=True, timeout=240, cwd=ROOT)
    return [word.strip() for word in into.read_text().split("\n")]


def test_completion_covers_commands_flags_and_values(tmp_path: Path) -> None:
    assert set(completed("topicwright ", tmp_path)) >= COMMANDS.keys()
    assert completed("topicwright topi", tmp_path) == ["topics", "topic"]
    assert "--replication-factor" in completed("topicwright topic create t --re", tmp_path)
    assert completed("topicwright topics --status un", tmp_path) == ["under-replicated"]


async def test_completion_of_names(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    async with service() as one:
        for name in ("a", "pay.orders", "pay.refunds", "pay_x", "payroll", "z"):
            await one.create(name, num_partitions=1)
        assert run("context", "add", "here", "--http", f"127.0.0.1:{one.port}")[0] == 0
        options = argparse.Namespace()
        expected = {
            "pay.": ["pay.orders", "pay.refunds"],
            "pay": ["pay.orders", "pay.refunds", "pay_x", "payroll"],
            "pay.orders": ["pay.orders"],
            "pay_": ["pay_x"],
            "q": [],
            "": ["a", "pay.orders", "pay.refunds", "pay_x", "payroll", "z"],
        }
        for prefix, names in expected.items():
            assert await asyncio.to_thread(common.topic_names, prefix, options) == names, prefix
        line = "topicwright topic delete pay.r"
        assert await asyncio.to_thread(completed, line, tmp_path) == ["pay.refunds"]
    assert common.topic_names("pay", argparse.Namespace(http="127.0.0.1:1")) == (), "no server, no completions"
    assert common.topic_names("pay", argparse.Namespace(data=tmp_path)) == (), "no log, no completions"
    assert completed("topicwright topics --context h", tmp_path) == ["here"]
    assert completed("topicwright events --type TopicC", tmp_path) == ["TopicConfigsChanged", "TopicCreated"]
    (tmp_path / "config" / "topicwright" / "contexts.json").write_text("nonsense")
    assert context_names() == ()


def test_help_imports_no_slow_modules() -> None:
    script = (
        "import sys; from controller.cli.main import main\n"
        f"for command in {['', *COMMANDS]!r}:\n"
        "    try: main([*command.split(), '--help'])\n"
        "    except SystemExit: pass\n"
        f"    loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "    assert not loaded, (command, loaded)"
    )
    argv = [sys.executable, "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^usage: topicwright (\S+) ", done.stdout, re.MULTILINE)[1:] == list(COMMANDS)
    shown = " ".join(done.stdout.split())
    told = {name for name, one in COMMANDS.items() if f"{one.summary[1:]}." in shown}
    assert set(COMMANDS) == told


def test_help_lists_every_command() -> None:
    assert all(re.search(rf"^    {command} ", parser().format_help(), re.MULTILINE) for command in COMMANDS)


def _pages(parent: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parent._actions:
        if isinstance(action, argparse._SubParsersAction):
            for page in action.choices.values():
                yield page
                yield from _pages(page)


def test_help_pages_end_with_an_example_that_parses() -> None:
    whole = parser(every=True)
    for page in _pages(whole):
        assert page.epilog, page.prog
        if page.prog != "topicwright completion":
            assert page.epilog.startswith(f"Example: {page.prog}")
            whole.parse_args(shlex.split(page.epilog)[2:])


def test_help_pages_begin_with_a_sentence_and_explain_positional_arguments() -> None:
    pages = list(_pages(parser(every=True)))
    assert {"topicwright rules test", "topicwright users add", "topicwright replay sql"} <= {one.prog for one in pages}
    for page in pages:
        sentence = page.format_help().split("\n\n")[1]
        assert re.match(r"[A-Z][^.:]+[.:]", sentence), (page.prog, sentence)
        positional = [one for one in page._actions if not one.option_strings]
        assert all(one.help or isinstance(one, argparse._SubParsersAction) for one in positional), page.prog
