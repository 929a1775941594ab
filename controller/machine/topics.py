"""Decisions of `decide` on client requests for topics: CreateTopics (KIP-4, KIP-108, KIP-409), CreatePartitions,
DeleteTopics and topic configs."""

from collections.abc import Iterator

from msgspec.structs import replace

from controller.machine import validation
from controller.machine.commands import commands
from controller.machine.configs.changes import altered_topic_configs
from controller.machine.configs.topic_configs import (
    LABEL,
    explicit_configs,
    min_insync_replicas,
    validate_topic_configs,
    with_labels_of,
)
from controller.machine.decision import NEEDS_APPROVAL, Answer, Decision, PartitionAnswer, topic_named
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.observing import answer_pending_create
from controller.machine.partitions import placement
from controller.machine.partitions.blocks import extended
from controller.machine.partitions.changes import Reconciliation
from controller.machine.state import Cluster, State, Topic
from events import catalog
from events.names import BrokerId, Offset, shard_key
from events.values import Configs, Requested, RequestedChange

ELECTED_AT_ONCE_MAX = 1_000
"""A config change elects leaders in the same decision for topics of up to this many partitions."""
DELETION_DISABLED_SINCE = 3
"""The first DeleteTopics version with a code for disabled deletion; older ones get INVALID_REQUEST."""
_UNKNOWN = Rejection(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.", "validation:unknown-topic"
)


def create_topic(state: State, command: commands.CreateTopic) -> Decision:
    """Creates a topic, refuses it, answers a dry run, or requests the verdict of the policies."""
    cluster = state.cluster
    rejection = _check_create(state, command) or validation.refused_by_policies(command.verdict)
    is_unjudged = command.verdict is None and cluster.settings.create_topic_policy_class_name
    if rejection is None and (is_unjudged or _needs_dry_run(command, cluster)):
        return NEEDS_APPROVAL
    rejection = rejection or validation.dry_run_rejection(command) or validation.throttled(command)
    return _created(cluster, command) if rejection is None else rejected(command, rejection)


def _check_create(state: State, command: commands.CreateTopic) -> Rejection | None:
    cluster = state.cluster
    return (
        validation.duplicate(command)
        or validation.internal(command.topic)
        or validation.denied(command)
        or validation.name(command.topic)
        or validation.name_taken(command, state.topics.get(shard_key(command.topic)))
        or (validate_topic_configs(command.configs, cluster.settings.effective_defaults) if command.configs else None)
        or validation.counts(command)
        or validation.size(validation.resolved_partitions(command, cluster.settings), 1 + len(command.configs))
        or (validation.assignment(command.assignments, cluster) if command.assignments else None)
        or _check_brokers(cluster, command)
    )


def _check_brokers(cluster: Cluster, command: commands.CreateTopic) -> Rejection | None:
    factor = validation.resolved_factor(command, cluster.settings)
    if command.assignments or factor <= len(cluster.usable):
        return None
    floor = min_insync_replicas(explicit_configs(command.configs), cluster.settings)
    count = validation.resolved_partitions(command, cluster.settings)
    rejection = validation.enough_brokers(factor, floor, cluster) or validation.placeholders(count, factor, cluster)
    if rejection is None or command.replication_factor != -1:
        return rejection
    why = "The request has no factor, so default.replication.factor is used."
    return replace(rejection, message=f"{rejection.message} {why}")


def _created(cluster: Cluster, command: commands.CreateTopic) -> Decision:
    partitions = _planned_partitions(cluster, command)
    configs = explicit_configs(command.configs) if command.configs else ()
    name, request_id, at_ms = command.topic, command.request_id, command.at_ms
    if command.validate_only:
        return Decision((), (Answer(request_id, name, 0, topic=_planned(command, partitions, configs)),))
    deadline_ms = at_ms + max(0, command.timeout_ms)
    facts = (command.topic_id, partitions, len(partitions[0].replicas), configs)
    created = catalog.TopicCreated(
        request_id, name, *facts, command.verdict, cluster.live, deadline_ms, cluster.cordoned, command.principal
    )
    if command.timeout_ms > 0:
        return Decision((requested(command, deadline_ms), created))
    code = ErrorCode.REQUEST_TIMED_OUT
    message = f"The topic was created; timeout_ms {command.timeout_ms} does not wait until it is complete."
    return Decision(
        (requested(command, deadline_ms), created, catalog.CreateAnswered(request_id, name, int(code), message, 0)),
        (Answer(request_id, name, code, message, topic=_planned(command, partitions, configs)),),
    )


def _planned(command: commands.CreateTopic, partitions: tuple[catalog.Partition, ...], configs: Configs) -> Topic:
    """The topic as an answer shows it, before its creation is in the log."""
    return Topic(command.topic, command.topic_id, partitions, configs, command.at_ms, Offset(-1))


def _planned_partitions(cluster: Cluster, command: commands.CreateTopic) -> tuple[catalog.Partition, ...]:
    if command.assignments:
        by_id = sorted(command.assignments, key=lambda one: one.partition)
        return tuple(placement.new_partition(one.replicas, cluster) for one in by_id)
    settings = cluster.settings
    count = validation.resolved_partitions(command, settings)
    return placement.new_partitions(cluster, command.topic, 0, count, validation.resolved_factor(command, settings))


def requested(command: commands.CreateTopic, deadline_ms: int) -> catalog.CreateRequested:
    """The event with the request as the client sent it."""
    return catalog.CreateRequested(
        command.request_id,
        command.topic,
        command.topic_id,
        command.num_partitions,
        command.replication_factor,
        command.assignments,
        command.configs,
        command.timeout_ms,
        deadline_ms,
        command.principal,
        command.client_id,
        command.api,
        command.api_version,
        command.duplicate,
        command.denied,
        command.host,
        command.elsewhere,
    )


def create_partitions(state: State, command: commands.CreatePartitions) -> Decision:
    """Adds partitions to a topic (KIP-195), with placeholders for missing brokers (KIP-409)."""
    cluster = state.cluster
    topic = topic_named(state, command.topic)
    rejection = (
        _check_request(command)
        or _check_partitions(topic, command, cluster)
        or validation.dry_run_rejection(command)
        or (None if topic is None else validation.throttled(command))
    )
    if rejection is not None or topic is None:
        return rejected(command, rejection or _UNKNOWN)
    if _needs_dry_run(command, cluster):
        return NEEDS_APPROVAL
    first, factor = len(topic.partitions), topic.replication_factor
    if command.assignments is None:
        partitions = placement.new_partitions(cluster, topic.name, first, command.count - first, factor)
    else:
        partitions = tuple(placement.new_partition(replicas, cluster) for replicas in command.assignments)
    grown = replace(topic, partitions=extended(topic.partitions, partitions))
    who = (command.principal, command.client_id)
    event = catalog.PartitionsAdded(
        command.request_id, topic.name, first, partitions, *who, cluster.live, details_of(command), cluster.cordoned
    )
    return _changed(command, cluster, grown, (event,))


def delete_topic(state: State, command: commands.DeleteTopic) -> Decision:
    """Deletes a topic, and answers its pending create if there is one."""
    topic = topic_named(state, command.topic)
    rejection = (
        _deletion_disabled(command, state.cluster)
        or _check_request(command)
        or _check_id(topic, command)
        or validation.protected(topic, None, state.cluster.settings.effective_defaults)
        or (None if topic is None else validation.throttled(command))
    )
    if rejection is not None or topic is None:
        return rejected(command, rejection or _UNKNOWN)
    who = (command.principal, command.client_id)
    deleted = catalog.TopicDeleted(command.request_id, topic.name, topic.topic_id, *who, details_of(command))
    message = "The topic was deleted before it was complete."
    gone = answer_pending_create(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, command.at_ms, deleted)
    return _changed(command, state.cluster, topic, gone.events, gone.answers)


def alter_configs(state: State, command: commands.AlterTopicConfigs) -> Decision:
    """Changes the explicit configs of a topic. As in Kafka, an invalid value is refused before a missing topic."""
    topic = topic_named(state, command.topic)
    rejection = _check_request(command) or validation.name(command.topic)
    if rejection is not None:
        return rejected(command, rejection)
    defaults, current = state.cluster.settings.effective_defaults, topic.configs if topic else ()
    configs = altered_topic_configs(current, command.ops, defaults, incremental=command.incremental)
    if isinstance(configs, Rejection):
        return rejected(command, configs)
    if not command.incremental and state.cluster.has_kraft_brokers:  # their clients cannot see labels
        configs = with_labels_of(current, configs)
    if topic is None:
        return rejected(command, replace(_UNKNOWN, message=f"The topic '{command.topic}' does not exist."))
    refused = (
        validation.protected(topic, configs, defaults)
        or validation.refused_by_policies(command.verdict)
        or validation.dry_run_rejection(command)
    )
    if refused is not None:
        return rejected(command, refused)
    if configs == topic.configs:
        return _changed(command, state.cluster, topic, ())
    is_unjudged = command.verdict is None and state.cluster.settings.alter_config_policy_class_name
    if is_unjudged or _needs_dry_run(command, state.cluster):
        return NEEDS_APPROVAL
    altered, who = replace(topic, configs=configs), (command.principal, command.client_id)
    event = catalog.TopicConfigsChanged(
        command.request_id, topic.name, configs, *who, details_of(command), topic.configs
    )
    return _changed(command, state.cluster, altered, (event, *_elections(altered, state.cluster)))


def labels_refused(state: State, command: commands.AnyCommand) -> Decision | None:
    """Refuses labels that clients of KRaft brokers set: these brokers describe topics without them."""
    if not state.cluster.has_kraft_brokers or not isinstance(
        command, commands.CreateTopic | commands.AlterTopicConfigs
    ):
        return None
    names = (
        [op.name for op in command.ops] if isinstance(command, commands.AlterTopicConfigs) else dict(command.configs)
    )
    label = next((name for name in names if name.startswith(LABEL)), None)
    if label is None or command.api == commands.HTTP or command.denied:
        return None
    how = f"`topicwright topic label {command.topic[:249]} {label.removeprefix(LABEL)[:60]}=…`, over HTTP or with files"
    message = f"Kafka's brokers do not store labels, so Kafka clients cannot set {label[:100]}. Set it with {how}."
    return rejected(command, Rejection(ErrorCode.INVALID_CONFIG, message, "validation:labels"))


def _elections(altered: Topic, cluster: Cluster) -> list[catalog.Event]:
    """The elections that new configs allow: of partitions without a leader (unclean election), and with KRaft brokers
    of replicas made eligible by another min.insync.replicas (KIP-966). Very large topics are left to `reconcile`."""
    if len(altered.partitions) > ELECTED_AT_ONCE_MAX:
        return []
    if all(partition.leader >= 0 for partition in altered.partitions) and not cluster.has_kraft_brokers:
        return []
    return Reconciliation(cluster).reconcile(altered, "configs changed")[1]


def _needs_dry_run(command: commands.TopicCommand, cluster: Cluster) -> bool:
    return cluster.settings.has_target_cluster and command.dry_run is None


def _changed(
    command: commands.TopicCommand,
    cluster: Cluster,
    after: Topic,
    events: tuple[catalog.Event, ...],
    answers: tuple[Answer, ...] = (),
) -> Decision:
    """Returns the decision to change a topic. With a target cluster, the answer follows when the cluster has carried
    out the change (`FinishChange`)."""
    answer = Answer(command.request_id, after.name, 0, topic=after)
    if command.validate_only or not events:
        return Decision((), (answer,))
    return Decision(events, answers if cluster.settings.has_target_cluster else (answer, *answers))


REQUESTED: dict[type[commands.TopicCommand], type[Requested]] = {
    commands.CreateTopic: catalog.RequestedCreation,
    commands.CreatePartitions: catalog.RequestedPartitions,
    commands.DeleteTopic: catalog.RequestedDeletion,
    commands.AlterTopicConfigs: catalog.RequestedConfigs,
}
"""The structs in which events have the fields of these commands, under the same names."""


def details_of(command: commands.TopicCommand) -> RequestedChange:
    """The request of a command, for the event that records it."""
    kind = REQUESTED[type(command)]
    change = kind(*(getattr(command, name) for name in kind.__struct_fields__))
    request = (command.api, command.api_version, change, command.duplicate, command.denied, command.host)
    return RequestedChange(*request, command.elsewhere)


def _check_request(command: commands.TopicCommand) -> Rejection | None:
    return validation.duplicate(command) or validation.denied(command)


def rejected(command: commands.TopicCommand, rejection: Rejection) -> Decision:
    """Returns the refusal of a command. Its answer has the rejection for each partition that the request names."""
    code, request_id, topic = int(rejection.code), command.request_id, command.topic
    named: tuple[int, ...] = getattr(command, "partitions", ())
    partitions = tuple(PartitionAnswer(one, code, rejection.message) for one in named)
    answer = Answer(request_id, topic, code, rejection.message, rejection.rule, partitions=partitions)
    is_repeated = command.api == commands.AUTO_CREATION and code == ErrorCode.TOPIC_ALREADY_EXISTS
    if command.validate_only or is_repeated:  # an earlier Metadata request created it
        return Decision((), (answer,))
    return Decision(tuple(_events_of_rejection(command, rejection)), (answer,), refusal=rejection)


def _events_of_rejection(command: commands.TopicCommand, rejection: Rejection) -> Iterator[catalog.Event]:
    """Yields the events of a refusal. Refused elections, reassignments and alterations of other resources have none."""
    code, message, rule = int(rejection.code), rejection.message, rejection.rule
    if isinstance(command, commands.CreateTopic):
        yield requested(command, command.at_ms + max(0, command.timeout_ms))
        yield catalog.CreateRejected(command.request_id, command.topic, code, message, rule, command.verdict)
        yield catalog.CreateAnswered(command.request_id, command.topic, code, message, 0)
    elif type(command) in REQUESTED:
        who = (command.principal, command.client_id, details_of(command))
        yield catalog.ChangeRejected(command.request_id, command.topic, code, message, rule, *who)


# CreatePartitions.


def _check_partitions(topic: Topic | None, command: commands.CreatePartitions, cluster: Cluster) -> Rejection | None:
    if topic is None:
        return None
    have = len(topic.partitions)
    more = command.count - have
    if more <= 0:
        message = f"The topic {topic.name} currently has {have} partition(s); {command.count} would not be an increase."
        message = f"Topic already has {have} partition(s)." if more == 0 else message
        return Rejection(ErrorCode.INVALID_PARTITIONS, message, "validation:partitions")
    rejection = validation.size(more, kind="additional partitions")
    if rejection is not None:
        return rejection
    if command.assignments is not None:
        return _check_assignments(topic, command.assignments, more, cluster)
    factor = topic.replication_factor
    floor = min_insync_replicas(topic.configs, cluster.settings)
    return validation.enough_brokers(factor, floor, cluster) or validation.placeholders(more, factor, cluster)


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


# DeleteTopics.


def _deletion_disabled(command: commands.DeleteTopic, cluster: Cluster) -> Rejection | None:
    if cluster.settings.delete_topic_enable:
        return None
    old = command.api == "DeleteTopics" and command.api_version < DELETION_DISABLED_SINCE
    code = ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED
    return Rejection(code, "Topic deletion is disabled.", "validation:delete.topic.enable")


def _check_id(topic: Topic | None, command: commands.DeleteTopic) -> Rejection | None:
    if command.topic_id is None or (topic is not None and topic.topic_id == command.topic_id):
        return None
    message = "This server does not host this topic ID."
    return Rejection(ErrorCode.UNKNOWN_TOPIC_ID, message, "validation:unknown-id")
