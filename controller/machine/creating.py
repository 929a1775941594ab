"""Deciding on creates: KIP-4's rules, KIP-108's policy verdicts, KIP-409's missing brokers."""

from __future__ import annotations

from controller.machine import validation
from controller.machine.commands.commands import AUTO_CREATION, CreateTopic
from controller.machine.configs.topic_configs import explicit_configs, min_insync_replicas, validate_topic_configs
from controller.machine.decision import NEEDS_APPROVAL, Answer, Decision
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.partitions import leadership
from controller.machine.state import Cluster, State, Topic
from events.catalog import CreateAnswered, CreateRejected, CreateRequested, Partition, TopicCreated
from events.names import Offset, shard_key

POLICY_FAILED = "The create-topic policy failed; the controller's log has the cause."

_NOT_LOGGED = Offset(-1)
"""The offset of a topic that an answer shows before it is in the log."""


def create_topic(state: State, command: CreateTopic) -> Decision:
    """Create a topic, refuse it, show what would be created, or ask for the policies' verdict."""
    cluster = state.cluster
    rejection = _check_create(state, command)
    if rejection is not None:
        return _reject_create(command, rejection)
    verdict = command.verdict
    if verdict is None:
        if cluster.settings.create_topic_policy_class_name:
            return NEEDS_APPROVAL
    elif verdict.outcome == "refused":
        return _reject_create(command, Rejection(ErrorCode.POLICY_VIOLATION, verdict.message, verdict.rule))
    elif verdict.outcome == "failed":
        return _reject_create(command, Rejection(ErrorCode.UNKNOWN_SERVER_ERROR, POLICY_FAILED, verdict.rule))
    refused = validation.dry_run_rejection(command)
    if refused is not None:
        return _reject_create(command, refused)
    if command.dry_run is None and cluster.settings.has_target_cluster:
        return NEEDS_APPROVAL
    throttled = validation.throttled(command)
    return _created(cluster, command) if throttled is None else _reject_create(command, throttled)


def _check_create(state: State, command: CreateTopic) -> Rejection | None:
    cluster = state.cluster
    return (
        validation.duplicate(command)
        or validation.internal(command.topic)
        or validation.denied(command)
        or validation.name(command.topic)
        or validation.not_existing(command, state.topics.get(shard_key(command.topic)))
        or (validate_topic_configs(command.configs, cluster.settings.defaults_in_force) if command.configs else None)
        or validation.counts(command)
        or validation.size(validation.resolved_partitions(command, cluster.settings), 1 + len(command.configs))
        or (validation.assignment(command.assignments, cluster) if command.assignments else None)
        or _check_brokers(cluster, command)
    )


def _check_brokers(cluster: Cluster, command: CreateTopic) -> Rejection | None:
    factor = validation.resolved_factor(command, cluster.settings)
    if command.assignments or factor <= len(cluster.usable):
        return None
    floor = min_insync_replicas(explicit_configs(command.configs), cluster.settings)
    count = validation.resolved_partitions(command, cluster.settings)
    rejection = validation.enough_brokers(factor, floor, cluster) or validation.placeholders(count, factor, cluster)
    if rejection is None or command.replication_factor != -1:
        return rejection
    return Rejection(rejection.code, f"{rejection.message} {_FACTOR_BY_DEFAULT}", rejection.rule)


_FACTOR_BY_DEFAULT = "The request names no factor; this one is the default (default.replication.factor)."


def _created(cluster: Cluster, command: CreateTopic) -> Decision:
    partitions = _planned_partitions(cluster, command)
    factor = len(partitions[0].replicas)
    configs = explicit_configs(command.configs) if command.configs else ()
    name, request_id, at_ms = command.topic, command.request_id, command.at_ms
    topic = Topic(name, command.topic_id, partitions, configs, at_ms, _NOT_LOGGED)
    if command.validate_only:
        return Decision((), (Answer(request_id, name, 0, topic=topic),))
    deadline_ms = at_ms + max(0, command.timeout_ms)
    created = TopicCreated(
        request_id,
        name,
        command.topic_id,
        partitions,
        factor,
        configs,
        command.verdict,
        cluster.live,
        deadline_ms,
        cordoned_brokers=cluster.cordoned,
    )
    if command.timeout_ms > 0:
        return Decision((_requested(command, deadline_ms), created))
    code = ErrorCode.REQUEST_TIMED_OUT
    message = f"The topic was created; with timeout_ms {command.timeout_ms} its completion is not waited for."
    return Decision(
        (_requested(command, deadline_ms), created, CreateAnswered(request_id, name, int(code), message, 0)),
        (Answer(request_id, name, code, message, topic=topic),),
    )


def _planned_partitions(cluster: Cluster, command: CreateTopic) -> tuple[Partition, ...]:
    if command.assignments:
        by_id = sorted(command.assignments, key=lambda one: one.partition)
        return tuple(leadership.new_partition(one.replicas, cluster) for one in by_id)
    settings = cluster.settings
    count = validation.resolved_partitions(command, settings)
    return leadership.new_partitions(cluster, command.topic, 0, count, validation.resolved_factor(command, settings))


def _requested(command: CreateTopic, deadline_ms: int) -> CreateRequested:
    return CreateRequested(
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
    )


def _reject_create(command: CreateTopic, rejection: Rejection) -> Decision:
    code, request_id, topic = int(rejection.code), command.request_id, command.topic
    answer = Answer(request_id, topic, code, rejection.message, rejection.rule)
    is_repeated = command.api == AUTO_CREATION and rejection.code == ErrorCode.TOPIC_ALREADY_EXISTS
    if command.validate_only or is_repeated:  # an earlier Metadata created it: the client gets what it wants
        return Decision((), (answer,))
    events = (
        _requested(command, command.at_ms + max(0, command.timeout_ms)),
        CreateRejected(request_id, topic, code, rejection.message, rejection.rule, command.verdict),
        CreateAnswered(request_id, topic, code, rejection.message, 0),
    )
    return Decision(events, (answer,), refusal=rejection)
