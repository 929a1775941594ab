"""Decides on observations of the target cluster: its topics, and the changes that it applied or refused.

With a target cluster, that cluster's controller elects the leaders, and its metadata is the source of truth. The log
records this as `has.target.cluster`, which users cannot set. Observed differences become events, so that the state
follows the cluster. If the cluster refuses a change that is already recorded, events undo it.

An observation may be stale when it is decided. So the command's field `known` has the partition count and configs that
the state had when the cluster was observed. If they have changed since, the observation is ignored; a newer one
follows.
"""

from msgspec.structs import replace

from controller.machine.commands import commands
from controller.machine.configs.topic_configs import with_labels_of
from controller.machine.decision import NOTHING, Answer, Decision, topic_named
from controller.machine.errors import ErrorCode
from controller.machine.observing import answer_pending_create, complete
from controller.machine.state import Cluster, State, Topic
from controller.machine.validation import BY_CLUSTER
from events import catalog
from events.catalog import Event, Partition, PartitionChanged
from events.names import NO_LEADER, BrokerId, is_placeholder, shard_key

OBSERVED = "observed in the cluster"
RECREATED = "deleted and recreated in the cluster"


def discover(state: State, command: commands.DiscoverTopic) -> Decision:
    """Records the observed state of a topic; no events if it is already known."""
    topic = state.topics.get(shard_key(command.topic))
    known = None if topic is None else (len(topic.partitions), topic.configs)
    if command.known != known or (topic is not None and topic.name != command.topic):
        return NOTHING
    if topic is not None and (topic.topic_id == command.topic_id or is_provisional(topic)):
        return _seen_again(topic, command, state.cluster)
    if command.configs is None:
        return NOTHING
    gone = NOTHING if topic is None else vanish(topic, RECREATED, command.at_ms)
    partitions = tuple(_new(seen, state.cluster) for seen in command.partitions)
    return Decision((*gone.events, _discovered(command, partitions, command.configs)), gone.answers)


def is_provisional(topic: Topic) -> bool:
    """True if the target cluster has not assigned its own topic id to the topic yet."""
    return topic.ready_at_ms is None and not topic.propagated


def _seen_again(topic: Topic, command: commands.DiscoverTopic, cluster: Cluster) -> Decision:
    configs = topic.configs if command.configs is None else with_labels_of(topic.configs, command.configs)
    partitions = tuple(
        _as_seen(topic.partitions[index], seen, cluster) if index < len(topic.partitions) else _new(seen, cluster)
        for index, seen in enumerate(command.partitions)
    )
    seen_topic = replace(topic, topic_id=command.topic_id, partitions=partitions, configs=configs)
    if seen_topic == topic:
        return NOTHING
    events: list[Event] = [*_steps(topic, seen_topic)] or [_discovered(command, partitions, configs)]
    if topic.ready_at_ms is not None:
        return Decision(tuple(events))
    completed = complete(seen_topic, topic.propagated, cluster, command.at_ms)
    return Decision((*events, *completed.events), completed.answers)


def _discovered(
    command: commands.DiscoverTopic, partitions: tuple[Partition, ...], configs: tuple[tuple[str, str], ...]
) -> Event:
    return catalog.TopicDiscovered(command.topic, command.topic_id, partitions, configs, command.reason or OBSERVED)


def _new(seen: Partition, cluster: Cluster) -> Partition:
    """A newly observed partition. Kafka may have an empty ISR (KIP-966); here the ISR always has a member."""
    isr = tuple(replica for replica in seen.replicas if replica in seen.isr) or seen.replicas[:1]
    leader = seen.leader if seen.leader in cluster.live and seen.leader in isr else NO_LEADER
    return Partition(seen.replicas, isr, leader, max(0, seen.leader_epoch), 0)


def _as_seen(before: Partition, seen: Partition, cluster: Cluster) -> Partition:
    """The partition as observed; the known partition if the observation is older, or names a leader that is not known
    to be live yet."""
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
    """The observed replicas, and the remaining placeholders (KIP-409)."""
    if tuple(replica for replica in before.replicas if not is_placeholder(replica)) == seen:
        return before.replicas
    kept = tuple(replica for replica in before.replicas if is_placeholder(replica))
    return seen + kept[: max(0, len(before.replicas) - len(seen))]


def _steps(before: Topic, after: Topic) -> list[PartitionChanged]:
    """The changes of leaders and ISRs from `before` to `after`; empty if anything else changed or a step was missed."""
    is_same_topic = (before.topic_id, before.configs) == (after.topic_id, after.configs)
    if not is_same_topic or len(before.partitions) != len(after.partitions):
        return []
    pairs = zip(before.partitions, after.partitions, strict=True)
    steps = [PartitionChanged(before.name, n, old, new, OBSERVED) for n, (old, new) in enumerate(pairs) if new != old]
    by_one = (one.after.leader_epoch == one.before.leader_epoch + one.has_new_leader for one in steps)
    return steps if all(by_one) and all(one.after.replicas == one.before.replicas for one in steps) else []


def discover_deletion(state: State, command: commands.DiscoverDeletion) -> Decision:
    topic = topic_named(state, command.topic)
    if topic is None or topic.topic_id != command.topic_id:
        return NOTHING
    return vanish(topic, command.reason, command.at_ms)


def vanish(topic: Topic, reason: str, at_ms: int) -> Decision:
    """Removes a topic that the target cluster no longer has, and answers the topic's pending create."""
    vanished = catalog.TopicVanished(topic.name, topic.topic_id, reason)
    message = "The topic was deleted in the cluster before it was complete."
    return answer_pending_create(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, at_ms, vanished)


def refuse_creation(state: State, command: commands.RefuseCreation) -> Decision:
    """Removes a topic that the cluster refused to create. The pending create is answered with the cluster's error."""
    topic = topic_named(state, command.topic)
    if topic is None or topic.topic_id != command.topic_id or not is_provisional(topic):
        return NOTHING
    refused = catalog.CreationRefused(topic.name, topic.topic_id, command.error_code, command.message)
    return answer_pending_create(topic, command.error_code, command.message, command.at_ms, refused)


def finish_change(state: State, command: commands.FinishChange) -> Decision:
    topic = topic_named(state, command.topic)
    code, message = command.error_code, command.message
    done = catalog.ChangeCarriedOut(command.request_id, command.topic, code, message)
    rule = BY_CLUSTER if code else ""
    return Decision((done,), (Answer(command.request_id, command.topic, code, message, rule, topic=topic),))
