"""What of a create is shown to policies."""

from __future__ import annotations

from controller.machine import validation
from controller.machine.commands.commands import CreateTopic
from controller.machine.state import Settings
from controller.policy.interface import RequestMetadata


def as_policies_see_it(command: CreateTopic, settings: Settings) -> RequestMetadata:
    """What KIP-108 shows to a policy: the resolved counts, or the manual assignment, and the configs of the request."""
    manual = {one.partition: tuple(map(int, one.replicas)) for one in command.assignments} or None
    return RequestMetadata(
        topic=command.topic,
        num_partitions=None if manual else validation.resolved_partitions(command, settings),
        replication_factor=None if manual else validation.resolved_factor(command, settings),
        replicas_assignments=manual,
        configs={name: value for name, value in command.configs if value is not None},
        principal=command.principal,
        client_id=command.client_id,
    )
