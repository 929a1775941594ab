"""Deciding on changes: CreatePartitions, DeleteTopics and topic configs, as Kafka answers them."""

from __future__ import annotations

from msgspec.structs import replace

from controller.machine import leadership, validation
from controller.machine.commands import AlterTopicConfigs, Ask, CreatePartitions, DeleteTopic
from controller.machine.config_rules import altered_configs, min_insync_replicas
from controller.machine.creating import placed
from controller.machine.decision import CONSULT, Answer, Decision, topic_named
from controller.machine.discovering import BY_CLUSTER
from controller.machine.errors import ErrorCode, Rejection, foreign
from controller.machine.partition_rules import is_real
from controller.machine.readiness import answer_waiter
from controller.machine.state import Cluster, State, Topic
from events.catalog import (
    ChangeAsked,
    ChangeRejected,
    ConfigsWanted,
    DeletionWanted,
    Event,
    Partition,
    PartitionsAdded,
    PartitionsWanted,
    TopicConfigsChanged,
    TopicDeleted,
)
from events.names import BrokerId

DELETION_DISABLED_SINCE = 3
"""The DeleteTopics version that has a code of its own for disabled deletion; older ones get INVALID_REQUEST."""


def create_partitions(state: State, command: CreatePartitions) -> Decision:
    """Add partitions to a topic (KIP-195), with placeholders where brokers are missing (KIP-409)."""
    cluster = state.cluster
    asked = _asked(command, PartitionsWanted(command.count, command.assignments))
    topic = topic_named(state, command.topic)
    rejection = (
        _refused_at_once(command)
        or _check_partitions(topic, command, cluster)
        or _not_cleared(command)
        or _throttled_if_there(topic, command)
    )
    if rejection is not None or topic is None:
        return _rejected(command, asked, rejection or _UNKNOWN)
    if _is_unheard(command, cluster):
        return CONSULT
    partitions = _more_partitions(topic, command, cluster)
    answer = Answer(command.request_id, topic.name, 0, topic=replace(topic, partitions=topic.partitions + partitions))
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
        asked,
    )
    return Decision((event,), _now_or_later(answer, cluster))


def delete_topic(state: State, command: DeleteTopic) -> Decision:
    """Delete a topic; a create that still waits for it is answered, since it will not be complete any more."""
    asked = _asked(command, DeletionWanted(command.topic_id))
    topic = topic_named(state, command.topic)
    rejection = (
        _deletion_disabled(command, state.cluster)
        or _refused_at_once(command)
        or _check_id(topic, command)
        or _throttled_if_there(topic, command)
    )
    if rejection is not None or topic is None:
        return _rejected(command, asked, rejection or _UNKNOWN)
    answer = Answer(command.request_id, topic.name, 0, topic=topic)
    if command.validate_only:
        return Decision((), (answer,))
    deleted = TopicDeleted(command.request_id, topic.name, topic.topic_id, command.principal, command.client_id, asked)
    told = _now_or_later(answer, state.cluster)
    if topic.waiter is None:
        return Decision((deleted,), told)
    message = "The topic was deleted before it was complete."
    gone = answer_waiter(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, command.at_ms)
    return Decision((deleted, *gone.events), (*told, *gone.answers))


def alter_configs(state: State, command: AlterTopicConfigs) -> Decision:
    """Change a topic's explicit configs. As in Kafka a wrong value is told even where there is no such topic."""
    asked = _asked(command, ConfigsWanted(command.ops, command.incremental))
    topic = topic_named(state, command.topic)
    rejection = _refused_at_once(command) or validation.name(command.topic)
    if rejection is not None:
        return _rejected(command, asked, rejection)
    configs = altered_configs(topic.configs if topic else (), command, state.cluster.settings)
    if isinstance(configs, Rejection):
        return _rejected(command, asked, configs)
    if topic is None:
        return _rejected(command, asked, _not_there(f"The topic '{command.topic}' does not exist."))
    refused = _not_cleared(command)
    if refused is not None:
        return _rejected(command, asked, refused)
    if configs != topic.configs and _is_unheard(command, state.cluster):
        return CONSULT
    altered = replace(topic, configs=configs)
    answer = Answer(command.request_id, topic.name, 0, topic=altered)
    if command.validate_only or configs == topic.configs:
        return Decision((), (answer,))
    event = TopicConfigsChanged(command.request_id, topic.name, configs, command.principal, command.client_id, asked)
    return Decision((event, *_elections(altered, state.cluster)), _now_or_later(answer, state.cluster))


def _elections(altered: Topic, cluster: Cluster) -> list[Event]:
    """Leaders for partitions that have none and may have one by the new configs (unclean election, as in Kafka); with
    real brokers also the replicas that are eligible by another min.insync.replicas (KIP-966)."""
    if all(partition.leader >= 0 for partition in altered.partitions) and not is_real(cluster):
        return []
    return leadership.settle(altered, cluster, "configs changed")[1]


# What all changes share.


def _is_unheard(ask: Ask, cluster: Cluster) -> bool:
    """Whether the cluster that carries decisions out is to be asked first."""
    return cluster.settings.cluster_carries_out and ask.clearance is None


def _not_cleared(ask: Ask) -> Rejection | None:
    """What the cluster that carries decisions out has against it."""
    said = ask.clearance
    if said is None or not said.error_code:
        return None
    return Rejection(foreign(said.error_code), said.message, BY_CLUSTER)


def _now_or_later(answer: Answer, cluster: Cluster) -> tuple[Answer, ...]:
    """The answer to a change that was decided on; none yet where a cluster has to carry it out (`FinishChange`)."""
    return () if cluster.settings.cluster_carries_out else (answer,)


def _asked(ask: Ask, wanted: PartitionsWanted | DeletionWanted | ConfigsWanted) -> ChangeAsked:
    return ChangeAsked(ask.api, ask.api_version, wanted, ask.duplicate, ask.denied)


def _refused_at_once(ask: Ask) -> Rejection | None:
    return validation.duplicate(ask) or validation.denied(ask)


def _throttled_if_there(topic: Topic | None, ask: Ask) -> Rejection | None:
    return None if topic is None else validation.throttled(ask)


def _not_there(message: str) -> Rejection:
    return Rejection(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, "validation:unknown-topic")


_UNKNOWN = _not_there("This server does not host this topic-partition.")


def _rejected(ask: Ask, asked: ChangeAsked, rejection: Rejection) -> Decision:
    code, message, rule = int(rejection.code), rejection.message, rejection.rule
    answer = Answer(ask.request_id, ask.topic, code, message, rule)
    if ask.validate_only:
        return Decision((), (answer,))
    event = ChangeRejected(ask.request_id, ask.topic, code, message, rule, ask.principal, ask.client_id, asked)
    return Decision((event,), (answer,), refusal=rejection)


# CreatePartitions.


def _check_partitions(topic: Topic | None, command: CreatePartitions, cluster: Cluster) -> Rejection | None:
    if topic is None:
        return None
    more = command.count - len(topic.partitions)
    rejection = _no_increase(topic, command.count) or validation.size(more)
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
    return placed(cluster, topic.name, first, command.count - first, topic.replication_factor)


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
