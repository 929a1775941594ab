"""Controller registrations in the metadata log: those of controllers that left limit feature levels, as in Kafka, until
they are registered without limits or unregistered (KIP-1312)."""

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest
from structlog.testing import capture_logs

from controller.apis import Call, bound
from controller.apis.kraft.quorum import register_controller, unregister_controller, update_features
from controller.brokers.kraft.kraft_brokers import KraftBrokers
from controller.brokers.kraft.membership import controller_record, controller_registration
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages import records as kinds
from controller.kafka.messages.cluster import (
    ControllerRegistrationRequest,
    Feature,
    FeatureUpdateKey,
    Listener,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
    UpdateFeaturesRequest,
)
from controller.kafka.messages.records import NoOpRecord
from controller.machine.commands.commands import ChangeFeatures
from controller.machine.errors import ErrorCode
from controller.machine.state import Broker, Cluster
from controller.quorum.features import (
    LEVEL_MAX,
    METADATA_VERSION_MAX,
    Registered,
    RegisteredControllers,
    features_at,
    fold,
    limits,
    without_limits,
)
from controller.quorum.log.batches import decode_batches, encode_batch
from controller.quorum.log.image import MetadataImage
from controller.quorum.log.metadata_codec import decode_record, encode_record
from controller.quorum.log.record_kinds import METADATA_VERSION_FEATURE
from controller.quorum.raft.log import SnapshotId
from controller.quorum.raft.voters import Voter
from controller.settings.load import load_settings
from events.catalog import SupportedFeature
from events.names import BrokerId
from tests.brokers.kraft.desks import Desk, alone
from tests.quorum.logs import kept, opened, snapshot
from tests.quorum.seats import PATIENCE_S, Seat, quorum

LEFT = 3009
OLD = "metadata.version"


def registration(node_id: int = LEFT, highest: int = 21) -> ControllerRegistrationRequest:
    """A registration that supports only metadata.version, up to a level."""
    voter = Voter(node_id, b"d" * 16, (Listener(name="CONTROLLER", host="127.0.0.1", port=1),))
    request = controller_registration(voter, b"i" * 16, 0)
    feature = Feature(name=OLD, min_supported_version=17, max_supported_version=highest)
    return msgspec.structs.replace(request, features=(feature,))


def record(node_id: int = LEFT, highest: int = 21) -> tuple[None, bytes]:
    return None, encode_record(controller_record(registration(node_id, highest)))


def unregistered(node_id: int) -> tuple[None, bytes]:
    """The UnregisterControllerRecord of Kafka 4.4 (KIP-1312)."""
    return None, b"\1\x1d\0" + node_id.to_bytes(4, "big") + b"\0"


def highest(registered: Registered) -> dict[int, int]:
    return {node_id: each.features[0].max_supported_version for node_id, each in registered.items()}


def test_the_newest_controller_registration_is_used_until_removed() -> None:
    found: Registered = {}
    records = record(1), record(2), (None, encode_record(NoOpRecord())), record(1, 30), unregistered(2), unregistered(7)
    fold(found, decode_batches(encode_batch(0, 1, 5, records)))
    assert highest(found) == {1: 30}


def test_a_departed_controller_is_registered_without_feature_limits() -> None:
    found = controller_record(registration())
    assert limits(found, ("metadata.version", "new.version", "topicwright.priority")) == {OLD: 21, "new.version": 0}
    freed = without_limits(LEFT, ("new.version", "topicwright.priority"))
    assert freed.listeners == (), "clients must not be sent to a departed controller"
    assert {(each.min_supported_version, each.max_supported_version) for each in freed.features} == {(0, LEVEL_MAX)}
    assert limits(controller_record(freed), ("metadata.version", "new.version", "group.version")) == {}
    assert freed.incarnation_id != registration().incarnation_id, "so that a running one registers again"


async def test_registrations_are_read_from_the_snapshot_and_later_batches(tmp_path: Path) -> None:
    files = opened(tmp_path)
    files.append(encode_batch(0, 1, 5, [record(1), record(2)]))
    registered = RegisteredControllers(files)
    assert highest(await registered.all()) == {1: 21, 2: 21}
    files.flush()
    kept(files, SnapshotId(2, 1), [snapshot(1, [record(1), record(2)])])
    files.append(encode_batch(2, 1, 5, [record(2, 30), record(3, 30)]))
    assert highest(await registered.all()) == {1: 21, 2: 30, 3: 30}
    files.close()


async def raised(desk: Desk, level: int) -> tuple[int, str | None]:
    """Request to raise metadata.version; returns error code and message."""
    api = cast("ControllerApi", Mock(cluster=Cluster(), grants=lambda *_: True))
    update = FeatureUpdateKey(feature=OLD, max_version_level=level, upgrade_type=1)
    request = UpdateFeaturesRequest(feature_updates=(update,), validate_only=True)
    answer = await update_features(desk.node, desk.replication.registered, Call(api, RequestContext(57, 2)), request)
    return answer.error_code, answer.error_message


async def test_a_leader_rejects_feature_levels_as_kafka_and_ignores_departed_nodes(tmp_path: Path) -> None:
    async with alone(tmp_path) as desk:
        register = partial(register_controller, desk.node, desk.replication.registered)

        async def registers(request: ControllerRegistrationRequest) -> int:
            return (await register(Call(Mock(), RequestContext(70, 0)), request)).error_code

        assert await registers(registration()) == ErrorCode.INVALID_REQUEST, "an unknown node must be rejected"
        assert await raised(desk, 21) == (0, None)
        await desk.node.committed(desk.node.append([record(), record(desk.seat.id, 19)]))  # its own is ignored
        assert await raised(desk, 21) == (0, None)
        code, why = await raised(desk, METADATA_VERSION_MAX)
        assert code == ErrorCode.INVALID_UPDATE_VERSION
        assert f"Controller {LEFT} only supports versions 17-21" in (why or "")
        assert await registers(without_limits(LEFT, ())) == ErrorCode.NONE
        assert await raised(desk, METADATA_VERSION_MAX) == (0, None)


@pytest.mark.parametrize(
    ("registered", "why"),
    [
        ({}, "controller 3001 has not registered"),
        ({3001: registration(3001)}, "Controller 3001 only supports versions 17-21"),
        ({3001: without_limits(3001, ()), LEFT: registration()}, None),
    ],
    ids=["unregistered", "old", "who left does not count"],
)
async def test_automatic_metadata_version_upgrades_stop_at_levels_of_voters(
    registered: dict[int, ControllerRegistrationRequest], why: str | None
) -> None:
    """A Kafka controller ends if it replays a level that it does not support."""
    supported = (SupportedFeature(OLD, 17, METADATA_VERSION_MAX),)
    broker = Broker(BrokerId(1), 1, "i", None, (), fenced=False, features=supported)
    cluster = Cluster(brokers={BrokerId(1): broker}, features=features_at(19))
    controller: Any = Mock(stamps=Mock())
    replication: Any = SimpleNamespace(
        quorum=SimpleNamespace(others=[SimpleNamespace(id=3001)]),
        registered=Mock(all=AsyncMock(return_value={key: controller_record(each) for key, each in registered.items()})),
    )
    projector: Any = Mock(mark=Mock(adopted=False))
    brokers = KraftBrokers(projector, Mock(), replication, load_settings(), None, lambda: 0.0)
    brokers._controller, brokers.membership = controller, Mock(cluster=cluster)
    with capture_logs() as logged:
        await brokers._raise_features()
    assert [each["why"].partition(",")[0] for each in logged] == ([] if why is None else [why])
    commands = [each.args[0] for each in controller.submit_internal.call_args_list]
    assert [isinstance(each, ChangeFeatures) for each in commands] == ([True] if why is None else [])


NEVER = 3010
UNREGISTER = ApiKey.UNREGISTER_CONTROLLER


async def registered(seat: Seat, *node_ids: int) -> None:
    records = [(None, encode_record(kinds.RegisterControllerRecord(controller_id=each))) for each in node_ids]
    await asyncio.wait_for(seat.running.committed(seat.running.append(records)), PATIENCE_S)


def handler(seat: Seat, level: int = 33) -> Any:
    api = cast("ControllerApi", Mock(cluster=Cluster(features=((METADATA_VERSION_FEATURE, level),))))
    handle = partial(unregister_controller, seat.running, RegisteredControllers(seat.log), asyncio.Lock())
    return bound(api, {UNREGISTER: handle})[UNREGISTER]


async def unregister(handle: Any, node_id: int) -> UnregisterControllerResponse:
    context = RequestContext(UNREGISTER, 0)
    return await asyncio.wait_for(handle(context, UnregisterControllerRequest(controller_id=node_id)), PATIENCE_S)


def removals(seat: Seat) -> list[int]:
    records = (decode_record(v) for batch in seat.log.batches() if not batch.is_control for _, v in batch.records)
    return [each.controller_id for each in records if isinstance(each, kinds.UnregisterControllerRecord)]


async def test_a_controller_registration_is_removed_once(tmp_path: Path) -> None:
    async with quorum(tmp_path, 1) as (seat,):
        await registered(seat, LEFT, LEFT + 10)
        handle = handler(seat)
        answers = await asyncio.gather(*(unregister(handle, LEFT) for _ in range(5)))
        codes = sorted(each.error_code for each in answers)
        assert codes == [0, *[ErrorCode.CONTROLLER_ID_NOT_REGISTERED] * 4], (
            "a second removal record would end a Kafka controller"
        )
        assert removals(seat) == [LEFT]
        await registered(seat, LEFT)
        assert (await unregister(handle, LEFT)).error_code == 0
        assert removals(seat) == [LEFT, LEFT]
        image = MetadataImage()
        image.fold(seat.log.batches())
        left = [each.controller_id for each in image.all(kinds.RegisterControllerRecord)]
        assert left == [LEFT + 10], "the image must have no other registration"


@pytest.mark.parametrize(
    ("level", "node_id", "code", "message"),
    [
        (33, NEVER, 136, f"Controller ID {NEVER} is not currently registered."),
        (32, LEFT, 35, "The current MetadataVersion is too old to support controller unregistration."),
        (33, None, 42, "Controller cannot unregister itself while it is active."),
    ],
)
async def test_a_rejected_unregister_controller_writes_no_record(
    tmp_path: Path, level: int, node_id: int | None, code: int, message: str
) -> None:
    async with quorum(tmp_path, 1) as (seat,):
        await registered(seat, LEFT, seat.id)
        answer = await unregister(handler(seat, level), seat.id if node_id is None else node_id)
        assert (answer.error_code, answer.error_message) == (code, message)
        assert removals(seat) == []
