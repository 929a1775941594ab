"""The five questions of an on-call engineer, each answered by one command."""

import re

import pytest

from tests.http.pages.story import story
from tests.http.pages.test_same_answers import Command

TIME = r"20\d\d-\d\d-\d\dT[\d:.]+Z"
QUESTIONS = {
    "topics pay.orders": rf"created +{TIME} by User:ANONYMOUS \(billing-api 2\.1\)",
    "explain orphan": r"^no topic 'orphan' was ever created; .* rejected .* by policy:\S+: orphan has no owner",
    "changes --since 1h": r"User:ANONYMOUS .* changes the configs of pay\.orders: retention\.ms 86400000 -> 3600000",
    "status": r"offline since .*it waits for broker 3, the last in-sync replica, fenced since \S+ .*topics +pay\.alone",
    "whatif min.insync.replicas=2 lose-broker 3": r"1 topic would be offline; 4 topics would be under-min-isr\.",
}
"""The command of each question, and its answer: the creator of a topic, the reason of a rejection, the changes of the
last hour, the topics without a leader and the broker that they wait for, and the effect of losing a broker."""


async def test_each_question_of_an_on_call_engineer_is_answered_by_one_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with story(hostile=False) as one:
        run = Command(one, capsys)
        await one.create("pay.alone", assignments=[[3]])
        whatif = await run("whatif", "min.insync.replicas=2", "lose-broker", "3")
        one.brokers.stop_broker(3)
        await one.live(1)
        for command, answer in QUESTIONS.items():
            printed = whatif if command.startswith("whatif") else await run(*command.split())
            assert re.search(answer, printed, re.DOTALL), f"{command}: {printed}"
