"""Controllers that left and are registered: a leader of Topicwright counts them as Kafka's does, and frees them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest
from structlog.testing import capture_logs

from controller.apis.kraft.features import UpdateFeaturesHandler
from controller.apis.kraft.quorum import ControllerRegistrationHandler
from controller.brokers.kraft.features import METADATA_VERSION_MAX, features_at
from controller.brokers.kraft.kraft_brokers import Checks, KraftOptions
from controller.brokers.kraft.log.batches import decode_batches, encode_batch
from controller.brokers.kraft.log.metadata_codec import encode_record
from controller.brokers.kraft.log.metadata_records import NoOpRecord
from controller.brokers.kraft.quorum.raft.log import SnapshotId
from controller.brokers.kraft.quorum.raft.voters import Listener, Voter
from controller.brokers.kraft.quorum.registered import (
    LEVEL_MAX,
    Registered,
    RegisteredControllers,
    fold,
    limits,
    without_limits,
)
from controller.brokers.kraft.registration import controller_record, controller_registration
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages.cluster import ControllerRegistrationRequest, FeatureUpdateKey, UpdateFeaturesRequest
from controller.kafka.messages.message import Feature
from controller.machine.commands.commands import ChangeFeatures
from controller.machine.errors import ErrorCode
from controller.machine.state import Broker, Cluster
from events.catalog import SupportedFeature
from events.names import BrokerId
from tests.brokers.kraft.desks import Desk, alone
from tests.brokers.kraft.quorum.logs import kept, opened, snapshot

LEFT = 3009
OLD = "metadata.version"


def registration(node_id: int = LEFT, highest: int = 21) -> ControllerRegistrationRequest:
    """Of a controller that supports metadata.version up to a level, and nothing else."""
    voter = Voter(node_id, b"d" * 16, (Listener("CONTROLLER", "127.0.0.1", 1),))
    request = controller_registration(voter, b"i" * 16, 0)
    feature = Feature(name=OLD, min_supported_version=17, max_supported_version=highest)
    return msgspec.structs.replace(request, features=(feature,))


def record(node_id: int = LEFT, highest: int = 21) -> tuple[None, bytes]:
    return None, encode_record(controller_record(registration(node_id, highest)))


def unregistered(node_id: int) -> tuple[None, bytes]:
    """The record of Kafka 4.4 (KIP-1312)."""
    return None, b"\1\x1d\0" + node_id.to_bytes(4, "big") + b"\0"


def highest(registered: Registered) -> dict[int, int]:
    return {node_id: each.features[0].max_supported_version for node_id, each in registered.items()}


def test_the_newest_registration_counts_until_it_is_removed() -> None:
    found: Registered = {}
    records = record(1), record(2), (None, encode_record(NoOpRecord())), record(1, 30), unregistered(2), unregistered(7)
    fold(found, decode_batches(encode_batch(0, 1, 5, records)))
    assert highest(found) == {1: 30}


def test_a_controller_that_left_is_registered_without_limits() -> None:
    found = controller_record(registration())
    assert limits(found, ("metadata.version", "new.version", "topicwright.priority")) == {OLD: 21, "new.version": 0}
    freed = without_limits(LEFT, ("new.version", "topicwright.priority"))
    assert freed.listeners == (), "clients that look for controllers are not sent there"
    assert {(each.min_supported_version, each.max_supported_version) for each in freed.features} == {(0, LEVEL_MAX)}
    assert limits(controller_record(freed), ("metadata.version", "new.version", "group.version")) == {}
    assert freed.incarnation_id != registration().incarnation_id, "one that runs registers again"


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
    """What a request to raise metadata.version is answered."""
    api = cast("ControllerApi", Mock(cluster=Cluster(), grants=lambda *_: True))
    update = FeatureUpdateKey(feature=OLD, max_version_level=level, upgrade_type=1)
    request = UpdateFeaturesRequest(feature_updates=(update,), validate_only=True)
    answer = await UpdateFeaturesHandler(api, desk.node, desk.replication.registered)(RequestContext(57, 2), request)
    return answer.error_code, answer.error_message


async def test_a_topicwright_leader_rejects_the_same_levels_as_kafka_and_unblocks_nodes_that_left(
    tmp_path: Path,
) -> None:
    async with alone(tmp_path) as desk:
        register = ControllerRegistrationHandler(desk.node, desk.replication.registered)

        async def registers(request: ControllerRegistrationRequest) -> int:
            return (await register(RequestContext(70, 0), request)).error_code

        assert await registers(registration()) == ErrorCode.INVALID_REQUEST, "nobody knows that node"
        assert await raised(desk, 21) == (0, None)
        await desk.node.committed(desk.node.append([record(), record(desk.seat.id, 19)]))  # its own does not count
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
async def test_metadata_version_is_not_raised_by_itself_past_what_voters_support(
    registered: dict[int, ControllerRegistrationRequest], why: str | None
) -> None:
    """A Kafka controller that does not support a level ends when it replays the record."""
    supported = (SupportedFeature(OLD, 17, METADATA_VERSION_MAX),)
    broker = Broker(BrokerId(1), 1, "i", None, (), fenced=False, features=supported)
    cluster = Cluster(brokers={BrokerId(1): broker}, features=features_at(19))
    controller: Any = Mock(stamps=Mock())
    replication: Any = SimpleNamespace(
        quorum=SimpleNamespace(others=[SimpleNamespace(id=3001)]),
        registered=Mock(all=AsyncMock(return_value={key: controller_record(each) for key, each in registered.items()})),
    )
    membership: Any = Mock(cluster=cluster)
    checks = Checks(controller, replication, membership, KraftOptions(session_timeout_ms=1), lambda: False)
    with capture_logs() as logged:
        await checks._raise_features()
    assert [each["why"].partition(",")[0] for each in logged] == ([] if why is None else [why])
    commands = [each.args[0] for each in controller.submit_internal.call_args_list]
    assert [isinstance(each, ChangeFeatures) for each in commands] == ([True] if why is None else [])
