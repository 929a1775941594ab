"""Calls of Kafka APIs with random topics, groups and transactional ids, and the ACLs of those who make them."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.reference.access_table import ALL, ALLOW, ANY_ACL, DELETE, DENY, DESCRIBE, READ, WRITE
from tests.reference.cases import topic

Body = dict[str, Any]
PRINCIPALS = ("nobody", "reader", "almosteverything", "herenot", "clusterreader")
GROUP, TRANSACTIONAL_ID, LITERAL, PREFIXED = 3, 5, 3, 4


def on(kind: int, pattern: int, name: str, operation: int, permission: int = ALLOW) -> Body:
    named = {"resource_type": kind, "resource_pattern_type": pattern, "resource_name": name, "host": "*"}
    return {**named, "operation": operation, "permission_type": permission}


MORE: dict[str, list[Body]] = {
    "reader": [on(GROUP, PREFIXED, "g.", READ), on(TRANSACTIONAL_ID, LITERAL, "tx.one", DESCRIBE)],
    "almosteverything": [
        *(on(GROUP, LITERAL, "*", ALL), on(GROUP, LITERAL, "g.two", READ, DENY)),
        *(on(TRANSACTIONAL_ID, LITERAL, "*", ALL), on(TRANSACTIONAL_ID, PREFIXED, "tx.t", WRITE, DENY)),
    ],
    "herenot": [on(GROUP, LITERAL, "g.one", DESCRIBE), on(TRANSACTIONAL_ID, LITERAL, "tx.two", WRITE)],
    "clusterreader": [on(GROUP, LITERAL, "gone", DELETE)],
}
"""ACLs of groups and transactional ids, in addition to those of the table."""
TOPICS = ("a.one", "a.two", "public", "b", "missing")
GROUPS = ("g.one", "g.two", "other")
IDS = ("tx.one", "tx.two", "else")


class Drawn(NamedTuple):
    """Random names, which a call may have."""

    topics: list[str]
    groups: list[str]
    ids: list[str]

    @property
    def member(self) -> Body:
        of = {"group_id": self.groups[0], "generation_id_or_member_epoch": -1}
        return {**of, "member_id": "", "group_instance_id": None}

    @property
    def resources(self) -> list[Body]:
        return [{"resource_type": 2, "resource_name": name} for name in self.topics]


def drawn(rng: random.Random) -> Drawn:
    return Drawn(*(rng.sample(names, rng.randint(1, len(names))) for names in (TOPICS, GROUPS, IDS)))


DRY = {"timeout_ms": 10_000, "validate_only": True}
COMMITS = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
AT = {"partition_index": 0, "current_leader_epoch": -1}
NOTHING = {**ANY_ACL, "principal_filter": "User:stranger"}
QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "stranger"}],
    "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}],
}
STEP = [{"name": "retention.ms", "config_operation": 0, "value": "5"}]
CALLS: dict[tuple[str, int], Callable[[Drawn], Body]] = {
    ("FindCoordinator", 4): lambda d: {"key_type": 0, "coordinator_keys": d.groups},
    ("FindCoordinator", 5): lambda d: {"key_type": 1, "coordinator_keys": d.ids},
    ("ListGroups", 4): lambda _: {"states_filter": []},
    ("DescribeGroups", 5): lambda d: {"groups": d.groups, "include_authorized_operations": True},
    ("DeleteGroups", 2): lambda _: {"groups_names": ["gone", "g.gone"]},
    ("OffsetFetch", 8): lambda d: {
        "groups": [{"group_id": each, "topics": None} for each in d.groups],
        "require_stable": False,
    },
    ("OffsetCommit", 8): lambda d: {**d.member, "topics": [{"name": name, "partitions": COMMITS} for name in d.topics]},
    ("OffsetDelete", 0): lambda d: {"group_id": d.groups[0], "topics": []},
    ("ListOffsets", 7): lambda d: {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": name, "partitions": [{**AT, "timestamp": -1}]} for name in d.topics],
    },
    ("DeleteRecords", 2): lambda d: {
        "topics": [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]} for name in d.topics],
        "timeout_ms": 10_000,
    },
    ("InitProducerId", 4): lambda d: {
        "transactional_id": d.ids[0],
        "transaction_timeout_ms": 10_000,
        "producer_id": -1,
        "producer_epoch": -1,
    },
    ("EndTxn", 3): lambda d: {
        "transactional_id": d.ids[0],
        "producer_id": 12345,
        "producer_epoch": 0,
        "committed": True,
    },
    ("DescribeTransactions", 0): lambda d: {"transactional_ids": d.ids},
    ("ListTransactions", 0): lambda _: {"state_filters": [], "producer_id_filters": []},
    ("DescribeProducers", 0): lambda d: {"topics": [{"name": name, "partition_indexes": [0]} for name in d.topics]},
    ("DescribeLogDirs", 4): lambda _: {"topics": []},
    ("DescribeQuorum", 1): lambda _: {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    },
    ("ListPartitionReassignments", 0): lambda _: {"timeout_ms": 1000, "topics": None},
    ("ElectLeaders", 2): lambda d: {
        "election_type": 0,
        "topic_partitions": [{"topic": name, "partitions": [0]} for name in d.topics],
        "timeout_ms": 10_000,
    },
    ("DescribeUserScramCredentials", 0): lambda _: {"users": [{"name": "stranger"}]},
    ("AlterUserScramCredentials", 0): lambda _: {"deletions": [{"name": "stranger", "mechanism": 1}], "upsertions": []},
    ("DescribeClientQuotas", 1): lambda _: {"components": [], "strict": False},
    ("AlterClientQuotas", 1): lambda _: {"entries": [QUOTA], "validate_only": True},
    ("DescribeAcls", 3): lambda _: ANY_ACL,
    ("DeleteAcls", 3): lambda _: {"filters": [NOTHING]},
    ("Metadata", 12): lambda d: {
        "topics": [{"name": name} for name in d.topics],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    },
    ("DescribeCluster", 0): lambda _: {"include_cluster_authorized_operations": True},
    ("DescribeTopicPartitions", 0): lambda d: {
        "topics": [{"name": name} for name in sorted(d.topics)],
        "response_partition_limit": 100,
        "cursor": None,
    },
    ("CreateTopics", 7): lambda d: {"topics": [topic(f"new.{name}") for name in d.topics], **DRY},
    ("CreatePartitions", 3): lambda d: {
        "topics": [{"name": n, "count": 3, "assignments": None} for n in d.topics],
        **DRY,
    },
    ("DeleteTopics", 6): lambda _: {
        "topics": [{"name": name, "topic_id": None} for name in ("missing", "a.missing")],
        "timeout_ms": 10_000,
    },
    ("DescribeConfigs", 4): lambda d: {"resources": [{**each, "configuration_keys": None} for each in d.resources]},
    ("IncrementalAlterConfigs", 1): lambda d: {
        "resources": [{**each, "configs": STEP} for each in d.resources],
        "validate_only": True,
    },
}
"""The body of one call of each API and version. No call changes data that the answer to another call has."""
