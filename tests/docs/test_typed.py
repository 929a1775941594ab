"""Whoever types what README and docs show gets what they say, on a fresh folder."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from controller.cli.commands import COMMANDS
from controller.cli.main import main, parser
from controller.cli.replay import COMMANDS as REPLAYS
from tests.docs.pages import PAGES, Typed, inline, python, typed
from tests.support.tools import ROOT
from tests.support.topicwright import Topicwright, topicwright

STANDS_FOR = {
    "HOST:PORT[,HOST:PORT…]": "127.0.0.1:9", "HOST:PORT[,…]": "127.0.0.1:9", "HOST:PORT": "127.0.0.1:9",
    "faust|plain": "plain", "list|remove": "list", "KEY=VALUE": "a=b", "FILE": "file", "DIR": "data",
    "SECONDS": "1", "WHAT": "rebuild", "LOG": "log", "OFFSET|TIME": "3", "FLEET": "simulated:1", "URL": "local",
    "REQUEST-ID": "request", "NAME": "name", "ID": "request",
}  # fmt: skip
"""What to type for the words that stand for others; brackets and … are left out."""
NOT_WHOLE = "…"
RUN = (
    "topics", "events", "explain", "requests", "brokers", "settings", "diff", "topic", "check", "context", "completion",
)  # fmt: skip
ELSEWHERE = ("example", "kafka://", "--follow", "--http h", "LOG", "DIR", "FILE")
"""What needs something that no fresh folder has."""
FOUND = ("diff", "replay backtest")
"""They end with 1 where they found something."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_understood(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for each in typed(page, "topicwright"):
        line = each.line
        if NOT_WHOLE in line.split():
            continue
        for word, other in STANDS_FOR.items():
            line = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", other, line)
        line = re.sub(r" \[--[^\]]*\]…?", "", line)
        words = Typed(each.page, line).words[1:]
        try:
            parser(words[0]).parse_args(words)
        except SystemExit:
            pytest.fail(f"{each.line!r} ({line!r}) on {each.page}: {capsys.readouterr().err}")
    for each in inline(page):
        command = each.line.split()[1]
        assert command in COMMANDS or command == "COMMAND", each
        if command == "replay":
            assert each.line.split()[2] in REPLAYS, each


def _runs(each: Typed) -> bool:
    words = each.words
    if words[1] == "context":
        return True
    if any(sign in each.line for sign in (*ELSEWHERE, NOT_WHOLE)):
        return False
    if words[0] == "curl":
        return "127.0.0.1:8080" in each.line or "localhost:8080" in each.line
    return words[1] in RUN or (words[1] == "replay" and "--local" in words)


EXPECTED = {
    "topicwright topic create pay.refunds --partitions 3 --dry-run": r"^pay\.refunds would be created: 3 partitions",
    "topicwright topic create pay.refunds --partitions 3 --config retention.ms=86400000": r"^pay\.refunds is created",
    "topicwright topics pay.orders": r"^pay\.orders: ready,.*partitions  6, factor 3",
    "topicwright topics --at 5m": r"^There are no topics before the first event",
    "topicwright diff 1h": r"pay\.orders +created",
    "topicwright requests": r"^REQUEST .*pay\.orders",
    "topicwright events --topic pay.orders": r"CreateRequested +pay\.orders",
    "topicwright explain pay.orders": r"^topic pay\.orders: ready, 6 partitions, created .*pay\.orders is complete",
    "topicwright topic delete pay.refunds": r"^pay\.refunds is deleted",
    "topicwright replay invariants topicwright-data --local": r"all \d+ invariants hold",
    "topicwright replay redecide topicwright-data --local": r"0 decided otherwise",
    "topicwright replay compare topicwright-data --local": r"is what the events come to",
    "topicwright check --set create.topic.policy.class.name=team_policy.Owned": r"policies: team_policy\.Owned",
    "topicwright topic grow orders --partitions 8": r"partitions  8",
    "topicwright topic alter orders --config retention.ms=3600000": r"retention\.ms=3600000",
    "topicwright brokers": r"^BROKER +STATE.*live",
}
"""What these lines print."""


def test_readme_and_docs_on_a_fresh_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prod.properties").write_text("username=a\npassword=b\n")
    seen: set[str] = set()
    with topicwright(tmp_path) as service:
        monkeypatch.setenv("TOPICWRIGHT_HTTP", service.http)
        for page in PAGES:
            _python(page, service, tmp_path)
            for each in filter(_runs, typed(page, "topicwright", "curl")):
                seen |= _type(each, service, capsys)
    assert seen == EXPECTED.keys(), "each of them was typed"


def _python(page: Path, service: Topicwright, folder: Path) -> None:
    """Run a page's example of a client, and save its policy."""
    for example in python(page):
        if "AdminClient" in example:
            exec(compile(example.replace("127.0.0.1:9092", service.kafka), page.name, "exec"), {})
        if "class Owned" in example:
            (folder / "team_policy.py").write_text(example)


def _type(each: Typed, service: Topicwright, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Type a line and read what it prints; which of EXPECTED it was."""
    if each.words[0] == "curl":
        _curl(each, service)
        return set()
    words = [_request(capsys) if word == "ID" else word for word in each.words[1:]]
    try:
        code: object = main(words)
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert code == 0 or (code == 1 and each.line.split(" ", 1)[1].startswith(FOUND)), f"{each}: {code} {out} {err}"
    assert err == "", each
    assert out or "--type" in words, each
    if each.line not in EXPECTED:
        return set()
    assert re.search(EXPECTED[each.line], out, re.DOTALL), f"{each}: {out}"
    return {each.line}


def _request(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["requests", "-o", "name", "--limit", "1"]) == 0
    return capsys.readouterr().out.strip()


def _curl(each: Typed, service: Topicwright) -> None:
    words = [re.sub(r"(127\.0\.0\.1|localhost):8080", service.http, word) for word in each.words]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout).get("error", "NONE") == "NONE", f"{each}: {done.stdout}"


def test_the_index_has_every_page_and_no_link_is_dead() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    missing = [page.name for page in PAGES if page.parent.name == "docs" and f"({page.name})" not in index]
    assert missing == ["README.md"]
    for page in (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
