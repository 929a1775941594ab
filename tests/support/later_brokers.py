"""Simulated brokers of a partition that say nothing at once: a create waits for a command, as beside a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from controller.machine.commands.commands import AnyCommand
from controller.stream.worker.owner_tasks import PartitionBrokers
from events.catalog import Recorded


class LaterBrokers(PartitionBrokers):
    """Confirm what they have applied, when they have learned of it."""

    def immediate_commands(self, records: Sequence[Recorded]) -> Sequence[AnyCommand]:
        return ()
