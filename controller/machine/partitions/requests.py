"""Decides on requests about KRaft partitions, and reconciles them with the live brokers.

Brokers send AlterPartition, directories of replicas and requests for producer ids. Clients request elections (KIP-460)
and reassignments (KIP-455). Checks, their order, codes and messages are those of Kafka 4.3's ReplicationControlManager.
Each partition is answered separately. Refused requests of clients change nothing and are not recorded; the reason of a
change names the requester.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from controller.machine import validation
from controller.machine.apply import after_partition_change, with_partition
from controller.machine.commands import commands
from controller.machine.decision import NOTHING, Answer, Decision, PartitionAnswer, topic_named
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.partitions import blocks, rules
from controller.machine.partitions.changes import (
    Election,
    Ids,
    Rules,
    Target,
    change,
    is_reassigned,
    replica_metadata_of,
)
from controller.machine.partitions.rules import election_for, rules_for
from controller.machine.state import Cluster, State, Topic
from events.catalog import Event, Partition, PartitionChanged, ProducerIdsAllocated
from events.names import NO_LEADER, BrokerId, RequestId, TopicName

PRODUCER_IDS_PER_BLOCK = 1000


# Brokers come and go.


def reconcile(
    topic: Topic, cluster: Cluster, reason: str, span: blocks.Span | None = None
) -> tuple[Topic, list[Event]]:
    """Returns the topic in line with the live brokers, and the events for that. `span` limits it to some partitions."""
    events: list[Event] = []
    topic_rules, election = rules.rules_for(topic, cluster), rules.election_for(topic, cluster)
    settled: dict[int, Partition] = {}
    for index, before in blocks.numbered(topic.partitions, span):
        if rules.is_steady(before, cluster):
            continue
        filled, fills = rules.fill(topic.name, index, before, cluster)
        events += fills
        lost, unclean = rules.unavailable_members(filled, cluster), rules.unclean_members(filled, cluster)
        isr = tuple(member for member in filled.isr if member not in lost and member not in unclean)
        wanted = Target(isr=isr, unclean=unclean, election=election)
        changed = change(topic.name, index, filled, wanted, topic_rules, reason)
        if changed is not None:
            events.append(changed)
            filled = after_partition_change(filled, changed)
        if fills or changed is not None:
            settled[index] = filled
    return (replace(topic, partitions=blocks.changed(topic.partitions, settled)) if events else topic), events


def balance(topic: Topic, cluster: Cluster, span: blocks.Span | None = None) -> list[Event]:
    """Elects preferred leaders that are in sync."""
    events: list[Event] = []
    topic_rules = rules.rules_for(topic, cluster)
    for index, partition in blocks.numbered(topic.partitions, span):
        if partition.leader not in (partition.replicas[0], -1):
            changed = change(
                topic.name, index, partition, Target(election=Election.PREFERRED), topic_rules, "leaders balanced"
            )
            if changed is not None:
                events.append(changed)
    return events


# What brokers report, and are answered.


def is_stale(cluster: Cluster, broker_id: BrokerId, broker_epoch: int | None) -> bool:
    """True if the sender's broker epoch is not the registered one."""
    broker = cluster.brokers.get(broker_id)
    return broker is None or broker.broker_epoch != broker_epoch


def stale(request_id: RequestId, topic: TopicName, cluster: Cluster, broker_id: BrokerId) -> Decision:
    """The STALE_BROKER_EPOCH decision."""
    broker = cluster.brokers.get(broker_id)
    known = "is not registered" if broker is None else f"has epoch {broker.broker_epoch} now"
    message = f"Broker {broker_id} {known}."
    return Decision((), (Answer(request_id, topic, int(ErrorCode.STALE_BROKER_EPOCH), message),))


def alter_partition(state: State, command: commands.AlterPartition) -> Decision:
    """Applies the ISR reports of a leader in order. If a change completes a reassignment and elects another leader, the
    reporting leader gets an error."""
    cluster = state.cluster
    if is_stale(cluster, command.broker_id, command.broker_epoch):
        return stale(command.request_id, command.topic, cluster, command.broker_id)
    topic = topic_named(state, command.topic)
    if topic is None or command.topic_id not in (None, topic.topic_id):
        refusals = tuple(PartitionAnswer(one.partition, int(ErrorCode.UNKNOWN_TOPIC_ID)) for one in command.reports)
        return Decision((), (Answer(command.request_id, command.topic, 0, partitions=refusals),))
    events: list[Event] = []
    answers: list[PartitionAnswer] = []
    topic_rules, election = rules.rules_for(topic, cluster), rules.election_for(topic, cluster)
    for report in command.reports:
        changed, answer = _report(topic, command.broker_id, report, cluster, topic_rules, election)
        answers.append(answer)
        if changed is not None:
            events.append(changed)
            after = after_partition_change(topic.partitions[report.partition], changed)
            topic = with_partition(topic, report.partition, after)
    return Decision(tuple(events), (Answer(command.request_id, topic.name, 0, partitions=tuple(answers)),))


def _report(
    topic: Topic,
    broker_id: BrokerId,
    report: commands.IsrReport,
    cluster: Cluster,
    topic_rules: Rules,
    election: Election,
) -> tuple[PartitionChanged | None, PartitionAnswer]:
    if not 0 <= report.partition < len(topic.partitions):
        return None, PartitionAnswer(report.partition, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    partition = topic.partitions[report.partition]
    code = refusal(partition, broker_id, report, cluster)
    if code is not None:
        return None, PartitionAnswer(report.partition, int(code))
    wanted = Target(isr=report.isr, recovering=report.recovering, election=election)
    changed = change(topic.name, report.partition, partition, wanted, topic_rules, f"reported by broker {broker_id}")
    if changed is None:
        return None, PartitionAnswer(report.partition, 0, "", partition)
    if changed.leader not in (None, broker_id):
        return changed, PartitionAnswer(report.partition, int(ErrorCode.NEW_LEADER_ELECTED))
    return changed, PartitionAnswer(report.partition, 0, "", after_partition_change(partition, changed))


def refusal(
    partition: Partition, broker_id: BrokerId, report: commands.IsrReport, cluster: Cluster
) -> ErrorCode | None:
    """Returns the error code of an ISR report, or None if it is accepted."""
    if report.leader_epoch > partition.leader_epoch or report.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # the leader knows a newer epoch than this controller
    if report.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if report.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not _is_valid_isr(report.isr, partition):
        return ErrorCode.INVALID_REQUEST
    if report.recovering and (len(report.isr) > 1 or not replica_metadata_of(partition).recovering):
        return ErrorCode.INVALID_REQUEST
    return None if _are_eligible(report, cluster) else ErrorCode.INELIGIBLE_REPLICA


def _is_valid_isr(isr: Ids, partition: Partition) -> bool:
    distinct = len(set(isr)) == len(isr)
    return distinct and partition.leader in isr and all(one >= 0 and one in partition.replicas for one in isr)


def _are_eligible(report: commands.IsrReport, cluster: Cluster) -> bool:
    """True if all members are live with the broker epochs that the leader knows (KIP-903)."""
    epochs = report.broker_epochs or (-1,) * len(report.isr)
    return all(
        cluster.is_live(member) and epoch in (-1, cluster.brokers[member].broker_epoch)
        for member, epoch in zip(report.isr, epochs, strict=True)
    )


def assign_directories(state: State, command: commands.AssignDirectories) -> Decision:
    """Records the directories of replicas (KIP-858). A replica in a failed directory neither leads nor is in sync."""
    cluster = state.cluster
    if is_stale(cluster, command.broker_id, command.broker_epoch):
        return stale(command.request_id, command.topic, cluster, command.broker_id)
    topic = topic_named(state, command.topic)
    if topic is None or topic.topic_id != command.topic_id:
        code = int(ErrorCode.UNKNOWN_TOPIC_ID)
        refusals = tuple(PartitionAnswer(index, code) for index, _ in command.directories)
        return Decision((), (Answer(command.request_id, command.topic, 0, partitions=refusals),))
    events: list[Event] = []
    answers: list[PartitionAnswer] = []
    topic_rules, election = rules.rules_for(topic, cluster), rules.election_for(topic, cluster)
    for index, directory in command.directories:
        refused = _not_a_replica(topic, index, command.broker_id)
        answers.append(PartitionAnswer(index, int(refused or 0)))
        if refused is None:
            for changed in _assigned(topic, index, command.broker_id, directory, cluster, topic_rules, election):
                events.append(changed)
                topic = with_partition(topic, index, after_partition_change(topic.partitions[index], changed))
    return Decision(tuple(events), (Answer(command.request_id, topic.name, 0, partitions=tuple(answers)),))


def _not_a_replica(topic: Topic, index: int, broker_id: BrokerId) -> ErrorCode | None:
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None if broker_id in topic.partitions[index].replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _assigned(
    topic: Topic,
    index: int,
    broker_id: BrokerId,
    directory: bytes,
    cluster: Cluster,
    topic_rules: Rules,
    election: Election,
) -> Iterator[PartitionChanged]:
    partition, broker = topic.partitions[index], cluster.brokers[broker_id]
    others = tuple(member for member in partition.isr if member != broker_id)
    reason = f"directory reported by broker {broker_id}"
    to = Target(directories={broker_id: directory})
    was_online = rules.is_online(broker, rules.directory_of(partition, broker_id))
    if rules.is_online(broker, directory) and not was_online:
        # The replica was recreated empty. A live broker is only in sync with its current registration.
        to = replace(to, isr=None if cluster.is_live(broker_id) else others, unclean=(broker_id,))
    assigned = change(topic.name, index, partition, to, topic_rules, reason)
    if assigned is not None:
        yield assigned
        partition = after_partition_change(partition, assigned)
    if not rules.is_online(broker, directory):
        then, reason = Target(isr=others, election=election), f"directory of broker {broker_id} failed"
    elif partition.leader == NO_LEADER:  # the reported directory may allow this replica to lead
        then, reason = Target(election=election), f"directory of broker {broker_id} is online"
    else:
        return
    changed = change(topic.name, index, partition, then, topic_rules, reason)
    if changed is not None:
        yield changed


def allocate_producer_ids(state: State, command: commands.AllocateProducerIds) -> Decision:
    """Allocates a block of producer ids (KIP-730)."""
    cluster = state.cluster
    if is_stale(cluster, command.broker_id, command.broker_epoch):
        return stale(command.request_id, command.topic, cluster, command.broker_id)
    first = cluster.next_producer_id
    event = ProducerIdsAllocated(command.broker_id, command.broker_epoch, first, first + PRODUCER_IDS_PER_BLOCK)
    return Decision((event,), (Answer(command.request_id, command.topic, 0, number=first),))


Outcome = PartitionChanged | Rejection | None
_RULE = "validation:partition"


def balance_leaders(state: State, command: commands.BalanceLeaders) -> Decision:
    events: list[Event] = []
    for name in dict.fromkeys(command.topics):
        topic = topic_named(state, name)
        if topic is not None:
            events += balance(topic, state.cluster, command.span)
    return Decision(tuple(events)) if events else NOTHING


def elect_leaders(state: State, command: commands.ElectLeaders) -> Decision:
    topic = topic_named(state, command.topic)
    steps = [(index, _elected(topic, index, command, state.cluster)) for index in dict.fromkeys(command.partitions)]
    return _answered(command, steps)


def _elected(topic: Topic | None, index: int, command: commands.ElectLeaders, cluster: Cluster) -> Outcome:
    if topic is None:
        return _no_such(f"No such topic as {command.topic}")
    if not 0 <= index < len(topic.partitions):
        return _no_such(f"No such partition as {topic.name}-{index}")
    partition = topic.partitions[index]
    if partition.leader >= 0 if command.unclean else partition.leader == partition.replicas[0]:
        return _refused(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    election = Election.UNCLEAN if command.unclean else Election.PREFERRED
    reason = f"{election.value} election requested by {command.principal}"
    changed = change(topic.name, index, partition, Target(election=election), rules_for(topic, cluster), reason)
    if changed is not None:
        return changed
    if command.unclean:
        code, who = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are"
    else:
        code, who = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was"
    return _refused(code, f"{who} not available.")


def reassign_partitions(state: State, command: commands.ReassignPartitions) -> Decision:
    """Reassigns partitions, or cancels that. A new order of the same replicas takes effect immediately, other changes
    when the added replicas are in sync."""
    topic = topic_named(state, command.topic)
    steps: list[tuple[int, Outcome]] = []
    for wanted in command.reassignments:
        outcome = _reassigned(topic, wanted, command, state.cluster)
        steps.append((wanted.partition, outcome))
        if topic is not None and isinstance(outcome, PartitionChanged):
            after = after_partition_change(topic.partitions[wanted.partition], outcome)
            topic = with_partition(topic, wanted.partition, after)
    return _answered(command, steps)


def _reassigned(
    topic: Topic | None, wanted: commands.Reassignment, command: commands.ReassignPartitions, cluster: Cluster
) -> Outcome:
    index = wanted.partition
    if topic is None:
        return _no_such(f"Unable to find a topic named {command.topic}.")
    if not 0 <= index < len(topic.partitions):
        return _no_such(f"Unable to find partition {topic.name}:{index}.")
    partition = topic.partitions[index]
    if wanted.replicas is None:
        return _cancelled(topic, index, partition, command.principal, cluster)
    rejection = validation.replica_list(index, wanted.replicas, None, cluster, one_live=False)
    if rejection is None and not command.other_factors:
        rejection = _other_factor(partition, wanted.replicas)
    if rejection is not None:
        return rejection
    reason = f"reassignment requested by {command.principal}"
    return change(topic.name, index, partition, _moved(partition, wanted.replicas), rules_for(topic, cluster), reason)


def _moved(partition: Partition, target: Ids) -> Target:
    """Puts the target first, then the replicas to be removed. Placeholders need no removal, and replicas that a
    reassignment in progress adds are still to be added."""
    settled = [one for one in partition.replicas if one not in replica_metadata_of(partition).adding]
    removing = tuple(sorted(one for one in partition.replicas if one >= 0 and one not in target))
    adding = tuple(sorted(one for one in target if one not in settled))
    return Target(replicas=(*target, *removing), adding=adding, removing=removing)


def _other_factor(partition: Partition, target: Ids) -> Rejection | None:
    removing = replica_metadata_of(partition).removing
    have = sum(one not in removing for one in partition.replicas)
    if have == len(target):
        return None
    message = f"The replication factor is changed from {have} to {len(target)}"
    return _refused(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _cancelled(topic: Topic, index: int, partition: Partition, principal: str, cluster: Cluster) -> Outcome:
    if not is_reassigned(partition):
        return _refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    adding = replica_metadata_of(partition).adding
    replicas = tuple(one for one in partition.replicas if one not in adding)
    isr = tuple(one for one in partition.isr if one not in adding)
    election = election_for(topic, cluster)
    if not isr and election is not Election.UNCLEAN:
        message = (
            f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
            "leader election."
        )
        return _refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    wanted = Target(isr=isr or replicas[:1], replicas=replicas, adding=(), removing=(), election=election)
    reason = f"reassignment cancelled by {principal}"
    return change(topic.name, index, partition, wanted, rules_for(topic, cluster), reason)


def _no_such(message: str) -> Rejection:
    return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def _refused(code: ErrorCode, message: str) -> Rejection:
    return Rejection(code, message, _RULE)


def _answered(command: commands.TopicCommand, steps: list[tuple[int, Outcome]]) -> Decision:
    answers = tuple(
        PartitionAnswer(index, int(outcome.code), outcome.message)
        if isinstance(outcome, Rejection)
        else PartitionAnswer(index)
        for index, outcome in steps
    )
    events = tuple(outcome for _, outcome in steps if isinstance(outcome, PartitionChanged))
    return Decision(events, (Answer(command.request_id, TopicName(command.topic), 0, partitions=answers),))
