"""The hook through which a permission is asked (KIP-4 rule 3, KIP-11).

Until an authorizer is set everything is allowed. The front asks before a command is made and stamps the answer on it,
so that a refusal is decided, answered and logged like any other.
"""

from __future__ import annotations

from typing import Literal, Protocol

Operation = Literal["Create", "Alter", "Delete", "AlterConfigs", "DescribeConfigs", "Describe", "ClusterAction"]
ResourceType = Literal["Cluster", "Topic"]

CLUSTER_NAME = "kafka-cluster"
"""The name of the one cluster resource, as Kafka has it."""


class Authorizer(Protocol):
    """Who may do what."""

    def allows(self, principal: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the principal may do this to the resource."""
        ...


class AllowAll:
    """No authorizer: everybody may do everything, as in Kafka without `authorizer.class.name`."""

    def allows(self, principal: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """True."""
        return True
