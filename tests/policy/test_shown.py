"""What policies are shown of a create: counts as they will be, or the assignment, and no defaults among the configs."""

from __future__ import annotations

import pytest

from controller.machine.commands.commands import CreateTopic
from controller.policy import RequestMetadata
from controller.policy.chain import request_metadata
from tests.machine.tables import command, given

Assigned = dict[int, tuple[int, ...]] | None
Configs = dict[str, str]
GIVEN = "1@x 2@y 3@z count=2 factor=3"


@pytest.mark.parametrize(
    ("line", "counts", "assigned", "configs"),
    [
        ("create a -1x-1", (2, 3), None, {}),
        ("create a 5x1 conf=retention.ms=5", (5, 1), None, {"retention.ms": "5"}),
        ("create a on=0:1.2,1:2.1", (None, None), {0: (1, 2), 1: (2, 1)}, {}),
    ],
)
def test_what_is_shown(line: str, counts: tuple[int | None, int | None], assigned: Assigned, configs: Configs) -> None:
    rig = given(GIVEN)
    create = command(rig, line)
    assert isinstance(create, CreateTopic)
    assert request_metadata(create, rig.state.cluster.settings) == RequestMetadata(
        topic="a",
        num_partitions=counts[0],
        replication_factor=counts[1],
        replicas_assignments=assigned,
        configs=configs,
        principal=create.principal,
        client_id=create.client_id,
    )
