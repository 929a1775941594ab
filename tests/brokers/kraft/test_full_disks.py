"""While a voter's disk is full, no answered command is lost, no commit is partial, and the voter continues later."""

import errno
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import pytest

from controller.apis import Call
from controller.apis.kraft.quorum import register_controller, update_features
from controller.brokers.kraft import projector
from controller.brokers.kraft.membership import controller_registration
from controller.brokers.port import LeadLost
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages.cluster import FeatureUpdateKey, UpdateFeaturesRequest
from controller.machine.errors import ErrorCode
from controller.machine.state import Cluster
from controller.quorum.log.batches import RecordBatch
from controller.quorum.log_files import Segment
from events.logs.log import LogDiskFull, LogWriteError
from tests.brokers.kraft.desks import Desk, alone, leader_of, steps, three
from tests.brokers.kraft.logs import access_history
from tests.kafka.server.listener import until

HISTORY = access_history()
COMMANDS = steps(HISTORY)


def fill(desk: Desk, monkeypatch: pytest.MonkeyPatch, after: int = 0) -> list[bytes]:
    """Let the disk accept `after` batches and fail later ones; returns the failed batches."""
    refused: list[bytes] = []
    append = desk.seat.log.append

    def full(data: bytes) -> Sequence[RecordBatch]:
        nonlocal after
        after -= 1
        if after >= 0:
            return append(data)
        refused.append(data)
        raise OSError(errno.ENOSPC, "planted")

    monkeypatch.setattr(desk.seat.log, "append", full)
    return refused


@pytest.mark.parametrize("before", [0, 1])
async def test_a_full_disk_of_the_only_voter_fails_commands_until_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """As with a plain event log. Earlier batches of a commit remain, each with complete commands."""
    monkeypatch.setattr(projector, "RECORDS_PER_BATCH", 3)
    async with alone(tmp_path) as desk:
        await desk.commit(COMMANDS[:5])
        known = desk.log.next_offset
        with monkeypatch.context() as patch:
            fill(desk, patch, before)
            with pytest.raises(LogDiskFull, match="planted"):
                await desk.commit(COMMANDS[5:])
            assert not desk.replication.leads
            assert desk.log.next_offset == known
        assert not desk.node.ended.done()
        desk.load()
        taken = await desk.follow()
        assert bool(taken) == bool(before)
        assert desk.replication.leads
        assert desk.events() == HISTORY[: desk.log.next_offset]
        left = next(
            at for at in range(len(COMMANDS)) if sum(len(each) for _, each in COMMANDS[:at]) == len(desk.events())
        )
        await desk.commit(COMMANDS[left:])
        assert desk.events() == desk.embedded_events() == HISTORY
        assert desk.node.quorum.full is None


async def test_a_failed_flush_leaves_no_partial_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with alone(tmp_path) as desk:
        await desk.commit(COMMANDS[:5])
        known, epoch = desk.events(), desk.node.quorum.epoch

        def full(_: Segment) -> None:
            patch.undo()
            raise OSError(errno.ENOSPC, "planted")

        with monkeypatch.context() as patch:
            patch.setattr(desk.seat.log, "_sync", full)
            with pytest.raises(LogDiskFull, match="planted"):
                await desk.commit(COMMANDS[5:])
        desk.load()
        assert await desk.follow() == []
        assert desk.replication.leads
        assert desk.node.quorum.epoch > epoch
        assert desk.events() == desk.embedded_events() == known
        await desk.commit(COMMANDS[5:])
        assert desk.events() == desk.embedded_events() == HISTORY


async def test_a_leader_with_a_full_disk_resigns_and_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with three(tmp_path) as (leader, followers):
        await leader.commit(COMMANDS[:5])
        with monkeypatch.context() as patch:
            refused = fill(leader, patch)
            with pytest.raises(LeadLost):
                await leader.commit(COMMANDS[5:])
            assert leader.lost == 1
            chosen = await leader_of(followers)
            await chosen.commit(COMMANDS[5:])
            assert len(chosen.events()) == len(HISTORY)
            await until(lambda: len(refused) > 1)
            assert leader.node.quorum.full is not None
        assert not leader.node.ended.done()
        leader.load()
        await leader.follow(lambda: leader.log.next_offset == len(HISTORY))
        assert leader.events() == chosen.events() == HISTORY
        assert leader.node.quorum.full is None
        assert not leader.replication.leads


async def test_a_leader_that_cannot_write_events_resigns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with three(tmp_path) as (leader, followers):
        await leader.commit(COMMANDS[:5])
        with monkeypatch.context() as patch:
            patch.setattr(leader.log, "write", Mock(side_effect=LogWriteError("planted")))
            with pytest.raises(LogWriteError):
                await leader.commit(COMMANDS[5:])
            chosen = await leader_of(followers)
            assert chosen.events() == HISTORY, "the command was committed, so the new leader must have it"
        assert not leader.node.quorum.can_lead
        leader.load()
        await leader.follow(lambda: leader.log.next_offset == len(HISTORY))
        assert leader.node.quorum.can_lead
        assert leader.events() == HISTORY


async def test_writes_to_a_full_disk_are_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also writes only to the metadata log: without a response the connection would close."""
    async with alone(tmp_path) as desk:
        api = cast("ControllerApi", Mock(cluster=Cluster(), grants=lambda *_: True))
        update = FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
        registering = partial(register_controller, desk.node, desk.replication.registered)
        request = controller_registration(desk.seat.voter, b"i" * 16, 0)
        with monkeypatch.context() as patch:
            fill(desk, patch)
            raising = partial(update_features, desk.node, desk.replication.registered)
            answer = await raising(Call(api, RequestContext(57, 1)), UpdateFeaturesRequest(feature_updates=(update,)))
            assert answer.error_code == ErrorCode.NOT_CONTROLLER
            assert (await registering(Call(api, RequestContext(70, 0)), request)).error_code == ErrorCode.NOT_CONTROLLER
        assert not desk.node.ended.done()
        assert desk.node.quorum.kraft_version == 0
