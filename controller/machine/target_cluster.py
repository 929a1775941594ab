"""Deciding on what a cluster that carries decisions out turns out to be like: its topics, and what it did and refused.

With the setting `has.target.cluster` another controller elects the leaders and knows the truth. What is seen there
becomes events, so that the state stays true; what it refuses after the decision was recorded is undone by events.

Observations may be old by the time they are decided on. So each says what was known of the topic when it was looked
at (`known`), and changes nothing where that is no longer so: the next look is newer.
"""

from __future__ import annotations

from msgspec.structs import replace

from controller.machine import readiness
from controller.machine.apply import after_leadership_change
from controller.machine.commands import cluster as commands
from controller.machine.decision import NOTHING, Answer, Decision, topic_named
from controller.machine.errors import ErrorCode, external_error
from controller.machine.readiness import answer_pending_create, answers_of
from controller.machine.state import Cluster, State, Topic
from controller.machine.validation import BY_CLUSTER
from events import catalog
from events.catalog import Event, IsrChanged, LeaderElected, Partition
from events.names import NO_LEADER, BrokerId, is_placeholder, shard_key

OBSERVED = "observed in the cluster"
MADE_ANEW = "deleted and made anew in the cluster"
DELETED_BEFORE_COMPLETE = "The topic was deleted in the cluster before it was complete."


def discover(state: State, command: commands.DiscoverTopic) -> Decision:
    """The cluster has a topic so: nothing if that is known, else what makes the state true."""
    topic = state.topics.get(shard_key(command.topic))
    if topic is None:
        if command.known is not None or command.configs is None:
            return NOTHING
        partitions = tuple(_new(seen, state.cluster) for seen in command.partitions)
        return Decision((_discovered(command, partitions, command.configs),))
    if topic.name != command.topic or command.known != (len(topic.partitions), topic.configs):
        return NOTHING
    if topic.topic_id != command.topic_id and not is_provisional(topic):
        return _made_anew(topic, command, state.cluster)
    return _seen_again(topic, command, state.cluster)


def is_provisional(topic: Topic) -> bool:
    """Whether the cluster has not given the topic its own id yet: no broker has confirmed it."""
    return topic.ready_at_ms is None and not topic.propagated


def _made_anew(topic: Topic, command: commands.DiscoverTopic, cluster: Cluster) -> Decision:
    if command.configs is None:
        return NOTHING
    gone = vanish(topic, MADE_ANEW, command.at_ms)
    partitions = tuple(_new(seen, cluster) for seen in command.partitions)
    return Decision((*gone.events, _discovered(command, partitions, command.configs)), gone.answers)


def _seen_again(topic: Topic, command: commands.DiscoverTopic, cluster: Cluster) -> Decision:
    configs = topic.configs if command.configs is None else command.configs
    partitions = tuple(
        _as_seen(topic.partitions[index], seen, cluster) if index < len(topic.partitions) else _new(seen, cluster)
        for index, seen in enumerate(command.partitions)
    )
    seen_topic = replace(topic, topic_id=command.topic_id, partitions=partitions, configs=configs)
    if seen_topic == topic:
        return NOTHING
    events: list[Event] = list(_steps(topic, seen_topic) or (_discovered(command, partitions, configs),))
    if topic.ready_at_ms is None:
        completed = readiness.complete(seen_topic, topic.propagated, cluster, command.at_ms)
        return Decision((*events, *completed), answers_of(completed, seen_topic))
    return Decision(tuple(events))


def _discovered(
    command: commands.DiscoverTopic, partitions: tuple[Partition, ...], configs: tuple[tuple[str, str], ...]
) -> Event:
    return catalog.TopicDiscovered(command.topic, command.topic_id, partitions, configs, command.reason or OBSERVED)


def _new(seen: commands.ObservedPartition, cluster: Cluster) -> Partition:
    """A partition that was not known before. Kafka may have none in sync (KIP-966); here one always is the last."""
    isr = tuple(replica for replica in seen.replicas if replica in seen.isr) or seen.replicas[:1]
    leader = seen.leader if seen.leader in cluster.live and seen.leader in isr else NO_LEADER
    return Partition(seen.replicas, isr, leader, max(0, seen.leader_epoch), 0)


def _as_seen(before: Partition, seen: commands.ObservedPartition, cluster: Cluster) -> Partition:
    """The partition with what was seen of it; as it was where that is older than what is known, or names a leader of
    which it is not known yet that it lives."""
    if seen.leader_epoch < before.leader_epoch or (seen.leader >= 0 and seen.leader not in cluster.live):
        return before
    replicas = _replicas(before, seen.replicas)
    isr = tuple(replica for replica in replicas if replica in seen.isr)
    if not isr or (seen.leader >= 0 and seen.leader not in isr):
        isr = tuple(member for member in before.isr if member in replicas) or seen.replicas[:1]
    leader = seen.leader if seen.leader in isr else NO_LEADER
    after = Partition(replicas, isr, leader, seen.leader_epoch, before.partition_epoch)
    return before if after == before else replace(after, partition_epoch=before.partition_epoch + 1)


def _replicas(before: Partition, seen: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    """The replicas as seen; the places that placeholders keep (KIP-409) stay, unless others have filled them."""
    if tuple(replica for replica in before.replicas if not is_placeholder(replica)) == seen:
        return before.replicas
    kept = tuple(replica for replica in before.replicas if is_placeholder(replica))
    return seen + kept[: max(0, len(before.replicas) - len(seen))]


def _steps(before: Topic, after: Topic) -> list[LeaderElected | IsrChanged]:
    """The events of leaders and in-sync sets that lead from one to the other; none if these alone do not."""
    if (before.topic_id, before.configs, len(before.partitions)) != (
        after.topic_id,
        after.configs,
        len(after.partitions),
    ):
        return []
    steps: list[LeaderElected | IsrChanged] = []
    for index, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=True)):
        if new == old:
            continue
        kind = LeaderElected if new.leader != old.leader else IsrChanged
        step = kind(before.name, index, new.leader, new.isr, new.leader_epoch, new.partition_epoch, OBSERVED)
        by_one = new.leader_epoch == old.leader_epoch + (kind is LeaderElected)
        if not by_one or after_leadership_change(old, step) != new:
            return []
        steps.append(step)
    return steps


def discover_deletion(state: State, command: commands.DiscoverDeletion) -> Decision:
    """The cluster has the topic of this id no more; a create that still waits for it is answered."""
    topic = topic_named(state, command.topic)
    if topic is None or topic.topic_id != command.topic_id:
        return NOTHING
    return vanish(topic, command.reason, command.at_ms)


def vanish(topic: Topic, reason: str, at_ms: int) -> Decision:
    """A topic is not in the cluster any more; a create that still waits for it is answered."""
    vanished = catalog.TopicVanished(topic.name, topic.topic_id, reason)
    if topic.pending_create is None:
        return Decision((vanished,))
    answered = answer_pending_create(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, DELETED_BEFORE_COMPLETE, at_ms)
    return Decision((vanished, *answered.events), answered.answers)


def refuse_creation(state: State, command: commands.RefuseCreation) -> Decision:
    """The cluster did not create a topic that was decided on: it is gone, and whoever waits for it is answered why."""
    topic = topic_named(state, command.topic)
    if topic is None or topic.topic_id != command.topic_id or not is_provisional(topic):
        return NOTHING
    refused = catalog.CreationRefused(topic.name, topic.topic_id, command.error_code, command.message)
    if topic.pending_create is None:
        return Decision((refused,))
    answered = answer_pending_create(topic, external_error(command.error_code), command.message, command.at_ms)
    return Decision((refused, *answered.events), answered.answers)


def finish_change(state: State, command: commands.FinishChange) -> Decision:
    """The cluster did what a request decided for a topic, or refused to: now its client is answered."""
    topic = topic_named(state, command.topic)
    code, message = command.error_code, command.message
    done = catalog.ChangeCarriedOut(command.request_id, command.topic, code, message)
    rule = BY_CLUSTER if code else ""
    return Decision((done,), (Answer(command.request_id, command.topic, code, message, rule, topic=topic),))
