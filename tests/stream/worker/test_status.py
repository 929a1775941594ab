"""What a worker says of commands that it passes over."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from controller.engine.reports import Reports
from controller.stream.worker.partition_decider import Fault
from controller.stream.worker.status import WorkerStatus
from tests.engine.stage import Heard
from tests.simulation.virtual_time import on_virtual_time


def raised(offset: int) -> Fault:
    try:
        raise ZeroDivisionError("x" * 1_000_000)
    except ZeroDivisionError as error:
        return Fault(0, offset, "CreateTopic of request r: ZeroDivisionError", error)


@on_virtual_time
async def test_of_faults_alike_one_a_minute_has_a_line_and_all_are_counted() -> None:
    with capture_logs() as lines:
        heard = Heard()
        status = WorkerStatus(Reports(heard, heard.write, heard))
        for offset in range(300):
            status.passed_over(raised(offset))
            status.passed_over(Fault(offset % 2, offset, "not a command"))
        assert [(line["offset"], line["partition"]) for line in lines] == [(0, 0), (0, 0), (1, 1)]
        assert sum(len(str(line)) for line in lines) < 20_000
        await asyncio.sleep(61)
        status.passed_over(raised(300))
        assert lines[-1]["suppressed"] == 299
    counts = {name: value for name, _, value in status.gauges()}
    assert counts["commands_passed_over"] == 601
