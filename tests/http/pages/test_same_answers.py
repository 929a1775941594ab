"""Page, JSON API and command line give the same answer for the same point in time, each in its own format."""

import asyncio
import json
import re
import shlex
from collections.abc import Sequence
from urllib.parse import urlencode

import pytest

from tests.cli.commands import ended
from tests.http.pages.story import Read, page, story
from tests.http.service import Service

# path | columns of its tables on the page and on the command line
SAME = """
topics                                   | Topic, Partitions, Factor, Status, Created, Owner
topics?name=pay.*&status=ready           | Topic, Status, Owner
topics/pay.orders                        | Partition, Leader, In sync, Offline
requests                                 | Request, Time, API, Topics, Outcome, Rule
requests?outcome=rejected&host=127.0.0.1 | Request, Time, API, Topics, Outcome, Rule
requests/ID                              | Topic, Outcome, Error, Rule, Waited, Change, Message
brokers                                  | Broker, State, Since, Why, Rack, Listeners
diff                                     | Topic, Change
"""


class Command:
    """Runs a command at a service, in this process."""

    def __init__(self, one: Service, capsys: pytest.CaptureFixture[str]) -> None:
        self._place = ("--http", f"127.0.0.1:{one.port}")
        self._capsys = capsys

    async def __call__(self, *words: str) -> str:
        code = await asyncio.to_thread(ended, *words, *self._place)
        printed = self._capsys.readouterr()
        assert code in (0, 1), f"{words}: {printed.err}"  # `diff` ends with 1 if there is a difference
        return printed.out


def columns(rows: Sequence[Sequence[str]], names: str) -> list[list[str]]:
    """The values of these columns, from the one table among `rows` that has them."""
    wanted = names.lower().split(", ")
    found: list[list[str]] = []
    places: list[int] = []
    for row in rows:
        lower = [cell.lower() for cell in row]
        if set(wanted) <= set(lower):
            places, width = [lower.index(name) for name in wanted], len(row)
        elif places and len(row) == width:
            found.append([" ".join(row[place].split()) for place in places])
        else:
            places = []
    return found


async def test_page_json_and_cli_have_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    async with story(hostile=False) as one:
        run = Command(one, capsys)
        events = (await one.get("/v1/events", limit=1000))["events"]
        created = next(each for each in events if each["type"] == "CreateRequested")
        died = next(each for each in events if each["type"] == "BrokerFenced")
        points_in_time = [None, created["offset"] + 5, died["offset"] - 1, died["offset"] + 1, died["at"]]
        for line in SAME.strip().splitlines():
            path, names = (column.strip() for column in line.split(" | "))
            path = path.replace("ID", created["cause"]["request_id"])
            answers = [
                await _answer(one, run, path, names, point_in_time)
                for point_in_time in points_in_time[path == "diff" :]
            ]
            assert any(answers), f"{path} has an answer"
            assert len({str(each) for each in answers}) > 1 or "boot" in path, f"{path} distinguishes points in time"


async def _answer(one: Service, run: Command, path: str, names: str, point_in_time: object) -> list[list[str]]:
    """Returns the common answer of the page, of the JSON, and of the command that the page names."""
    given = "" if point_in_time is None else urlencode({"from" if path == "diff" else "at": point_in_time})
    address = f"/{path}{'&' if '?' in path else '?'}{given}".rstrip("?&")
    shown = Read(await page(one, address))
    command = shlex.split(shown.text.rpartition("On the command line: topicwright ")[2])
    answer, printed = await one.get(f"/v1{address}"), json.loads(await run(*command, "-o", "json"))
    shared = {name for name in answer if name in printed and not name.startswith("next")}
    assert len(shared) > 1, "only the cursors differ"
    assert {name: answer[name] for name in shared} == {name: printed[name] for name in shared}, address
    lines = (await run(*command, "-o", "wide")).splitlines()
    found = columns(shown.rows, names)
    assert columns([re.split(r"\s{2,}", each.strip()) for each in lines], names) == found, address
    return found
