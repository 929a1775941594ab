"""The topic in which fronts announce themselves: made where it is missing, and kept short.

Only its last seconds matter, so records are dropped after a while, and nothing is lost with the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it does not say so

from controller.runtime.stream.topics import REPLICAS_UNASKED_MAX, TIMEOUT_S, KafkaUnreachable, TopicsMismatch

KEPT_MS = 3_600_000


def prepare_fronts_topic(properties: Mapping[str, Any], name: str, replication_factor: int) -> None:
    """Make the topic if it is missing; a factor of -1 leaves it to the number of brokers. It blocks.

    Raises KafkaUnreachable, TopicsMismatch.
    """
    admin = AdminClient(dict(properties))
    try:
        there = admin.list_topics(timeout=TIMEOUT_S)
    except KafkaException as error:
        raise KafkaUnreachable(f"Kafka does not answer: {error.args[0].str()}") from error
    if name in there.topics:
        return
    factor = replication_factor if replication_factor > 0 else min(REPLICAS_UNASKED_MAX, len(there.brokers))
    configs = {"cleanup.policy": "delete", "retention.ms": str(KEPT_MS), "segment.ms": str(KEPT_MS)}
    made = admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=factor, config=configs)])
    try:
        made[name].result(TIMEOUT_S + 1)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise TopicsMismatch(f"topic {name} cannot be made: {error.args[0].str()}") from error
