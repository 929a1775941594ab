"""Confirmations: together when all live brokers have given them, alone after a moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.brokers.kraft import confirmations
from controller.brokers.kraft.confirmations import Confirmations
from events.names import BrokerId, Offset

LIVE = tuple(BrokerId(each) for each in (1, 2, 3))


class Put:
    """The commands that were put: brokers, offset, after."""

    def __init__(self, live: tuple[BrokerId, ...] = LIVE) -> None:
        self.commands: list[tuple[tuple[int, ...], int, int]] = []
        self.gathered = Confirmations(self._observe, lambda: live)

    def _observe(self, _: Any, *, brokers: tuple[int, ...], offset: int, after: int) -> None:
        self.commands.append((brokers, offset, after))

    def take(self, broker_id: int, offset: int) -> None:
        self.gathered.take(BrokerId(broker_id), Offset(offset))


async def test_one_command_when_all_have_confirmed() -> None:
    put = Put()
    for broker_id, offset in ((1, 5), (2, 9), (3, 7)):
        assert put.commands == []
        put.take(broker_id, offset)
    assert put.commands == [((1, 2, 3), 5, -1)]
    put.take(1, 8)
    assert put.commands[1:] == [((1, 2, 3), 7, 5)]
    put.gathered.clear()


async def test_what_was_confirmed_is_not_told_again() -> None:
    put = Put(LIVE[:1])
    for offset in (5, 5, 4, 6):
        put.take(1, offset)
    assert put.commands == [((1,), 5, -1), ((1,), 6, 5)]


async def test_a_broker_that_went_confirms_anew() -> None:
    put = Put(LIVE[:1])
    put.take(1, 5)
    put.gathered.forget(BrokerId(1))
    put.take(1, 5)
    assert put.commands == [((1,), 5, -1), ((1,), 5, -1)]


async def test_a_slow_broker_keeps_nobodys_word_back_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmations, "GATHER_S", 0.0)
    put = Put()
    put.take(1, 5)
    put.take(2, 6)
    await asyncio.sleep(0.01)
    assert put.commands == [((1,), 5, -1), ((2,), 6, -1)]
    put.take(3, 7)
    assert put.commands[2:] == [((3,), 5, -1)], "all have confirmed as much now"
    await asyncio.sleep(0.01)
    assert put.commands[3:] == [((3,), 7, 5)]


async def test_cleared_nothing_more_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmations, "GATHER_S", 0.0)
    put = Put()
    put.take(1, 5)
    put.gathered.clear()
    await asyncio.sleep(0.01)
    assert put.commands == []
