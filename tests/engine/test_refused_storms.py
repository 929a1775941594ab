"""Floods of refused requests write a bounded number of events, and the controller counts each request."""

from typing import Any

import pytest

from controller.access.refusals import INTERVAL_S, RECORDED_BYTES_MAX
from controller.machine.errors import ErrorCode
from events.access import RequestsRefused
from events.catalog import CreateRejected
from tests.engine.stage import Stage, codes
from tests.simulation.virtual_time import on_virtual_time

MANY = 60
HUGE = "x" * 200_000
STORMS: dict[str, tuple[list[str], dict[str, Any], ErrorCode]] = {
    "names that no topic can have": (
        [f"{number}{'n' * 10_000}" for number in range(20)],
        {},
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ),
    "the same names": (["n" * 200_000], {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "config values": (["t"], {"configs": (("cleanup.policy", HUGE),)}, ErrorCode.INVALID_CONFIG),
    "config names": (["t"], {"configs": ((HUGE, "1"),)}, ErrorCode.INVALID_CONFIG),
    "very many configs": (
        ["t"],
        {"configs": tuple((f"c{number}", "v" * 100) for number in range(2_000))},
        ErrorCode.INVALID_CONFIG,
    ),
    "client ids": (["t"], {"replication_factor": 9, "client_id": HUGE}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "who is not allowed": (
        [f"t{number}" for number in range(100)],
        {"configs": (("a", HUGE),), "denied": 29},
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    "who is not allowed, and says it twice": (
        [f"t{number}" for number in range(100)],
        {"configs": (("a", HUGE),), "denied": 29, "duplicate": True},
        ErrorCode.INVALID_REQUEST,
    ),
}


@pytest.mark.parametrize("storm", STORMS.values(), ids=STORMS)
@on_virtual_time
async def test_refused_requests_write_a_bounded_number_of_events(
    storm: tuple[list[str], dict[str, Any], ErrorCode],
) -> None:
    names, fields, code = storm
    stage = await Stage().start()
    begin = len(stage.records())
    for _ in range(MANY):
        assert set(codes(await stage.create(*names, **fields))) == {code}
    await stage.settle(INTERVAL_S + 1)
    added = list(stage.disk.kept.read())[begin:]
    assert sum(len(value) for _, value in added) < RECORDED_BYTES_MAX
    assert max(len(value) for _, value in added) < 10_000
    counted = sum(event.count for event in stage.events(RequestsRefused))
    assert len(stage.events(CreateRejected)) + counted == MANY * len(names), "every request is counted"
    await stage.controller.stop()
