"""The operations that an answer lists as authorized, as bit fields of Kafka's AclOperation codes (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterable

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(operations: Iterable[int]) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits((READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS))
"""All that can be done to a topic."""
CLUSTER_OPERATIONS = _bits((CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE))
"""All that can be done to a cluster."""
