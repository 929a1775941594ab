"""What a worker shows of itself: log lines, metrics, and whether it is ready to decide.

The engine reports to it (`engine.Watcher`), and `look` asks Kafka now and then how far commands are, which also shows
whether Kafka answers at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import structlog

from controller.engine.faults import LogRateLimiter, place_of, trace_of
from controller.engine.reports import Reports
from controller.stream.log.transport import KafkaTrouble
from controller.stream.worker.duties import PartitionDuties
from controller.stream.worker.engine import Engine
from controller.stream.worker.partition_decider import Copy, Fault
from events.catalog import Recorded

LOOK_EVERY_S = 2.0  # of figures for people
LOOK_TIMEOUT_S = 5.0
"""How long Kafka may take to answer a look before it counts as lost."""


class WorkerStatus:
    """Implements `engine.Watcher`. `doing` is why nothing can be decided, as far as the worker itself knows; None while
    its partitions are claimed."""

    def __init__(self, reports: Reports) -> None:
        self.doing: str | None = "starting"
        self._reports = reports
        self._log = structlog.get_logger("topicwright")
        self._log_limiter = LogRateLimiter()
        self._engine: Engine | None = None
        self._duties: PartitionDuties | None = None
        self._unreachable: str | None = None
        self._claims = self._commands = self._faults = self._copies = self._losses = 0
        self._ends: dict[int, int] = {}
        """The offset of the next command of each owned partition, as of the last look."""

    def show(self, engine: Engine, duties: PartitionDuties) -> None:
        """What is shown from now on."""
        self._engine, self._duties = engine, duties

    def why_not_ready(self) -> str | None:
        """Why nothing can be decided now; None when it can."""
        trouble = self._duties.trouble if self._duties is not None else None
        return self.doing or self._unreachable or (trouble and f"the cluster cannot be reached: {trouble}")

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        """The metrics, each with what it says."""
        active = [] if self._engine is None else sorted(self._engine.active)
        behind = 0
        for partition in active:
            assert self._engine is not None
            behind += max(0, self._ends.get(partition, 0) - self._engine.next_source(partition))
        yield "ready", "1 when commands are decided.", float(self.why_not_ready() is None)
        yield "partitions_owned", "Partitions that this worker decides.", len(active)
        yield "commands_decided", "Commands decided since the start.", self._commands
        yield "commands_passed_over", "Commands that could not be decided, and are recorded as faults.", self._faults
        yield "commands_duplicate", "Commands passed over as copies of one decided a short time before.", self._copies
        yield "commands_behind", "Commands that wait, as of the last look, every 2 s.", behind
        paused = 0 if self._duties is None else self._duties.not_archived
        yield "partitions_not_archived", "Owned partitions whose archive cannot be written now.", paused
        yield "claims", "Partitions taken over since the start.", self._claims
        yield "losses", "Times that partitions were lost and claimed anew.", self._losses

    async def look(self, engine: Engine) -> None:
        """Look at Kafka until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                for partition in sorted(engine.active) or [0]:
                    _, end = await asyncio.wait_for(engine.transport.commands_range(partition), LOOK_TIMEOUT_S)
                    self._ends[partition] = end
                self._unreachable = None
            except (KafkaTrouble, TimeoutError) as error:
                why = f"Kafka does not answer: {error or 'no answer in time'}"
                if self._unreachable is None:
                    self._log.warning("Kafka lost", why=why)
                self._unreachable = why

    # --- what the engine reports

    def claimed(self, partition: int, epoch: int, read: int, seconds: float) -> None:
        """A partition is ours."""
        self._claims += 1
        self._log.info("partition claimed", partition=partition, epoch=epoch, read=read, ms=round(seconds * 1000))

    def committed(self, commands: int, records: Sequence[Recorded], seconds: float) -> None:
        """Decisions are in Kafka."""
        self._commands += commands
        self._reports.committed(commands, len(records), seconds)
        self._reports.decided(records)

    def passed_over(self, fault: Fault) -> None:
        """A poison command is recorded as one. Of those alike one a minute has a log line."""
        self._faults += 1
        error = fault.error
        suppressed = self._log_limiter.passes(fault.partition if error is None else place_of(error))
        if suppressed is not None:
            self._log.error(
                "command passed over",
                partition=fault.partition,
                offset=fault.offset,
                why=fault.why,
                suppressed=suppressed,
                trace=None if error is None else trace_of(error),
            )

    def decided_before(self, copy: Copy) -> None:
        """A command was in Kafka twice, and counted once."""
        self._copies += 1
        self._log.info(
            "duplicate command passed over",
            partition=copy.partition,
            offset=copy.offset,
            command=copy.what,
            request=copy.request_id,
            topic=copy.topic,
        )

    def lost(self, why: str) -> None:
        """The partitions are to be claimed anew."""
        self._losses += 1
        self.doing = f"partitions are claimed anew: {why}"
        self._log.warning("partitions lost, to be claimed anew", why=why)
