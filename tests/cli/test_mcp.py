"""`topicwright mcp`, driven by the official client: the five questions of an on-call engineer, bounds, and errors."""

import asyncio
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, cast

from controller.cli.work import mcp as module
from tests.cli.commands import open_log
from tests.http.pages.story import CLIENT, HOSTILE, story
from tests.http.service import Half, Service, service
from tests.support.tools import ROOT, absent


async def _asked(one: Service, *questions: tuple[str, dict[str, Any]]) -> tuple[list[Any], list[tuple[bool, str]]]:
    """The tools of a server for this service, and the answers to calls of them."""
    try:
        from mcp.client import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client
    except ImportError:
        absent("the package mcp (make env)")
    words = ["-m", "controller.cli.main", "mcp", "--http", f"127.0.0.1:{one.port}"]
    environment = {"PYTHONPATH": ":".join([str(ROOT), *filter(None, sys.path)])}
    async with Client(
        stdio_client(StdioServerParameters(command=sys.executable, args=words, env=environment))
    ) as client:
        tools = (await client.list_tools()).tools
        answers = [await client.call_tool(name, given) for name, given in questions]
    return tools, [(bool(each.is_error), cast(Any, each.content[0]).text) for each in answers]


def _data(answer: tuple[bool, str]) -> Any:
    is_error, text = answer
    assert not is_error, text
    marked, data = text.split("\n")
    assert "never instructions" in marked
    return json.loads(data)


async def test_an_assistant_answers_the_five_questions_of_an_on_call_engineer(tmp_path: Path) -> None:
    log = open_log(tmp_path / "data")
    async with story(log=log) as one:
        rules = '[[rule]]\nname = "isr"\nconfigs = { "min.insync.replicas" = { min = 2 } }\n'
        tools, answers = await _asked(
            one,
            ("topic", {"name": "pay.orders"}),
            ("explain", {"subject": "orphan"}),
            ("changes", {"from": "1h", "topic": "pay.*"}),
            ("status", {}),
            ("whatif", {"change": "min.insync.replicas=2 lose-broker 3"}),
            ("backtest", {"text": rules, "since": "1h"}),
            ("requests", {"outcome": "rejected", "limit": 100}),
        )
        assert [tool.name for tool in tools] == list(module.TOOLS)
        assert all(tool.annotations.read_only_hint for tool in tools)
        topic, refused, changes, status, whatif, backtest, requests = map(_data, answers)
        assert topic["created_by"]["principal"] == "User:ANONYMOUS", "who created it"
        assert "policy:tests.Owned/owner: orphan has no owner" in refused["summary"], "why it was refused"
        altered = next(each for each in changes["changes"] if each["type"] == "TopicConfigsChanged")
        assert altered["values"] == [{"name": "retention.ms", "before": "86400000", "after": "3600000"}], "what changed"
        assert all("broker 2, fenced" in each["cause"] for each in status["issues"]), "what waits, and for whom"
        assert whatif["topics"][0]["after"] == "under-min-isr", "what if"
        assert backtest["groups"] is not None
        assert {CLIENT, "billing-api 2.1"} >= {each["client_id"] for each in requests["requests"] if each["client_id"]}
        assert HOSTILE[2] not in answers[-1][1], "characters that reverse the text are spelled out"
    log.close()


async def test_the_tools_change_nothing_and_name_what_is_wrong() -> None:
    wrong = {
        "there is no tool 'delete'": ("delete", {"name": "t"}),
        "name: missing": ("topic", {}),
        "is not a valid point in time": ("status", {"at": "soon"}),
        "topics: unknown query parameter; allowed are at": ("status", {"topics": "5"}),
        "no topic 'none' was ever created": ("topic", {"name": "none"}),
        "'explode' is no change": ("whatif", {"change": "explode"}),
    }
    async with service() as one:
        for number in range(3):
            await one.create(f"t{number}")
        before = one.log.durable_offset
        _, answers = await _asked(one, *wrong.values(), ("topics", {"limit": 2}))
        assert one.log.durable_offset == before
    for message, (is_error, text) in zip(wrong, answers, strict=False):
        assert (is_error, message in text) == (True, True), text
    assert len(_data(answers[-1])["topics"]) == 2


async def test_answers_are_truncated_and_permissions_are_those_of_the_api(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "ANSWER_CHARACTERS_MAX", 50)
    async with service(authorizer=Half()) as half:
        await half.create("open.t")
        options = Namespace(http=f"127.0.0.1:{half.port}", context=None, command_config=None)
        text, is_error = await asyncio.to_thread(module.answer, options, "topic", {"name": "open.t"})
        assert (is_error, text.endswith("(truncated: ask for less, with filters or a smaller limit)")) == (False, True)
        for name in ("status", "changes"):
            text, is_error = await asyncio.to_thread(module.answer, options, name, {})
            assert (is_error, text.startswith("Describe on the cluster is needed")) == (True, True), text
