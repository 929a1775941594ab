"""The auditor's rules by name, and the commands that it knows.

Rules that the product's invariants also have share their names, and both find the same planted faults.
"""

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

CHECKS = {
    "offsets-contiguous": "offsets are contiguous, from 0 on",
    "settings-first": "the first event is SettingsChanged",
    "one-creation-per-life": "a topic is created once before it is deleted, and no other has its shard key",
    "topic-exists": "no event concerns a topic that does not exist",
    "one-answer": "each create request is answered exactly once for each of its topics, unless it still waits",
    "none-after-ready": "NONE is answered only after TopicReady",
    "timeout-when-due": "REQUEST_TIMED_OUT is answered only at or after the deadline",
    "answer-as-decided": "a rejected create is answered with the code and message of its rejection",
    "replicas-distinct": "no partition has a replica twice",
    "leader-in-isr": "the leader is in the in-sync set, the set within the replicas, no placeholder in either",
    "replicas-live": "replicas are placed on live brokers, and assigned by hand to registered ones",
    "epochs-never-go-back": "the partition epoch rises by one with each change, the leader epoch with each leader",
    "partitions-never-fall": "partitions are appended after the last one",
    "as-asked": "partitions, factor and replicas are what was requested, or the defaults",
    "placeholders-allowed": "placeholders come only while allowed and with enough live brokers",
    "placeholders-filled": "a placeholder is filled by a live broker that is no replica yet, as soon as there is one",
    "created-as-asked": "a topic comes only of a request that was recorded and not rejected",
    "rejected-with-rule": "what is rejected names a rule and an error",
    "leaders-unfenced": "a leader is elected among live brokers",
    "led-when-possible": "no partition is without a leader while a member of its in-sync set is live",
    "ready-is-true": "a topic becomes ready once, with live leaders, and known to every live broker",
    "cause-exists": "each event is caused by a command, and that of a create by a recorded request",
    "broker-life": "brokers are registered before they are fenced or unfenced; their epochs rise",
}

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

OF_THE_AUDITOR = ("answer-as-decided", "broker-life")
"""The rules that the product's invariants do not have."""
