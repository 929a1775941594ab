"""Simulated brokers of a partition that confirm metadata later, by a command, as with a target cluster."""

from collections.abc import Sequence

from controller.machine.commands.commands import AnyCommand
from controller.stream.worker.owner_tasks import PartitionBrokers
from events.catalog import Recorded


class LaterBrokers(PartitionBrokers):
    """Brokers that confirm applied metadata only after `on_events`."""

    def immediate_commands(self, records: Sequence[Recorded]) -> Sequence[AnyCommand]:
        return ()
