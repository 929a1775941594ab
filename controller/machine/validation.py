"""Rules for client requests about topics. Each function returns a rejection, or None if the command passes.

Codes are those of Kafka 4.x (ReplicationControlManager, Topic.validate), and messages begin with Kafka's text. If
KIP-4, KIP-409 or the independence of topics requires a difference, the rule's docstring or message names it.
`controller.machine.topics` calls the rules in order.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

from controller.machine.commands.commands import CreateTopic, TopicCommand
from controller.machine.configs.topic_configs import labels_of, topic_config
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.state import Cluster, Settings, Topic
from events.catalog import Assignment, Configs, Verdict
from events.names import BrokerId

NAME_LENGTH_MAX = 249
RECORDS_PER_REQUEST_MAX = 10_000
"""Kafka's limit on the partitions of a request, and on its metadata records (QuorumController.MAX_RECORDS_PER_USER_OP).
The machine applies it to each topic, because topics are independent."""
PLACEHOLDERS_PER_REQUEST_MAX = 100_000
"""Limits requests with a factor far above the number of brokers; KIP-409 has no limit."""
CLUSTER_METADATA = "__cluster_metadata"
"""The topic name of Kafka's metadata log; no topic may have it."""
CREATE_TOPICS = "CreateTopics"
QUOTA = "quota"
"""The rule name of refusals by a mutation quota."""
BY_CLUSTER = "cluster"
"""The rule name of refusals by the target cluster."""
DEFAULT_COUNTS_SINCE = 1
"""The first CreateTopics version in which -1 means the default. KIP-464 says version 4, but Kafka accepts it in every
version, and clients (kafkajs) rely on that. Version 0 is KIP-4's, without defaults."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def denied(command: TopicCommand) -> Rejection | None:
    if not command.denied:
        return None
    code = ErrorCode(command.denied)
    if isinstance(command, CreateTopic):
        return Rejection(code, "Authorization failed.", "authorizer")
    what = "Cluster" if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else "Topic"
    return Rejection(code, f"{what} authorization failed.", "authorizer")


def throttled(command: TopicCommand) -> Rejection | None:
    """The rejection if the mutation quota of the requester is exhausted (KIP-599)."""
    if not command.throttle_ms:
        return None
    return Rejection(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.", QUOTA)


def protected(topic: Topic | None, after: Configs | None, defaults: Configs) -> Rejection | None:
    """The rejection if a topic has the label `protected=true` and would be deleted (`after` is None), or get configs
    that delete records: shorter retention, or another cleanup policy. `defaults` are broker-level."""
    if topic is None or labels_of(topic.configs).get("protected", "").lower() != "true":
        return None
    lost = ["it may not be deleted"] if after is None else []
    for name in ("retention.ms", "retention.bytes", "cleanup.policy") if after is not None else ():
        old, new = (topic_config(name, configs, defaults) for configs in (topic.configs, after or ()))
        if isinstance(old, int) and isinstance(new, int):
            if new != -1 and (old == -1 or new < old):
                lost.append(f"{name} may not be lowered from {'unlimited' if old == -1 else old}")
        elif isinstance(old, tuple) and isinstance(new, tuple) and set(old) != set(new):
            lost.append(f"{name} may not change from '{','.join(old)}'")
    if not lost:
        return None
    message = f"Topic {topic.name} has the label protected=true, so {', '.join(lost)}. Remove the label first"
    how = f"`topicwright topic label {topic.name} --delete protected`, or delete the config label.protected"
    return Rejection(ErrorCode.POLICY_VIOLATION, f"{message}: {how}.", "validation:protected")


def dry_run_rejection(command: TopicCommand) -> Rejection | None:
    dry_run = command.dry_run
    if dry_run is None or not dry_run.error_code:
        return None
    code = cast(ErrorCode, dry_run.error_code)  # Kafka's controller may send a code that ErrorCode does not name
    return Rejection(code, dry_run.message, BY_CLUSTER)


def refused_by_policies(verdict: Verdict | None) -> Rejection | None:
    if verdict is None or verdict.outcome == "allowed":
        return None
    if verdict.outcome == "refused":
        return Rejection(ErrorCode.POLICY_VIOLATION, verdict.message, verdict.rule)
    message = "The policy failed; the controller's log has the cause."
    return Rejection(ErrorCode.UNKNOWN_SERVER_ERROR, message, verdict.rule)


def duplicate(command: TopicCommand) -> Rejection | None:
    """The rejection if a request names the topic more than once (KIP-4)."""
    if command.duplicate:
        return Rejection(ErrorCode.INVALID_REQUEST, "Duplicate topic name.", "validation:duplicate")
    return None


def name(topic: str) -> Rejection | None:
    """The rejection if a topic name violates Kafka's rules for names."""
    if not topic:
        why = "the empty string is not allowed"
    elif topic in {".", ".."}:
        why = f"'{topic}' is not allowed"
    elif len(topic) > NAME_LENGTH_MAX:
        why = f"the length of '{topic}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL_NAME.fullmatch(topic):
        why = f"'{topic}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return Rejection(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}", "validation:name")


def internal(topic: str) -> Rejection | None:
    """The rejection if the topic name is that of Kafka's metadata log, which is reserved."""
    if topic != CLUSTER_METADATA:
        return None
    message = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
    return Rejection(ErrorCode.INVALID_REQUEST, message, "validation:internal")


def name_taken(command: CreateTopic, existing: Topic | None) -> Rejection | None:
    """The rejection if a topic has this name, or a name that collides with it (`.` and `_` collide)."""
    if existing is None:
        return None
    if existing.name != command.topic:
        message = f"Topic '{command.topic}' collides with existing topic: {existing.name}"
        return Rejection(ErrorCode.INVALID_TOPIC_EXCEPTION, message, "validation:collision")
    ready = "not ready yet" if existing.ready_at_ms is None else "ready"
    message = (
        f"Topic '{existing.name}' already exists. It was created at {_utc(existing.created_at_ms)} and is {ready}."
    )
    return Rejection(ErrorCode.TOPIC_ALREADY_EXISTS, message, "validation:exists")


def _utc(at_ms: int) -> str:
    try:
        when = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
    except OverflowError:
        return f"{at_ms} ms"
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def counts(command: CreateTopic) -> Rejection | None:
    """The rejection of counts that are not positive. -1 is allowed as the default (KIP-464) or with a manual
    assignment."""
    if command.assignments:
        for what, value in (
            ("replication factor", command.replication_factor),
            ("numPartitions", command.num_partitions),
        ):
            if value != -1:
                message = f"A manual partition assignment was specified, but {what} was not set to -1."
                return Rejection(ErrorCode.INVALID_REQUEST, message, "validation:counts-and-assignment")
        return None
    factor, partitions = command.replication_factor, command.num_partitions
    if factor > 0 and partitions > 0:
        return None
    knows_defaults = command.api != CREATE_TOPICS or command.api_version >= DEFAULT_COUNTS_SINCE
    least = -1 if knows_defaults else 1
    hint = "" if knows_defaults else f" The default needs CreateTopics version {DEFAULT_COUNTS_SINCE}."
    if factor < least or factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        return Rejection(ErrorCode.INVALID_REPLICATION_FACTOR, message + hint, "validation:factor")
    if partitions < least or partitions == 0:
        message = "Number of partitions was set to an invalid non-positive value."
        return Rejection(ErrorCode.INVALID_PARTITIONS, message + hint, "validation:partitions")
    return None


def size(partitions: int, other_records: int = 0, kind: str = "partitions") -> Rejection | None:
    """The rejection beyond Kafka's limits on partitions and metadata records. `other_records` are not of partitions."""
    if partitions + other_records <= RECORDS_PER_REQUEST_MAX:
        return None
    if partitions <= RECORDS_PER_REQUEST_MAX:
        message = "Unable to perform excessively large batch operation."
    else:
        message = f"Excessively large number of {kind} per request."
    limit = f" {partitions} partitions and their other records exceed the limit of {RECORDS_PER_REQUEST_MAX}."
    return Rejection(ErrorCode.POLICY_VIOLATION, message + limit, "validation:size")


def resolved_partitions(command: CreateTopic, settings: Settings) -> int:
    """Returns the partition count, with the default for -1."""
    if command.assignments:
        return len(command.assignments)
    return settings.num_partitions if command.num_partitions == -1 else command.num_partitions


def resolved_factor(command: CreateTopic, settings: Settings) -> int:
    """Returns the replication factor, with the default for -1."""
    if command.assignments:
        return len(command.assignments[0].replicas)
    return settings.default_replication_factor if command.replication_factor == -1 else command.replication_factor


def assignment(assignments: tuple[Assignment, ...], cluster: Cluster) -> Rejection | None:
    """The rejection unless an assignment has the ids 0 to n-1, each once, and valid replica lists of one length."""
    seen: set[int] = set()
    for one in assignments:
        if one.partition in seen:
            return _bad_assignment(f"Found multiple manual partition assignments for partition {one.partition}")
        seen.add(one.partition)
    factor = None
    for one in assignments:
        rejection = replica_list(one.partition, one.replicas, factor, cluster)
        if rejection is not None:
            return rejection
        factor = len(one.replicas)
    if seen != set(range(len(assignments))):
        return _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return None


def replica_list(
    partition: int, replicas: Sequence[BrokerId], factor: int | None, cluster: Cluster, *, one_live: bool = True
) -> Rejection | None:
    """The rejection of an invalid replica list of one partition. A valid list is not empty, has the length `factor` if
    given, and has registered, distinct brokers; with `one_live`, for a new partition, at least one is live."""
    if not replicas:
        return _bad_assignment("The manual partition assignment includes an empty replica list.")
    ordered = sorted(replicas)
    for index, replica in enumerate(ordered):
        if replica not in cluster.brokers:
            return _bad_assignment(
                f"The manual partition assignment includes broker {replica}, but no such broker is registered."
            )
        if index and ordered[index - 1] == replica:
            return _bad_assignment(f"The manual partition assignment includes the broker {replica} more than once.")
    if factor is not None and len(replicas) != factor:
        return _bad_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )
    if one_live and not any(replica in cluster.live for replica in replicas):
        return _bad_assignment(
            f"All brokers specified in the manual partition assignment for partition {partition} "
            "are fenced or in controlled shutdown."
        )
    return None


def _bad_assignment(message: str) -> Rejection:
    return Rejection(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message, "validation:assignment")


def enough_brokers(factor: int, min_insync_replicas: int, cluster: Cluster) -> Rejection | None:
    """The rejection if there are fewer usable brokers than the factor. With `enable.under.replicated.topic.creation`,
    min(min.insync.replicas, factor) brokers are enough (KIP-409)."""
    usable, registered = len(cluster.usable), len(cluster.brokers)
    if usable >= factor:
        return None
    message = (
        f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
        f"reached because only {usable} broker(s) are "
    )
    message += "registered" if registered == len(cluster.live) else f"live of the {registered} registered"
    message += " or some brokers have all their log directories cordoned"
    if not cluster.settings.enable_under_replicated_topic_creation:
        return Rejection(ErrorCode.INVALID_REPLICATION_FACTOR, f"{message}.", "validation:live-brokers")
    floor = min(min_insync_replicas, factor)
    if usable < floor:
        message += f", and a topic needs {floor} (min.insync.replicas, at most the replication factor)."
        return Rejection(ErrorCode.INVALID_REPLICATION_FACTOR, message, "validation:under-replicated-floor")
    return None


def placeholders(partitions: int, factor: int, cluster: Cluster) -> Rejection | None:
    """The rejection if a request needs too many placeholders."""
    missing = partitions * (factor - len(cluster.usable))
    if missing <= PLACEHOLDERS_PER_REQUEST_MAX:
        return None
    message = f"{missing} replicas would be placeholders; the limit is {PLACEHOLDERS_PER_REQUEST_MAX}."
    return Rejection(ErrorCode.POLICY_VIOLATION, message, "validation:placeholders")
