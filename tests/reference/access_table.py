"""The table of permissions: users with ACLs, and the requests of each user.

Every user sends every request. No request changes data that another user's request needs: deleted and created topics
contain the user's name.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.reference.cases import topic

Body = dict[str, Any]

ADMIN = "admin"
TOPIC, GROUP, CLUSTER = 2, 3, 4
LITERAL, PREFIXED = 3, 4
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
DESCRIBE_CONFIGS, ALTER_CONFIGS = 10, 11
DENY, ALLOW = 2, 3
HERE, ELSEWHERE, EVERYWHERE = "127.0.0.1", "10.11.12.13", "*"
AROUND_HERE, AROUND_ELSEWHERE = "127.1.2.3/8", "10.0.0.0/8"


def on_topic(name: str, operation: int, permission: int = ALLOW, host: str = EVERYWHERE) -> Body:
    """An ACL for topics. A name that ends in `*` is a prefix, except `*` itself."""
    is_prefix = name.endswith("*") and name != "*"
    return _entry(
        TOPIC, PREFIXED if is_prefix else LITERAL, name[:-1] if is_prefix else name, operation, permission, host
    )


def on_cluster(operation: int, permission: int = ALLOW, host: str = EVERYWHERE) -> Body:
    """An ACL for the cluster."""
    return _entry(CLUSTER, LITERAL, "kafka-cluster", operation, permission, host)


def _entry(kind: int, pattern: int, name: str, operation: int, permission: int, host: str) -> Body:
    return {
        "resource_type": kind,
        "resource_pattern_type": pattern,
        "resource_name": name,
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


USERS: dict[str, tuple[Body, ...]] = {
    "nobody": (),
    "creator": (on_cluster(CREATE),),
    "prefixcreator": (on_topic("new.*", CREATE),),
    "literalcreator": (on_topic("new.literalcreator", CREATE), on_topic("new.literalcreator", DESCRIBE_CONFIGS)),
    "describer": (on_topic("*", DESCRIBE),),
    "seeingcreator": (on_topic("*", DESCRIBE), on_topic("new.*", CREATE)),
    "reader": (on_topic("a.*", READ),),
    "writer": (on_topic("a.one", WRITE),),
    "deleter": (on_topic("gone.*", DELETE),),
    "blinddeleter": (on_topic("gone.*", DELETE), on_topic("gone.*", DESCRIBE, DENY)),
    "clusterdeleter": (on_cluster(DELETE),),
    "alterer": (on_topic("a.one", ALTER),),
    "configurer": (on_topic("a.*", ALTER_CONFIGS),),
    "configreader": (on_topic("a.one", DESCRIBE_CONFIGS),),
    "everything": (on_topic("*", ALL), on_cluster(ALL), _entry(GROUP, LITERAL, "*", ALL, ALLOW, EVERYWHERE)),
    "almosteverything": (
        *(on_topic("*", ALL), on_cluster(ALL), on_topic("a.*", ALTER, DENY)),
        *(on_topic("a.one", DESCRIBE, DENY), on_cluster(CREATE, DENY), on_topic("new.*", ALL, DENY)),
    ),
    "readless": (on_topic("a.*", ALL), on_topic("a.one", READ, DENY)),
    "here": (on_topic("a.*", ALL, ALLOW, HERE), on_cluster(DESCRIBE, ALLOW, HERE)),
    "elsewhere": (on_topic("a.*", ALL, ALLOW, ELSEWHERE), on_cluster(ALL, ALLOW, ELSEWHERE)),
    "herenot": (on_topic("a.*", ALL), on_topic("a.one", ALL, DENY, HERE)),
    "therenot": (on_topic("a.*", ALL), on_topic("a.one", ALL, DENY, ELSEWHERE)),
    "aroundhere": (on_topic("a.*", ALL, ALLOW, AROUND_HERE), on_cluster(DESCRIBE, ALLOW, AROUND_ELSEWHERE)),
    "aroundherenot": (on_topic("a.*", ALL), on_topic("a.one", ALL, DENY, AROUND_HERE)),
    "clusteralterer": (on_cluster(ALTER),),
    "clusterconfigurer": (on_cluster(ALTER_CONFIGS),),
    "clusterreader": (on_cluster(DESCRIBE),),
    "clusterconfigreader": (on_cluster(DESCRIBE_CONFIGS),),
}
"""By user, the ACLs that are created for `User:NAME`."""

FOR_EVERYBODY = (on_topic("public", DESCRIBE), on_topic("a.two", DESCRIBE_CONFIGS, DENY, ELSEWHERE))
"""ACLs for `User:*`."""

TOPICS = ("a.one", "a.two", "public", "b")


def own_topics(user: str) -> tuple[str, ...]:
    """Topics that exist for one user only."""
    return f"gone.{user}", f"gone.{user}.byid"


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a user. `name` distinguishes requests of the same API."""

    api: str
    version: int
    name: str
    body: Body

    @property
    def id(self) -> str:
        return f"{self.api} v{self.version} {self.name}".strip()


STRANGE_ID = "00000000-0000-0000-0000-0000000000aa"


def requests_of(user: str, ids: dict[str, str]) -> Iterator[Request]:
    """Yields all requests of one user, in order. `ids` has the ids of existing topics by name."""
    yield from _listings(user)
    yield from _metadata(user, ids)
    yield from _creations(user)
    yield from _changes(user)
    yield from _of_the_cluster(user)
    yield from _deletions(user, ids)


def _listings(user: str) -> Iterator[Request]:
    for version in (0, 1, 8, 12):
        topics: Any = [] if version == 0 else None
        yield Request("Metadata", version, "all", {"topics": topics, "allow_auto_topic_creation": False})
    yield Request("DescribeTopicPartitions", 0, "all", _pages([]))


def _pages(names: list[str], cursor: Body | None = None, limit: int = 100) -> Body:
    return {"topics": [{"name": name} for name in names], "response_partition_limit": limit, "cursor": cursor}


def _metadata(user: str, ids: dict[str, str]) -> Iterator[Request]:
    named = ["a.one", "b", "public", "missing", "bad name"]
    body: Body = {"topics": [{"name": name} for name in named], "allow_auto_topic_creation": False}
    old = [{"name": name} for name in ("a.one", "b", "public", "bad name", f"new.{user}.old", f"other.{user}.old")]
    yield Request("Metadata", 0, "named, auto-creation", {"topics": old})
    for version in (4, 7, 13):
        yield Request("Metadata", version, "named", body)
    wanting = {**body, "include_topic_authorized_operations": True}
    for version in (8, 10):
        yield Request("Metadata", version, "operations", {**wanting, "include_cluster_authorized_operations": True})
    yield Request("Metadata", 12, "operations", wanting)
    by_id = [{"name": None, "topic_id": each} for each in (ids["a.one"], ids["b"], STRANGE_ID)]
    yield Request("Metadata", 12, "by id", {"topics": by_id, "allow_auto_topic_creation": False})
    missing = [{"name": f"{prefix}.{user}.auto"} for prefix in ("new", "other")]
    yield Request("Metadata", 12, "auto-creation", {"topics": missing, "allow_auto_topic_creation": True})
    yield Request("DescribeTopicPartitions", 0, "named", _pages(named))
    cursor = {"topic_name": "b", "partition_index": 0}
    yield Request("DescribeTopicPartitions", 0, "from a cursor", _pages(named, cursor))


def _creations(user: str) -> Iterator[Request]:
    names = ["a.one", f"new.{user}", "other", "bad name", "__cluster_metadata", "twice", "twice"]
    topics = [topic(name) for name in names]
    for version in (2, 4, 5, 7):
        body = {"topics": topics, "timeout_ms": 10_000, "validate_only": True}
        yield Request("CreateTopics", version, "dry", body)


def _changes(user: str) -> Iterator[Request]:
    names = ["a.one", "b", "public", "missing", "bad name"]
    partitions = [{"name": name, "count": 3, "assignments": None} for name in names]
    for version in (0, 3):
        yield Request(
            "CreatePartitions", version, "dry", {"topics": partitions, "timeout_ms": 10_000, "validate_only": True}
        )
    resources = [(2, name) for name in names] + [(4, "1"), (4, ""), (32, "group")]
    configs = [{"name": "retention.ms", "value": "5"}]
    for version in (0, 2):
        each = [{"resource_type": kind, "resource_name": name, "configs": configs} for kind, name in resources]
        yield Request("AlterConfigs", version, "dry", {"resources": each, "validate_only": True})
    steps = [{"name": "retention.ms", "config_operation": 0, "value": "5"}]
    for version in (0, 1):
        each = [{"resource_type": kind, "resource_name": name, "configs": steps} for kind, name in resources]
        yield Request("IncrementalAlterConfigs", version, "dry", {"resources": each, "validate_only": True})
    kinds = [*resources, (8, "1"), (16, "metrics")]
    wanted = [{"resource_type": kind, "resource_name": name, "configuration_keys": None} for kind, name in kinds]
    for version in (1, 4):
        yield Request("DescribeConfigs", version, "", {"resources": wanted, "include_synonyms": False})


ANY_ACL: Body = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
"""The filter that matches every ACL."""


def _of_the_cluster(user: str) -> Iterator[Request]:
    for version in (0, 2):
        yield Request("DescribeCluster", version, "operations", {"include_cluster_authorized_operations": True})
    yield Request("DescribeCluster", 1, "plain", {"include_cluster_authorized_operations": False})
    yield Request("ListPartitionReassignments", 0, "", {"timeout_ms": 1000, "topics": None})
    own = {**on_topic(f"acl.{user}", READ), "principal": "User:somebody"}
    for version in (1, 3):
        yield Request("CreateAcls", version, "", {"creations": [own, {**own, "resource_name": ""}]})
        yield Request("DescribeAcls", version, "", {**ANY_ACL, "principal_filter": "User:nobody"})
        wanted = {**ANY_ACL, "resource_name_filter": f"acl.{user}"}
        yield Request("DeleteAcls", version, "", {"filters": [wanted]})
    for version in (0, 1):
        yield Request("DescribeClientQuotas", version, "", {"components": [], "strict": False})
    for number, users in enumerate(([], ["ann"], ["ann", "ben", "ann"])):
        named = [{"name": name} for name in users]
        yield Request("DescribeUserScramCredentials", 0, f"list {number}", {"users": named})
        quota = {
            "entity": [{"entity_type": "user", "entity_name": "x"}],
            "ops": [{"key": "controller_mutation_rate", "value": 3.0, "remove": False}],
        }
        yield Request("AlterClientQuotas", version, "dry", {"entries": [quota], "validate_only": True})


def _deletions(user: str, ids: dict[str, str]) -> Iterator[Request]:
    gone, by_id = own_topics(user)
    names = ["gone.missing", "missing", "bad name"]
    yield Request("DeleteTopics", 1, "missing", {"topic_names": names, "timeout_ms": 10_000})
    topics = [{"name": None, "topic_id": each} for each in (ids[by_id], STRANGE_ID)]
    yield Request("DeleteTopics", 6, "by id", {"topics": topics, "timeout_ms": 10_000})
    yield Request("DeleteTopics", 5, "named", {"topic_names": [gone, "gone.missing", "b2"], "timeout_ms": 10_000})
