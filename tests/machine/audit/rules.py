"""The commands that the auditor knows."""

from __future__ import annotations

from events.catalog import (
    ChangeRejected,
    CreateRejected,
    CreateRequested,
    PartitionsAdded,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from tests.machine.audit.auditor_cluster import ACCESS_COMMANDS

COMMANDS = {
    "CreateTopic", "CreatePartitions", "DeleteTopic", "AlterTopicConfigs", "RegisterBroker", "UnregisterBroker",
    "FenceBroker", "UnfenceBroker", "ReconcileTopics", "AlterPartition", "ConfirmMetadata",
    "ExpireRequest", "ChangeSettings", "RecordHead", "DiscoverTopic", "DiscoverDeletion", "RefuseCreation",
    "FinishChange", "ChangeLogDirs", *ACCESS_COMMANDS,
}  # fmt: skip

BROKER_COMMANDS = {"RegisterBroker", "UnregisterBroker", "FenceBroker", "UnfenceBroker", "ChangeLogDirs"}
DECISIONS = (
    CreateRequested
    | CreateRejected
    | TopicCreated
    | PartitionsAdded
    | TopicDeleted
    | TopicConfigsChanged
    | ChangeRejected
)
"""Events that a request leads to by itself."""
