"""Every command in README and docs prints what they show, on a fresh folder."""

import io
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from controller.cli.commands import COMMANDS
from controller.cli.main import main, parser
from controller.cli.replay import COMMANDS as REPLAYS
from tests.events.logs.test_tree_heads import key_files
from tests.support.tools import ROOT
from tests.support.topicwright import Topicwright, topicwright

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_EXPLAINED = re.compile(r" {2,}(?![-\[])| +# ")
"""Separates a command in an example from its explanation."""
_KEPT = re.compile(r" > (\S+)$")
"""The redirection at the end of a command."""


class Typed(NamedTuple):
    """A command, and its page."""

    page: str
    line: str
    kept: str = ""
    """The file to which the shell redirects the output."""

    @property
    def words(self) -> list[str]:
        """The command split as a shell does."""
        return shlex.split(self.line)


def typed(page: Path, *commands: str) -> list[Typed]:
    """The commands in a page's examples that begin with one of these."""
    lines = (line.strip() for line in page.read_text().splitlines() if line.startswith("    "))
    found = (_EXPLAINED.split(line)[0].strip() for line in lines if line.split(" ")[0] in commands)
    return [Typed(page.name, *_parts(line)) for line in found]


def _parts(line: str) -> tuple[str, str]:
    kept = _KEPT.search(line)
    return (line, "") if kept is None else (line[: kept.start()], kept[1])


def examples(page: Path, language: str) -> list[str]:
    """A page's examples in a language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


STANDS_FOR = {
    "HOST:PORT[,HOST:PORT…]": "127.0.0.1:9", "HOST:PORT[,…]": "127.0.0.1:9", "HOST:PORT": "127.0.0.1:9",
    "faust|plain": "plain", "list|remove": "list", "KEY=VALUE": "a=b", "FILE": "file", "DIR": "data",
    "SECONDS": "1", "WHAT": "rebuild", "LOG": "log", "OFFSET|TIME": "3", "BROKERS": "simulated:1", "URL": "local",
    "REQUEST-ID": "request", "NAME": "name", "ID": "request",
}  # fmt: skip
"""Replacements of placeholders; brackets and … are removed."""
NOT_WHOLE = "…"
TYPED = {
    "LOG": "topicwright-data", "DATA": "topicwright-data", "--data DIR": "--data users-data", "DIR": "exported",
    "--file FILE": "--file users", "NAME": "alice", "list|remove …": "list --file users", "REQUEST-ID": "ID",
    "2026-07-17T10:00:00Z": "now",
}  # fmt: skip
"""Replacements of placeholders for this folder. ID is the newest request."""
RUNS_ON = ("serve", "worker", "gateway", "join", "demo")
"""Long-running commands, and `demo`; other tests run them."""
ELSEWHERE = ("example", "kafka://", "--follow", "gateway:9093", "/etc/", "replay report", "backup", "BACKUP")
"""Commands that need another machine or a backup, never end, or need Spark; other tests run them."""
FOUND = ("rules backtest", "diff", "replay backtest", "status", "whatif")
"""These commands end with 1 if they find something."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_documented_command_is_valid(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for each in typed(page, "topicwright"):
        line = each.line
        if NOT_WHOLE in line.split():
            continue
        for word, other in STANDS_FOR.items():
            line = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", other, line)
        line = re.sub(r" \[-[^\]]*\]…?", "", line)
        words = Typed(each.page, line).words[1:]
        try:
            parser(words[0]).parse_args(words)
        except SystemExit:
            pytest.fail(f"{each.line!r} ({line!r}) on {each.page}: {capsys.readouterr().err}")
    for line in re.findall(r"`(topicwright [^`]+)`", page.read_text(), re.DOTALL):
        command = line.split()[1]
        assert command in (*COMMANDS, "COMMAND", "--help"), line
        if command == "replay":
            assert line.split()[2] in REPLAYS, line


def _runs(each: Typed) -> bool:
    words = each.words
    if words[1] == "context":
        return True
    if any(sign in each.line for sign in ELSEWHERE) or words[1] in RUNS_ON or "[" in each.line:
        return False
    return NOT_WHOLE not in each.line or "list|remove" in each.line


def _is_of_the_stopped(each: Typed) -> bool:
    return "DATA" in each.words or "--data topicwright-data" in each.line


REFUNDS = "topicwright topic create shop.refunds --partitions 3 --replication-factor 3"
EXPECTED = {
    f"{REFUNDS} --dry-run": r"^shop\.refunds would be created: 3 partitions",
    f"{REFUNDS} --config retention.ms=86400000": r"^shop\.refunds is created",
    "topicwright topics shop.orders": r"^shop\.orders: ready,.*partitions  6, factor 3",
    "topicwright topics --at 5m": r"^State before the first event:\nThere are no topics",
    "topicwright diff 1h": r"shop\.orders +created",
    "topicwright requests": r"^REQUEST .*shop\.orders",
    "topicwright events --topic shop.orders": r"CreateRequested +shop\.orders",
    "topicwright explain shop.orders": r"^Topic shop\.orders: ready, 6 partitions, created .*shop\.orders is ready",
    "topicwright topic delete shop.refunds": r"^shop\.refunds is deleted",
    "topicwright replay invariants topicwright-data --local": r"all \d+ invariants hold",
    "topicwright replay redecide topicwright-data --local": r"0 decided otherwise",
    "topicwright replay compare topicwright-data --local": r"matches the events",
    "topicwright check --set create.topic.policy.class.name=team_policy.Owned": r"policies: team_policy\.Owned",
    "topicwright topic grow orders --partitions 8": r"partitions: 6 -> 8",
    "topicwright topic alter orders --config retention.ms=3600000 --dry-run": r"retention\.ms: 86400000 -> 3600000",
    "topicwright brokers": r"^BROKER +STATE.*live",
    "topicwright replay redecide LOG --local": r"0 decided otherwise",
    "topicwright replay backtest LOG --local --policy team_policy.Owned": r"tried with policy team_policy\.Owned",
    "topicwright replay export LOG --local --to DIR": r"exported",
    "topicwright replay invariants LOG --local --export DIR": r"all \d+ invariants hold",
    "topicwright verify 127.0.0.1:8080 --head head.json": r"events match its head",
    "topicwright verify DATA --head head.json": r"events match its head",
    "topicwright verify proof.json --head head.json": r"^valid: 5 events of log ",
    "topicwright verify proof.json --key public.pem": r"^valid: 5 events of log ",
    "topicwright users add NAME --data DIR": r"^set SCRAM-SHA-512 of alice",
    "topicwright users add NAME --bootstrap HOST:PORT": r"^set SCRAM-SHA-512 of alice",
    "topicwright users add NAME --file FILE": r"^added alice in users",
    "topicwright users add NAME --token --file FILE": r"^tw_",
    "topicwright users list|remove …": r"^USER +LOGIN +ITERATIONS\nalice +password",
    "topicwright users add admin --data topicwright-data": r"^set SCRAM-SHA-512 of admin",
}
"""The expected output of these commands."""


def test_commands_of_the_docs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "prod.properties").write_text("username=a\npassword=b\n")
    _save_examples(tmp_path)
    signing, _ = key_files(tmp_path)
    seen: set[str] = set()
    later: list[Typed] = []
    with topicwright(tmp_path, {"log.signing.key.location": str(signing)}) as service:
        monkeypatch.setenv("TOPICWRIGHT_HTTP", service.http)
        for page in PAGES:
            _run_clients(page, service)
            for each in filter(_runs, typed(page, "topicwright", "curl")):
                if _is_of_the_stopped(each):
                    later.append(each)
                else:
                    seen |= _type(each, service, capsys, monkeypatch)
    for each in later:
        seen |= _type(each, service, capsys, monkeypatch)
    assert seen == EXPECTED.keys(), "each expected command was run"


def test_plans_of_the_docs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _save_examples(tmp_path)
    page = ROOT / "docs" / "topics-as-code.md"
    (topics,) = examples(page, "yaml")
    (plan,) = re.findall(r"    \+ pay(?:.*\n)+?    Plan:.*", page.read_text())
    (refusal,) = re.findall(r"        rejected: .*", page.read_text())
    with topicwright(tmp_path) as service:
        assert main(["rules", "apply", str(tmp_path / "topic-rules.toml"), "--http", service.http]) == 0
        for shown, text, code in ((plan, topics, 0), (refusal, topics.replace("partitions: 12", "partitions: 60"), 1)):
            capsys.readouterr()
            (tmp_path / "topics.yaml").write_text(text)
            assert main(["plan", str(tmp_path / "topics.yaml"), "--http", service.http]) == code
            printed = capsys.readouterr().out.replace(f"{tmp_path}/", "")
            for line in shown.splitlines():
                assert line.strip().removesuffix("…") in printed


def _save_examples(folder: Path) -> None:
    """Save the first policy in the docs, and the rules."""
    policies = [example for page in PAGES for example in examples(page, "python") if "class Owned" in example]
    (rules,) = (example for page in PAGES for example in examples(page, "toml"))
    (folder / "team_policy.py").write_text(policies[0])
    (folder / "topic-rules.toml").write_text(rules)


def _run_clients(page: Path, service: Topicwright) -> None:
    """Run a page's client examples in one language."""
    for example in examples(page, "python"):
        if "AdminClient" in example:
            exec(compile(example.replace("127.0.0.1:9092", service.kafka), page.name, "exec"), {})


def _type(
    each: Typed, service: Topicwright, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> set[str]:
    """Run a command and check its output; returns the keys of EXPECTED that it matched."""
    line = each.line
    for word, other in TYPED.items():
        line = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", other, line)
    line = re.sub(r"127\.0\.0\.1:8080|localhost:8080", service.http, line).replace("HOST:PORT", service.kafka)
    words = Typed(each.page, line).words
    if words[0] == "curl":
        out = _curl(each, words)
    else:
        words = [_request(capsys) if word == "ID" else word for word in words[1:]]
        if words[0] == "replay" and REPLAYS[words[1]].spark:
            words += [] if "--local" in words else ["--local"]  # the same answers, without starting Spark for 15 s
        monkeypatch.setattr("sys.stdin", io.StringIO("a-password\n"))
        out = _run(each, words, capsys)
    if each.kept:
        Path(each.kept).write_text(out)
    if each.line not in EXPECTED:
        return set()
    assert re.search(EXPECTED[each.line], out, re.DOTALL), f"{each}: {out}"
    return {each.line}


def _run(each: Typed, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        code: object = main(words)
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert code == 0 or (code == 1 and each.line.split(" ", 1)[1].startswith(FOUND)), f"{each}: {code} {out} {err}"
    assert err == "" or each.kept or "--token" in words, f"{each}: {err}"
    assert out or "--type" in words, each
    return out


def _request(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["requests", "-o", "name", "--limit", "1"]) == 0
    return capsys.readouterr().out.strip()


def _curl(each: Typed, words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=240)
    assert json.loads(done.stdout).get("error", "NONE") == "NONE", f"{each}: {done.stdout}"
    return done.stdout


def test_docs_index_has_every_page_and_links_resolve() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    missing = [page.name for page in PAGES if page.parent.name == "docs" and f"({page.name})" not in index]
    assert missing == ["README.md"]
    for page in (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
