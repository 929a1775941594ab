"""How events become lines: what belongs together is one."""

from __future__ import annotations

from typing import Any

from controller.cli.reads.event_lines import folded, in_columns, line_of
from controller.cli.terminal.printing import Look
from projections.shown.json_types import CauseShape, EventShape

AT = "2026-07-17T10:00:00.000Z"


def event(offset: int, kind: str, command: str = "ReviewTopics", text: str = "…", **fields: Any) -> EventShape:
    return EventShape(offset, AT, 0, kind, text, CauseShape(command, f"review-{command}"), fields)


def change(offset: int, kind: str = "IsrChanged", **fields: Any) -> EventShape:
    return event(offset, kind, **{"topic": "t", "partition": offset, "reason": "live brokers changed", **fields})


def test_what_a_brokers_stop_does_to_a_hundred_partitions_is_one_line() -> None:
    stop = event(0, "BrokerFenced", "FenceBroker", "broker 3 is fenced (stopped)", broker_id=3)
    moved = [change(n, "LeaderElected" if n % 3 == 0 else "IsrChanged", topic=f"t{n % 2}") for n in range(1, 101)]
    after = event(101, "BrokerUnfenced", "UnfenceBroker", "broker 3 is live (started)", broker_id=3)
    lines = list(folded([stop, *moved, after]))
    assert [line.place for line in lines] == ["0", "1-100", "101"]
    assert lines[1].text == (
        "100 partitions of 2 topics changed in 100 events; 33 times another broker leads (live brokers changed); "
        "-o wide shows each"
    )
    assert lines[1].topic == "(2)"


def test_few_changes_and_those_of_other_causes_stay_apart() -> None:
    few = [change(n) for n in range(3)]
    assert list(folded(few)) == [line_of(one) for one in few]
    two_causes = [change(n) for n in range(5)] + [change(n, reason="reported by the leader") for n in range(5, 10)]
    assert [line.place for line in folded(two_causes)] == ["0-4", "5-9"]
    one_topic = next(iter(folded([change(n) for n in range(5)])))
    assert (one_topic.topic, one_topic.text.startswith("5 partitions of t changed in 5 events (")) == ("t", True)


def refusal(offset: int, kind: str, **fields: Any) -> EventShape:
    known = {"topic": "t", "request_id": "r", "error_code": 36, "message": "it is there"}
    return event(offset, kind, "CreateTopic", f"t is refused: {known['message']}", **{**known, **fields})


def test_a_refusal_is_said_once() -> None:
    rejected, answered = refusal(1, "CreateRejected", rule="x"), refusal(2, "CreateAnswered", waited_ms=7)
    (line,) = folded([rejected, answered])
    assert (line.place, line.text) == ("1", "t is refused: it is there (answered after 7 ms)")
    assert line.request == "r"
    other = refusal(2, "CreateAnswered", waited_ms=7, request_id="s")
    assert list(folded([rejected, other])) == [line_of(rejected), line_of(other)]
    assert list(folded([rejected])) == [line_of(rejected)]
    assert list(folded([rejected, rejected])) == [line_of(rejected)] * 2


def test_lines_fit_a_terminal_and_are_whole_elsewhere() -> None:
    text = "words " * 40
    lines = [line_of(event(n, "TopicCreated", "CreateTopic", text.strip(), topic="t")) for n in range(3)]
    for width in (80, 100, 120, 200):
        shown = list(in_columns(lines, Look(width)))
        assert max(map(len, shown)) <= width
        assert " ".join(" ".join(shown).split()).count("words") == 120
        assert "TopicCreated" not in "".join(shown)
    whole = list(in_columns(lines, Look()))
    assert len(whole) == 4
    assert whole[0].split() == ["OFFSET", "TIME", "TYPE", "TOPIC", "REQUEST", "WHAT"]
    assert all(line.endswith(text.strip()) for line in whole[1:])
