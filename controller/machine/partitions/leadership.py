"""Leaders, ISRs and epochs of simulated partitions as brokers come and go.

Constraints are those of Kafka's KRaft controller (KIP-497, KIP-631). Only a live member of the ISR leads, unless the
topic allows unclean election. A fenced broker leaves the ISR, but never as its last member, so that no acknowledged
record is lost. `leader_epoch` rises when the leader changes, `partition_epoch` with every change. Placeholders
(KIP-409) neither lead nor are in sync.

Method: `reconcile` compares a topic with the live brokers. The result depends on the state only and repeating it
changes nothing, so the shell may call it at any time and in any slices.

It does not move leadership back to the preferred replica, and does not reassign replicas.
"""

from __future__ import annotations

from msgspec.structs import replace

from controller.machine.commands.commands import IsrReport
from controller.machine.configs.topic_configs import allows_unclean_election
from controller.machine.errors import ErrorCode
from controller.machine.partitions import requests, rules
from controller.machine.partitions.blocks import Span, changed, numbered
from controller.machine.partitions.rules import (
    effective_min_isr,
    elr_must_be_cleared,
    fill,
    has_kraft_brokers,
    is_filled,
    is_up_to_date,
    new_replica_metadata,
)
from controller.machine.state import Cluster, Topic
from events.catalog import Event, IsrChanged, LeaderElected, Partition
from events.names import NO_LEADER, BrokerId, TopicName

LeadershipChange = LeaderElected | IsrChanged


def new_partition(replicas: tuple[BrokerId, ...], cluster: Cluster) -> Partition:
    """A new partition: all live replicas are in sync, and the first of them leads."""
    isr = tuple(replica for replica in replicas if replica in cluster.live)
    return Partition(
        replicas, isr, isr[0] if isr else NO_LEADER, replica_metadata=new_replica_metadata(replicas, cluster)
    )


def new_partitions(cluster: Cluster, topic: str, first: int, count: int, factor: int) -> tuple[Partition, ...]:
    """Returns the partitions `first` to `first + count - 1` of a topic, with automatic placement."""
    ring = rules.rack_ring(cluster.usable, cluster.usable_racks)
    replica_lists = rules.place(topic, ring, first, count, factor)
    if factor <= len(cluster.usable) and not has_kraft_brokers(cluster):
        return tuple(Partition(replicas, replicas, replicas[0]) for replicas in replica_lists)
    return tuple(new_partition(replicas, cluster) for replicas in replica_lists)


def reconcile(topic: Topic, cluster: Cluster, reason: str, span: Span | None = None) -> tuple[Topic, list[Event]]:
    """Returns the topic in line with the live brokers, and the events for that. `span` limits it to some partitions."""
    if has_kraft_brokers(cluster):
        return requests.reconcile(topic, cluster, reason, span)
    events: list[Event] = []
    settled: dict[int, Partition] = {}
    for index, before in numbered(topic.partitions, span):
        filled, fills = fill(topic.name, index, before, cluster)
        events += fills
        if fills:
            settled[index] = filled
        if cluster.settings.has_target_cluster:
            continue  # the target cluster elects its leaders
        after, how = _led(filled, topic, cluster)
        change = _change(topic.name, index, filled, after, how + reason)
        if change is not None:
            events.append(change)
            settled[index] = after
    return (replace(topic, partitions=changed(topic.partitions, settled)) if events else topic), events


def is_in_sync(partition: Partition, live: tuple[BrokerId, ...]) -> bool:
    """True if every live replica is in sync."""
    return all(replica in partition.isr for replica in partition.replicas if replica in live)


def is_reconciled(topic: Topic, cluster: Cluster, span: Span | None = None) -> bool:
    """True if `reconcile` would change nothing. May return False although nothing would change."""
    live = cluster.live
    partitions = (partition for _, partition in numbered(topic.partitions, span))
    if cluster.settings.has_target_cluster:
        return all(is_filled(partition, cluster) for partition in partitions)
    if has_kraft_brokers(cluster):
        enough = effective_min_isr(topic, cluster)
        return all(is_up_to_date(each, cluster) and not elr_must_be_cleared(each, enough) for each in partitions)
    for partition in partitions:
        if partition.leader not in live and (
            partition.leader >= 0 or any(replica in live for replica in partition.replicas)
        ):
            return False
        if any(member not in live for member in partition.isr) and len(partition.isr) > 1:
            return False
        if not is_filled(partition, cluster):
            return False
    return True


def _led(partition: Partition, topic: Topic, cluster: Cluster) -> tuple[Partition, str]:
    """Returns the partition under the live brokers, and the beginning of the reason for the change."""
    live = cluster.live
    isr = tuple(member for member in partition.isr if member in live) or partition.isr
    if partition.leader in live and partition.leader in isr:
        return _moved(partition, partition.leader, isr), ""
    leader = _first_live(tuple(replica for replica in partition.replicas if replica in isr), cluster)
    if leader == NO_LEADER and allows_unclean_election(topic.configs, cluster.settings):
        leader = _first_live(partition.replicas, cluster)
        if leader != NO_LEADER:
            return _moved(partition, leader, (leader,)), "unclean election: "
    return _moved(partition, leader, isr), ""


def _first_live(replicas: tuple[BrokerId, ...], cluster: Cluster) -> BrokerId:
    return next((replica for replica in replicas if replica in cluster.live), NO_LEADER)


def _moved(before: Partition, leader: BrokerId, isr: tuple[BrokerId, ...]) -> Partition:
    """Returns the partition with this leader and ISR and raised epochs; the very same if nothing changes."""
    if leader == before.leader and isr == before.isr:
        return before
    leader_epoch = before.leader_epoch + (leader != before.leader)
    return Partition(before.replicas, isr, leader, leader_epoch, before.partition_epoch + 1)


def _change(topic: TopicName, index: int, before: Partition, after: Partition, reason: str) -> LeadershipChange | None:
    if after is before:
        return None
    kind = LeaderElected if after.leader != before.leader else IsrChanged
    return kind(topic, index, after.leader, after.isr, after.leader_epoch, after.partition_epoch, reason)


def accept_isr(
    topic: Topic, broker_id: BrokerId, report: IsrReport, cluster: Cluster
) -> LeadershipChange | ErrorCode | None:
    """Returns the event for an ISR report, None if nothing changes, or the error code of AlterPartition."""
    if not 0 <= report.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = topic.partitions[report.partition]
    code = requests.refusal(partition, broker_id, report, cluster)
    if code is not None:
        return code
    isr = tuple(replica for replica in partition.replicas if replica in report.isr)
    after = _moved(partition, partition.leader, isr)
    return _change(topic.name, report.partition, partition, after, "reported by the leader")


def without_leader(
    topic: Topic, index: int, broker_id: BrokerId, cluster: Cluster, reason: str
) -> LeadershipChange | None:
    """Elects another leader if the leader cannot serve; -1 if nobody else may lead."""
    partition = topic.partitions[index]
    if partition.leader != broker_id:
        return None
    others = tuple(member for member in partition.isr if member != broker_id and member in cluster.live)
    leader = next((replica for replica in partition.replicas if replica in others), NO_LEADER)
    return _change(topic.name, index, partition, _moved(partition, leader, others or partition.isr), reason)
