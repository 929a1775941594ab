"""A worker's log lines, metrics and readiness.

The engine reports to it (`engine.Watcher`), and `poll` asks Kafka regularly for the ends of the commands partitions,
which also shows whether Kafka answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import structlog

from controller.engine.faults import LogRateLimiter, place_of, trace_of
from controller.engine.reports import Reports
from controller.stream.log.transport import KafkaUnavailable
from controller.stream.worker.engine import Engine
from controller.stream.worker.owner_tasks import OwnerTasks
from controller.stream.worker.partition_decider import Duplicate, Fault
from events.catalog import Recorded

POLL_INTERVAL_S = 2.0  # of figures for people
POLL_TIMEOUT_S = 5.0
"""Kafka counts as lost if it does not answer a poll in this time."""


class WorkerStatus:
    """Implements `engine.Watcher`. `doing` says why nothing is decided, as far as the worker knows; None while its
    partitions are claimed."""

    def __init__(self, reports: Reports) -> None:
        self.doing: str | None = "starting"
        self._reports = reports
        self._log = structlog.get_logger("topicwright")
        self._log_limiter = LogRateLimiter()
        self._engine: Engine | None = None
        self._tasks: OwnerTasks | None = None
        self._unreachable: str | None = None
        self._claims = self._commands = self._faults = self._copies = self._losses = 0
        self._ends: dict[int, int] = {}
        """The offset of the next command of each owned partition, as of the last poll."""

    def show(self, engine: Engine, tasks: OwnerTasks) -> None:
        """Show these from now on."""
        self._engine, self._tasks = engine, tasks

    def why_not_ready(self) -> str | None:
        """Why nothing is decided; None if commands are decided."""
        error = self._tasks.error if self._tasks is not None else None
        return self.doing or self._unreachable or (error and f"the cluster cannot be reached: {error}")

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        active = [] if self._engine is None else sorted(self._engine.active)
        behind = 0
        for partition in active:
            assert self._engine is not None
            behind += max(0, self._ends.get(partition, 0) - self._engine.next_source(partition))
        yield "ready", "1 when commands are decided.", float(self.why_not_ready() is None)
        yield "partitions_owned", "Partitions that this worker decides.", len(active)
        yield "commands_decided", "Commands decided since the start.", self._commands
        yield "commands_passed_over", "Commands that could not be decided, and are recorded as faults.", self._faults
        yield "commands_duplicate", "Duplicates of recently decided commands, which are skipped.", self._copies
        yield "commands_behind", "Undecided commands, as of the last poll, every 2 s.", behind
        paused = 0 if self._tasks is None else self._tasks.not_archived
        yield "partitions_not_archived", "Owned partitions whose archive cannot be written now.", paused
        yield "claims", "Partitions claimed since the start.", self._claims
        yield "losses", "Times that partitions were lost and claimed again.", self._losses

    async def poll(self, engine: Engine) -> None:
        """Poll Kafka until cancelled."""
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            try:
                for partition in sorted(engine.active) or [0]:
                    _, end = await asyncio.wait_for(engine.transport.commands_range(partition), POLL_TIMEOUT_S)
                    self._ends[partition] = end
                self._unreachable = None
            except (KafkaUnavailable, TimeoutError) as error:
                why = f"Kafka does not answer: {error or 'no answer in time'}"
                if self._unreachable is None:
                    self._log.warning("Kafka lost", why=why)
                self._unreachable = why

    # --- what the engine reports

    def claimed(self, partition: int, epoch: int, read: int, seconds: float) -> None:
        self._claims += 1
        self._log.info("partition claimed", partition=partition, epoch=epoch, read=read, ms=round(seconds * 1000))

    def committed(self, commands: int, records: Sequence[Recorded], seconds: float) -> None:
        self._commands += commands
        self._reports.committed(commands, len(records), seconds)
        self._reports.decided(records)

    def skipped(self, fault: Fault) -> None:
        """Of similar faults one a minute is logged."""
        self._faults += 1
        error = fault.error
        suppressed = self._log_limiter.passes(fault.partition if error is None else place_of(error))
        if suppressed is not None:
            self._log.error(
                "command skipped",
                partition=fault.partition,
                offset=fault.offset,
                why=fault.why,
                suppressed=suppressed,
                trace=None if error is None else trace_of(error),
            )

    def duplicate(self, copy: Duplicate) -> None:
        self._copies += 1
        self._log.info(
            "duplicate command skipped",
            partition=copy.partition,
            offset=copy.offset,
            command=copy.what,
            request=copy.request_id,
            topic=copy.topic,
        )

    def lost(self, why: str) -> None:
        self._losses += 1
        self.doing = f"partitions are being claimed again: {why}"
        self._log.warning("partitions lost, claiming them again", why=why)
