"""How events become lines: what belongs together is one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from controller.cli.output import Style
from controller.cli.reads import event_lines
from controller.cli.reads.event_lines import folded, in_columns, in_format, line_of
from projections.views.events import CauseView, EventView

AT = "2026-07-17T10:00:00.000Z"


def event(offset: int, kind: str, command: str = "ReconcileTopics", text: str = "…", **fields: Any) -> EventView:
    return EventView(offset, AT, 0, kind, text, CauseView(command, f"review-{command}"), fields)


def change(offset: int, leader: int = 1, **fields: Any) -> EventView:
    known: dict[str, Any] = {"topic": "t", "partition": offset, "reason": "live brokers changed"}
    return event(offset, "PartitionChanged", **known | {"before": {"leader": 1}, "after": {"leader": leader}} | fields)


def test_what_a_brokers_stop_does_to_a_hundred_partitions_is_one_line() -> None:
    stop = event(0, "BrokerFenced", "FenceBroker", "broker 3 is fenced (stopped)", broker_id=3)
    moved = [change(n, 2 if n % 3 == 0 else 1, topic=f"t{n % 2}") for n in range(1, 101)]
    after = event(101, "BrokerUnfenced", "UnfenceBroker", "broker 3 is live (started)", broker_id=3)
    lines = list(folded([stop, *moved, after]))
    assert [line.place for line in lines] == ["0", "1-100", "101"]
    assert lines[1].text == (
        "100 partitions of 2 topics changed in 100 events; 33 leader changes (live brokers changed); -o wide shows each"
    )
    assert lines[1].topic == "(2)"


def test_few_changes_and_those_of_other_causes_stay_apart() -> None:
    few = [change(n) for n in range(3)]
    assert list(folded(few)) == [line_of(one) for one in few]
    two_causes = [change(n) for n in range(5)] + [change(n, reason="reported by the leader") for n in range(5, 10)]
    assert [line.place for line in folded(two_causes)] == ["0-4", "5-9"]
    one_topic = next(iter(folded([change(n) for n in range(5)])))
    assert (one_topic.topic, one_topic.text.startswith("5 partitions of t changed in 5 events (")) == ("t", True)


def test_columns_stay_where_they_are() -> None:
    names = ["a", "a" * 20, "b" * 35, "c"]
    lines = [line_of(event(n, "TopicReady", text="ready", topic=name, request_id=name)) for n, name in enumerate(names)]
    shown = list(in_columns(lines, Style()))
    assert {line.rindex("ready") for line in shown[1:]} == {shown[0].index("WHAT")}
    assert next(in_columns(iter(lines), Style(), 0)).index("WHAT") < shown[0].index("WHAT"), "followed: as they come"


def refusal(offset: int, kind: str, **fields: Any) -> EventView:
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
        shown = list(in_columns(lines, Style(width)))
        assert max(map(len, shown)) <= width
        assert " ".join(" ".join(shown).split()).count("words") == 120
        assert "TopicCreated" not in "".join(shown)
    whole = list(in_columns(lines, Style()))
    assert len(whole) == 4
    assert whole[0].split() == ["OFFSET", "TIME", "TYPE", "TOPIC", "REQUEST", "WHAT"]
    assert all(line.endswith(text.strip()) for line in whole[1:])


def test_what_is_followed_is_folded_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_lines, "HELD_S", 60.0)
    monkeypatch.setattr(event_lines, "QUIET_S", 60.0)
    may_end = Event()

    def source() -> Iterator[EventView]:
        yield event(0, "BrokerFenced", "FenceBroker", broker_id=3)
        yield from (change(n) for n in range(1, 101))
        yield event(101, "BrokerUnfenced", "UnfenceBroker", broker_id=3)
        may_end.wait(60)
        raise OSError("the service has stopped")

    lines = in_format(Namespace(output="table", follow=True), source())
    assert [next(lines).split()[0] for _ in range(4)] == ["OFFSET", "0", "1-100", "101"], "while more may come"
    may_end.set()
    with pytest.raises(OSError, match="stopped"):
        next(lines)


def test_what_is_followed_is_not_held_for_ever() -> None:
    more = Event()

    def source() -> Iterator[int]:
        yield from range(3)
        more.wait(60)
        yield from range(3, 5)

    some = event_lines.bursts(source(), lambda _: True)
    shown = next(some)
    more.set()
    assert [*shown, *(one for burst in some for one in burst)] == [*range(5)], "the first before all had come"


def test_a_burst_ends_where_nothing_belongs_to_it_or_where_it_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_lines, "HELD_S", 60.0)
    monkeypatch.setattr(event_lines, "QUIET_S", 60.0)
    assert list(event_lines.bursts(range(3), lambda one: one != 1)) == [[0, 1], [2]]
    monkeypatch.setattr(event_lines, "BURST_MAX", 2)
    assert list(event_lines.bursts(range(5), lambda _: True)) == [[0, 1], [2, 3], [4]]
    monkeypatch.setattr(event_lines, "HELD_S", 0.0)
    assert list(event_lines.bursts(range(3), lambda _: True)) == [[0], [1], [2]]
