"""The dependencies of a worker's engine and of its partition leaders, which the process or a simulation supplies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from controller.access.refusals import Stamps
from controller.brokers.port import Brokers
from controller.policy.chain import PolicyJudge
from controller.settings.load import ServeSettings
from controller.stream.log.partition import PartitionState
from controller.stream.log.topics import Topics
from controller.stream.log.transport import Transport
from controller.stream.worker.partition_decider import Fault, RequestCommand, Sourced
from events.catalog import Configs, Recorded
from events.logs.tree_heads import HeadSigner

MakeBrokers = Callable[[PartitionState], Brokers]
"""The brokers of one partition, as its owner sees them."""


class Watcher(Protocol):
    """Receives the engine's reports, for log lines and metrics."""

    def claimed(self, partition: int, epoch: int, read: int, seconds: float) -> None: ...
    def committed(self, commands: int, records: Sequence[Recorded], seconds: float) -> None: ...
    def skipped(self, fault: Fault) -> None: ...
    def duplicate(self, sourced: Sourced, command: RequestCommand) -> None: ...
    def lost(self, why: str) -> None: ...


class WorkerContext(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of a worker's engine, and of the leaders of its partitions."""

    data: Path
    topics: Topics
    writer: str
    """Unique to the process."""
    release: str
    where: str
    """The name of the process in messages for people."""
    settings: ServeSettings
    decision_settings: Configs
    """The settings that decisions depend on."""
    connect: Callable[[], Transport]
    clock: Callable[[], float]
    clock_ms: Callable[[], int]
    stamps: Stamps
    """The source of request ids."""
    watcher: Watcher
    on_failure: Callable[[BaseException], None]
    """Called with the exception after a bug: the process must end."""
    make_brokers: MakeBrokers
    judge: PolicyJudge | None = None
    signer: HeadSigner | None = None
    """Signs tree heads and archives; None without a key."""
    rules: str | None = None
    """The text of the rules file; None without one."""
