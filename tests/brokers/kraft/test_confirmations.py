"""Confirmations: together when all live brokers have given them, alone after a moment."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from controller.brokers.kraft.confirmations import GATHER_S, Confirmations
from controller.brokers.port import CommandSink
from controller.machine.commands.commands import ConfirmMetadata
from events.names import BrokerId, Offset, RequestId
from tests.simulation.virtual_time import on_virtual_time

LIVE = tuple(BrokerId(each) for each in (1, 2, 3))


class Put:
    """A controller that keeps the commands that were put: brokers, offset, after."""

    def __init__(self, live: tuple[BrokerId, ...] = LIVE) -> None:
        self.commands: list[tuple[tuple[int, ...], int, int]] = []
        self.store = SimpleNamespace(durable_cluster=SimpleNamespace(live=live))
        self.last_offset = Offset(-1)
        self.gathered = Confirmations(cast("CommandSink", self), 0)

    def has_pending_creates(self) -> bool:
        return True

    def new_request_id(self, origin: str) -> RequestId:
        return RequestId(origin)

    def now_ms(self) -> int:
        return 0

    def submit_internal(self, command: ConfirmMetadata) -> None:
        self.commands.append((command.brokers, command.offset, command.after))

    def take(self, broker_id: int, offset: int) -> None:
        self.gathered.take(BrokerId(broker_id), Offset(offset))


@on_virtual_time
async def test_one_command_when_all_have_confirmed() -> None:
    put = Put()
    for broker_id, offset in ((1, 5), (2, 9), (3, 7)):
        assert put.commands == []
        put.take(broker_id, offset)
    assert put.commands == [((1, 2, 3), 5, -1)]
    put.take(1, 8)
    assert put.commands[1:] == [((1, 2, 3), 7, 5)]
    put.gathered.clear()


@on_virtual_time
async def test_what_was_confirmed_is_not_reported_again() -> None:
    put = Put(LIVE[:1])
    for offset in (5, 5, 4, 6):
        put.take(1, offset)
    assert put.commands == [((1,), 5, -1), ((1,), 6, 5)]


@on_virtual_time
async def test_a_broker_that_went_confirms_anew() -> None:
    put = Put(LIVE[:1])
    put.take(1, 5)
    put.gathered.forget(BrokerId(1))
    put.take(1, 5)
    assert put.commands == [((1,), 5, -1), ((1,), 5, -1)]


@on_virtual_time
async def test_a_slow_broker_keeps_nobodys_word_back_for_long() -> None:
    put = Put()
    put.take(1, 5)
    put.take(2, 6)
    await asyncio.sleep(2 * GATHER_S)
    assert put.commands == [((1,), 5, -1), ((2,), 6, -1)]
    put.take(3, 7)
    assert put.commands[2:] == [((3,), 5, -1)], "all have confirmed as much now"
    await asyncio.sleep(2 * GATHER_S)
    assert put.commands[3:] == [((3,), 7, 5)]


@on_virtual_time
async def test_cleared_nothing_more_is_reported() -> None:
    put = Put()
    put.take(1, 5)
    put.gathered.clear()
    await asyncio.sleep(2 * GATHER_S)
    assert put.commands == []
