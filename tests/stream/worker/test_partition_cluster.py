"""How long the cluster may take for its word, while a partition's other commands wait."""

from __future__ import annotations

import pytest

from controller.machine.commands.commands import DeleteTopic
from controller.stream.worker.partition_brokers import dry_run_within_s
from events.names import RequestId, TopicName
from tests.stream.log.records import create


@pytest.mark.parametrize(
    ("timeouts_ms", "within_s"),
    [((), 5), ((0,), 5), ((-1,), 5), ((3_000,), 5), ((12_000,), 12), ((1_000, 20_000), 20), ((3_600_000,), 30)],
)
def test_as_long_as_the_most_patient_client_waits_within_bounds(timeouts_ms: tuple[int, ...], within_s: float) -> None:
    creates = [create(f"t{place}", timeout_ms=timeout_ms) for place, timeout_ms in enumerate(timeouts_ms)]
    delete = DeleteTopic(request_id=RequestId("d"), at_ms=0, topic=TopicName("d"))
    assert dry_run_within_s([*creates, delete]) == within_s
