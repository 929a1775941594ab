"""What a driver is: the part of a worker that is assigned partitions by a consumer group and feeds their commands.

Two of them, over one engine: `driver_faust` and `driver_plain`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from controller.brokers.cluster.security import Security
from controller.stream.log.transport import NO_SECURITY

RETRY_S = 1.0
"""How long to wait before partitions that were lost are claimed anew: for Kafka to come back, or for the group to
assign them to somebody else."""
COMMANDS_PER_BATCH_MAX = 500  # one commit; the loop serves others in between


class Group(msgspec.Struct, frozen=True):
    """The consumer group that shares the partitions of the commands topic out to workers."""

    bootstrap: str
    group_id: str
    topic: str
    partitions: int
    session_timeout_ms: int
    security: Security = NO_SECURITY

    @property
    def heartbeat_ms(self) -> int:
        """How often a worker says that it lives: several times in a session, so that one may be missed."""
        return max(100, self.session_timeout_ms // 6)


class DriverEnded(Exception):
    """What feeds commands has given up; the worker is to be started again."""


class Driver(Protocol):
    """Runs an engine. What `run` raises ends the process: to go on could lose a command."""

    async def run(self, stopping: asyncio.Event, on_claimed: Callable[[], None]) -> None:
        """Join the group, and feed the engine until `stopping` is set; then leave the group in order.

        `on_claimed` is called each time when all assigned partitions are claimed.
        """
        ...

    def claim_anew(self) -> None:
        """The partitions are to be claimed anew: commands that the worker itself put were not taken."""
        ...
