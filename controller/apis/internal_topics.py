"""The topics that Kafka's brokers keep their own records in, with what `AutoTopicCreationManager` creates them with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from events.values import Configs

PARTITIONS: Final = 50
FACTOR: Final = 3
_MIN_ISR: Final = ("min.insync.replicas", "2")
_SEGMENT_BYTES: Final = ("segment.bytes", "104857600")

INTERNAL_TOPICS: Final[Mapping[str, Configs]] = {
    "__consumer_offsets": (("cleanup.policy", "compact"), ("compression.type", "producer"), _SEGMENT_BYTES),
    "__transaction_state": (
        ("cleanup.policy", "compact"),
        ("compression.type", "uncompressed"),
        _MIN_ISR,
        _SEGMENT_BYTES,
        ("unclean.leader.election.enable", "false"),
    ),
    "__share_group_state": (
        ("cleanup.policy", "delete"),
        ("compression.type", "producer"),
        _MIN_ISR,
        ("retention.ms", "-1"),
        _SEGMENT_BYTES,
    ),
}
"""By name, the configs of each."""
