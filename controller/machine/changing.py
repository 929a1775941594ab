"""Deciding on changes: CreatePartitions, DeleteTopics and topic configs, as Kafka answers them."""

from __future__ import annotations

from msgspec.structs import replace

from controller.machine import validation
from controller.machine.commands.commands import AlterTopicConfigs, CreatePartitions, DeleteTopic, TopicCommand
from controller.machine.configs.changes import altered_configs
from controller.machine.configs.topic_configs import min_insync_replicas
from controller.machine.decision import NEEDS_APPROVAL, Answer, Decision, topic_named
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.partitions import leadership
from controller.machine.partitions.blocks import extended
from controller.machine.partitions.rules import has_real_brokers
from controller.machine.readiness import answer_waiter
from controller.machine.state import Cluster, State, Topic
from events.catalog import ChangeRejected, Event, Partition, PartitionsAdded, TopicConfigsChanged, TopicDeleted
from events.names import BrokerId
from events.values import ChangeAsked, ConfigsWanted, DeletionWanted, PartitionsWanted

ELECTED_AT_ONCE_MAX = 1_000
"""The most partitions of a topic of which a change of its configs elects leaders in the same decision."""
DELETION_DISABLED_SINCE = 3
"""The DeleteTopics version that has a code of its own for disabled deletion; older ones get INVALID_REQUEST."""


def create_partitions(state: State, command: CreatePartitions) -> Decision:
    """Add partitions to a topic (KIP-195), with placeholders where brokers are missing (KIP-409)."""
    cluster = state.cluster
    details = _details(command, PartitionsWanted(command.count, command.assignments))
    topic = topic_named(state, command.topic)
    rejection = (
        _refused_at_once(command)
        or _check_partitions(topic, command, cluster)
        or validation.dry_run_rejection(command)
        or _throttled_if_there(topic, command)
    )
    if rejection is not None or topic is None:
        return _rejected(command, details, rejection or _UNKNOWN)
    if _is_unheard(command, cluster):
        return NEEDS_APPROVAL
    partitions = _more_partitions(topic, command, cluster)
    grown = replace(topic, partitions=extended(topic.partitions, partitions))
    answer = Answer(command.request_id, topic.name, 0, topic=grown)
    if command.validate_only:
        return Decision((), (answer,))
    event = PartitionsAdded(
        command.request_id,
        topic.name,
        len(topic.partitions),
        partitions,
        command.principal,
        command.client_id,
        cluster.live,
        details,
        cluster.cordoned,
    )
    return Decision((event,), _now_or_later(answer, cluster))


def delete_topic(state: State, command: DeleteTopic) -> Decision:
    """Delete a topic; a create that still waits for it is answered, since it will not be complete any more."""
    details = _details(command, DeletionWanted(command.topic_id))
    topic = topic_named(state, command.topic)
    rejection = (
        _deletion_disabled(command, state.cluster)
        or _refused_at_once(command)
        or _check_id(topic, command)
        or _throttled_if_there(topic, command)
    )
    if rejection is not None or topic is None:
        return _rejected(command, details, rejection or _UNKNOWN)
    answer = Answer(command.request_id, topic.name, 0, topic=topic)
    if command.validate_only:
        return Decision((), (answer,))
    who = (command.principal, command.client_id)
    deleted = TopicDeleted(command.request_id, topic.name, topic.topic_id, *who, details)
    answers = _now_or_later(answer, state.cluster)
    if topic.pending_create is None:
        return Decision((deleted,), answers)
    message = "The topic was deleted before it was complete."
    gone = answer_waiter(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, command.at_ms)
    return Decision((deleted, *gone.events), (*answers, *gone.answers))


def alter_configs(state: State, command: AlterTopicConfigs) -> Decision:
    """Change a topic's explicit configs. As in Kafka a wrong value is answered even where there is no such topic."""
    details = _details(command, ConfigsWanted(command.ops, command.incremental))
    topic = topic_named(state, command.topic)
    rejection = _refused_at_once(command) or validation.name(command.topic)
    if rejection is not None:
        return _rejected(command, details, rejection)
    configs = altered_configs(topic.configs if topic else (), command, state.cluster.settings)
    if isinstance(configs, Rejection):
        return _rejected(command, details, configs)
    if topic is None:
        return _rejected(command, details, _not_there(f"The topic '{command.topic}' does not exist."))
    refused = validation.dry_run_rejection(command)
    if refused is not None:
        return _rejected(command, details, refused)
    if configs != topic.configs and _is_unheard(command, state.cluster):
        return NEEDS_APPROVAL
    altered = replace(topic, configs=configs)
    answer = Answer(command.request_id, topic.name, 0, topic=altered)
    if command.validate_only or configs == topic.configs:
        return Decision((), (answer,))
    who = (command.principal, command.client_id)
    event = TopicConfigsChanged(command.request_id, topic.name, configs, *who, details, topic.configs)
    return Decision((event, *_elections(altered, state.cluster)), _now_or_later(answer, state.cluster))


def _elections(altered: Topic, cluster: Cluster) -> list[Event]:
    """Leaders for partitions that have none and may have one by the new configs (unclean election, as in Kafka); with
    real brokers also the replicas that are eligible by another min.insync.replicas (KIP-966). A topic of very many
    partitions is left to `review`, which goes through them in spans."""
    if len(altered.partitions) > ELECTED_AT_ONCE_MAX:
        return []
    if all(partition.leader >= 0 for partition in altered.partitions) and not has_real_brokers(cluster):
        return []
    return leadership.settle(altered, cluster, "configs changed")[1]


# What all changes share.


def _is_unheard(command: TopicCommand, cluster: Cluster) -> bool:
    """Whether the cluster that carries decisions out is to be consulted first."""
    return cluster.settings.has_target_cluster and command.dry_run is None


def _now_or_later(answer: Answer, cluster: Cluster) -> tuple[Answer, ...]:
    """The answer to a change that was decided on; none yet where a cluster has to carry it out (`FinishChange`)."""
    return () if cluster.settings.has_target_cluster else (answer,)


def _details(command: TopicCommand, wanted: PartitionsWanted | DeletionWanted | ConfigsWanted) -> ChangeAsked:
    return ChangeAsked(command.api, command.api_version, wanted, command.duplicate, command.denied, command.host)


def _refused_at_once(command: TopicCommand) -> Rejection | None:
    return validation.duplicate(command) or validation.denied(command)


def _throttled_if_there(topic: Topic | None, command: TopicCommand) -> Rejection | None:
    return None if topic is None else validation.throttled(command)


def _not_there(message: str) -> Rejection:
    return Rejection(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, "validation:unknown-topic")


_UNKNOWN = _not_there("This server does not host this topic-partition.")


def _rejected(command: TopicCommand, details: ChangeAsked, rejection: Rejection) -> Decision:
    code, message, rule = int(rejection.code), rejection.message, rejection.rule
    answer = Answer(command.request_id, command.topic, code, message, rule)
    if command.validate_only:
        return Decision((), (answer,))
    event = ChangeRejected(
        command.request_id, command.topic, code, message, rule, command.principal, command.client_id, details
    )
    return Decision((event,), (answer,), refusal=rejection)


# CreatePartitions.


def _check_partitions(topic: Topic | None, command: CreatePartitions, cluster: Cluster) -> Rejection | None:
    if topic is None:
        return None
    more = command.count - len(topic.partitions)
    rejection = _no_increase(topic, command.count) or validation.size(more, kind="additional partitions")
    if rejection is not None:
        return rejection
    if command.assignments is not None:
        return _check_assignments(topic, command.assignments, more, cluster)
    factor = topic.replication_factor
    floor = min_insync_replicas(topic.configs, cluster.settings)
    return validation.enough_brokers(factor, floor, cluster) or validation.placeholders(more, factor, cluster)


def _no_increase(topic: Topic, count: int) -> Rejection | None:
    have = len(topic.partitions)
    if count > have:
        return None
    if count == have:
        message = f"Topic already has {have} partition(s)."
    else:
        message = f"The topic {topic.name} currently has {have} partition(s); {count} would not be an increase."
    return Rejection(ErrorCode.INVALID_PARTITIONS, message, "validation:partitions")


def _check_assignments(
    topic: Topic, assignments: tuple[tuple[BrokerId, ...], ...], more: int, cluster: Cluster
) -> Rejection | None:
    if len(assignments) != more:
        message = (
            f"Attempted to add {more} additional partition(s), but only {len(assignments)} "
            "assignment(s) were specified."
        )
        return Rejection(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message, "validation:assignment")
    for index, replicas in enumerate(assignments, len(topic.partitions)):
        rejection = validation.replica_list(index, replicas, topic.replication_factor, cluster)
        if rejection is not None:
            return rejection
    return None


def _more_partitions(topic: Topic, command: CreatePartitions, cluster: Cluster) -> tuple[Partition, ...]:
    if command.assignments is not None:
        return tuple(leadership.new_partition(replicas, cluster) for replicas in command.assignments)
    first = len(topic.partitions)
    return leadership.new_partitions(cluster, topic.name, first, command.count - first, topic.replication_factor)


# DeleteTopics.


def _deletion_disabled(command: DeleteTopic, cluster: Cluster) -> Rejection | None:
    if cluster.settings.delete_topic_enable:
        return None
    old = command.api == "DeleteTopics" and command.api_version < DELETION_DISABLED_SINCE
    code = ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED
    return Rejection(code, "Topic deletion is disabled.", "validation:delete.topic.enable")


def _check_id(topic: Topic | None, command: DeleteTopic) -> Rejection | None:
    if command.topic_id is None or (topic is not None and topic.topic_id == command.topic_id):
        return None
    message = "This server does not host this topic ID."
    return Rejection(ErrorCode.UNKNOWN_TOPIC_ID, message, "validation:unknown-id")
