"""Creates on their way to the policies and back.

What a policy is shown is KIP-108's RequestMetadata; a create comes back as an ask of the moment at which it was judged,
so that the time of the log never goes back.
"""

from __future__ import annotations

from msgspec.structs import replace

from controller.machine import validation
from controller.machine.commands import CreateTopic
from controller.machine.state import Settings
from controller.policy import RequestMetadata


def put_again(command: CreateTopic, now_ms: int) -> CreateTopic:
    """The command as of now: the time that its policies took is gone from its timeout, and its deadline stays."""
    if command.timeout_ms <= 0:
        return replace(command, at_ms=now_ms)
    return replace(command, at_ms=now_ms, timeout_ms=max(0, command.at_ms + command.timeout_ms - now_ms))


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
