"""Which controllers are registered is read from the metadata log; one that left can be unregistered (KIP-1312)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller.apis.kraft.quorum import UnregisterControllerHandler
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.image import MetadataImage, snapshot_batches
from controller.brokers.kraft.log.metadata_codec import decode_record, encode_record
from controller.brokers.kraft.quorum.raft.log import SnapshotId
from controller.brokers.kraft.quorum.registered import RegisteredControllers
from controller.kafka.handling import RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.cluster import UnregisterControllerRequest, UnregisterControllerResponse
from controller.machine.errors import ErrorCode
from tests.brokers.kraft.quorum.seats import PATIENCE_S, Seat, quorum

LEFT, NEVER = 3009, 3010


async def registered(seat: Seat, *node_ids: int) -> None:
    assert seat.node is not None
    records = [(None, encode_record(kinds.RegisterControllerRecord(controller_id=each))) for each in node_ids]
    await asyncio.wait_for(seat.node.committed(seat.node.append(records)), PATIENCE_S)


def handler(seat: Seat, level: int = 33) -> UnregisterControllerHandler:
    assert seat.node is not None
    assert seat.log is not None
    return UnregisterControllerHandler(seat.node, RegisteredControllers(seat.log), lambda: level)


async def unregister(handle: UnregisterControllerHandler, node_id: int) -> UnregisterControllerResponse:
    context = RequestContext(ApiKey.UNREGISTER_CONTROLLER, 0)
    return await asyncio.wait_for(handle(context, UnregisterControllerRequest(controller_id=node_id)), PATIENCE_S)


def removals(seat: Seat) -> list[int]:
    assert seat.log is not None
    records = (decode_record(v) for batch in seat.log.batches() if not batch.is_control for _, v in batch.records)
    return [each.controller_id for each in records if isinstance(each, kinds.UnregisterControllerRecord)]


async def test_a_registration_is_removed_once(tmp_path: Path) -> None:
    async with quorum(tmp_path, 1) as (seat,):
        await registered(seat, LEFT, LEFT + 10)
        handle = handler(seat)
        answers = await asyncio.gather(*(unregister(handle, LEFT) for _ in range(5)))
        codes = sorted(each.error_code for each in answers)
        assert codes == [0, *[ErrorCode.CONTROLLER_ID_NOT_REGISTERED] * 4], (
            "a Kafka controller ends at a second removal"
        )
        assert removals(seat) == [LEFT]
        await registered(seat, LEFT)
        assert (await unregister(handle, LEFT)).error_code == 0
        assert removals(seat) == [LEFT, LEFT]
        image = MetadataImage()
        assert seat.log is not None
        image.fold(seat.log.batches())
        left = [each.controller_id for each in image.all(kinds.RegisterControllerRecord)]
        assert left == [LEFT + 10], "a snapshot has no other"


@pytest.mark.parametrize(
    ("level", "node_id", "code", "message"),
    [
        (33, NEVER, 136, f"Controller ID {NEVER} is not currently registered."),
        (32, LEFT, 35, "The current MetadataVersion is too old to support controller unregistration."),
        (33, None, 42, "Controller cannot unregister itself while it is active."),
    ],
)
async def test_a_rejected_request_writes_nothing(
    tmp_path: Path, level: int, node_id: int | None, code: int, message: str
) -> None:
    async with quorum(tmp_path, 1) as (seat,):
        await registered(seat, LEFT, seat.id)
        answer = await unregister(handler(seat, level), seat.id if node_id is None else node_id)
        assert (answer.error_code, answer.error_message) == (code, message)
        assert removals(seat) == []


async def test_a_registration_in_a_snapshot_counts(tmp_path: Path) -> None:
    async with quorum(tmp_path, 1) as (seat,):
        await registered(seat, LEFT)
        assert seat.log is not None
        image = MetadataImage()
        image.fold(seat.log.batches())
        seat.log.flush()
        snapshot = SnapshotId(seat.log.end, seat.log.last_epoch)
        seat.log.write_snapshot(snapshot, snapshot_batches(image, snapshot.epoch))
        assert seat.log.keep_snapshot(snapshot)
        assert LEFT in await RegisteredControllers(seat.log).all()
