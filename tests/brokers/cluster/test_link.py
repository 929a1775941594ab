"""Requests to the target cluster: their size, and the broker that they go to."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # it does not say that it exports this

from controller.brokers.cluster.link import ClusterLink, split_by_limit
from controller.brokers.cluster.security import Security
from tests.support.reference_kafka import ReferenceKafka


@pytest.mark.parametrize(
    ("partitions", "together"),
    [
        ([], []),
        ([1, 2, 3], [3]),
        ([6000, 6000], [1, 1]),
        ([4999, 4999], [2]),
        ([5000, 5000], [1, 1]),  # the two topics are records too
        ([9999, 1], [1, 1]),
        ([20_000], [1]),
        ([1, 20_000, 1], [1, 1, 1]),
        ([3000] * 7, [3, 3, 1]),
    ],
)
def test_topics_are_split_into_requests_within_kafkas_limit(partitions: list[int], together: list[int]) -> None:
    topics = [NewTopic(f"t{number}", replica_assignment=[[1]] * count) for number, count in enumerate(partitions)]
    requests = split_by_limit(topics)
    assert [len(each) for each in requests] == together
    assert [topic for each in requests for topic in each] == topics, "all of them, in their order"


def test_configs_count_towards_the_limit() -> None:
    topics = [NewTopic(name, replica_assignment=[[1]] * 4999, config={"retention.ms": "1"}) for name in ("a", "b")]
    assert [len(each) for each in split_by_limit(topics)] == [1, 1]


async def test_the_broker_that_was_named_as_the_controller_dies(kafka: ReferenceKafka, name: str) -> None:
    """Kafka names any broker as the controller; here that broker dies before the first request."""
    for number in range(100):
        link = ClusterLink(kafka.bootstrap, Security())
        before = link._admin.list_topics(timeout=10).controller_id
        assert await link.create([NewTopic(f"{name}-{number}", 1, 1)]) == {f"{name}-{number}": None}
        if before != 3 and link._admin.list_topics(timeout=10).controller_id == 3:
            break
        link.close()
    kafka.stop_broker(3)
    try:
        assert await link.create([NewTopic(name, 1, 1)]) == {name: None}
    finally:
        kafka.start_broker(3)
        link.close()
