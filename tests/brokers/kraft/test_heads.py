"""Voters that have different events find it out, and who differs from most does not lead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from controller.brokers.cluster.wire import Address
from controller.brokers.kraft import heads, missed
from controller.brokers.kraft.log import projector
from events.logs.log import EventLog
from projections.store import tree
from tests.brokers.kraft.desks import Desk, steps, three
from tests.brokers.kraft.logs import access_history
from tests.kafka.server.listener import until

HISTORY = access_history()
COMMANDS = steps(HISTORY)


def know_each_other(monkeypatch: pytest.MonkeyPatch, desks: Sequence[Desk]) -> None:
    def others_of(desk: Desk) -> Callable[[], Awaitable[list[Address]]]:
        places = [each.node.quorum.me.listeners[0] for each in desks if each is not desk]

        async def of_topicwright() -> list[Address]:
            return [(each.host, each.port) for each in places]

        return of_topicwright

    for desk in desks:
        monkeypatch.setattr(desk.node, "of_topicwright", others_of(desk))


def change(monkeypatch: pytest.MonkeyPatch, log: EventLog) -> None:
    """Its events are others from now on."""

    def stored_head(of: EventLog) -> tuple[int, bytes]:
        size, root = tree.stored_head(of)
        return size, b"x" * 32 if of is log else root

    def head_of(of: EventLog, size: int | None = None) -> tuple[int, bytes]:
        end, root = tree.head_of(of, size)
        return end, b"x" * 32 if of is log else root

    for module in (heads, projector):
        monkeypatch.setattr(module, "stored_head", stored_head)
    monkeypatch.setattr(missed, "head_of", head_of)


@pytest.mark.parametrize("changed", ["nobody", "a follower", "the leader"])
async def test_who_differs_from_most_does_not_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    async with three(tmp_path) as (leader, (one, other)):
        know_each_other(monkeypatch, (leader, one, other))

        async def all_take(commands: slice) -> None:
            await leader.commit(COMMANDS[commands])
            end = leader.log.next_offset
            for each in (one, other):
                await each.follow(lambda each=each: each.log.next_offset == end)  # type: ignore[misc]

        await all_take(slice(0, 4))
        assert [each.replication.heads.trouble for each in (leader, one, other)] == [None] * 3
        if changed != "nobody":
            change(monkeypatch, leader.log if changed == "the leader" else one.log)
        await all_take(slice(4, 8))
        match changed:
            case "nobody":
                assert [each.replication.heads.trouble for each in (one, other)] == [None] * 2
            case "a follower":
                await until(lambda: one.replication.heads.trouble is not None)
                assert f"other events than most: {one.seat.id}" in str(one.replication.heads.trouble)
                assert not one.node.quorum.can_lead
                assert other.replication.heads.trouble is None
                one.load()
                assert not one.node.quorum.can_lead, "nor after a failed write"
            case _:
                for each in (one, other):
                    await until(lambda each=each: each.replication.heads.trouble is not None)  # type: ignore[misc]
                    assert each.node.quorum.distrusted == {leader.seat.id}
                    assert each.node.quorum.can_lead
        await all_take(slice(8, None))
        assert one.events() == other.events() == HISTORY, "and all go on"


async def test_of_two_that_differ_nobody_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with three(tmp_path) as (leader, (one, _)):
        know_each_other(monkeypatch, (leader, one))
        change(monkeypatch, leader.log)
        await leader.commit(COMMANDS[:4])
        await one.follow(lambda: one.log.next_offset == leader.log.next_offset)
        await until(lambda: one.replication.heads.trouble is not None)
        assert "have different events" in str(one.replication.heads.trouble)
        assert (one.node.quorum.can_lead, one.node.quorum.distrusted) == (True, frozenset())
