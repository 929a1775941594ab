"""Decides on requests about partitions, for `decide`.

Brokers send AlterPartition, AssignReplicasToDirs and AllocateProducerIds. Clients send ElectLeaders (KIP-460) and
AlterPartitionReassignments (KIP-455). Checks, their order, codes and messages are those of Kafka 4.3's
ReplicationControlManager. Each partition is answered separately. Refused requests of clients change nothing and are not
recorded. The `reason` of a PartitionChanged event names the principal.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from controller.machine import validation
from controller.machine.commands import commands
from controller.machine.decision import Decision, PartitionAnswer, answered, topic_named
from controller.machine.errors import ErrorCode
from controller.machine.partitions.blocks import numbered
from controller.machine.partitions.changes import Election, Target, TopicChanges, is_reassigned, without
from controller.machine.partitions.placement import UNASSIGNED, Ids, directories_of, is_online, replica_metadata_of
from controller.machine.state import Cluster, State
from events.catalog import Event, Partition, ProducerIdsAllocated
from events.names import NO_LEADER, BrokerId

PRODUCER_IDS_PER_BLOCK = 1000
"""The size of Kafka's producer id blocks (KIP-730)."""
_PartitionsCommand = (
    commands.AlterPartition | commands.AssignDirectories | commands.ElectLeaders | commands.ReassignPartitions
)


# Brokers.


def stale(
    cluster: Cluster, command: commands.AlterPartition | commands.BrokerCommand | commands.RegisteredCommand
) -> Decision | None:
    """The refusal of a command whose broker epoch is not the registered one. A command without an epoch has none."""
    broker = cluster.brokers.get(command.broker_id)
    if command.broker_epoch is None or (broker is not None and broker.broker_epoch == command.broker_epoch):
        return None
    known = "is not registered" if broker is None else f"has epoch {broker.broker_epoch} now"
    message = f"Broker {command.broker_id} {known}."
    return answered(command, code=ErrorCode.STALE_BROKER_EPOCH, message=message)


def alter_partition(state: State, command: commands.AlterPartition) -> Decision:
    """Applies the ISR reports of a leader in order. If a report completes a reassignment that elects another leader,
    the reporting leader gets an error. Simulated brokers send no broker epoch, and need no answer."""
    cluster, is_simulated = state.cluster, command.broker_epoch is None
    if (refused := stale(cluster, command)) is not None:
        return refused
    topic = topic_named(state, command.topic)
    if topic is None or command.topic_id not in (None, topic.topic_id):
        decision = _unknown(command, [one.partition for one in command.reports])
    else:
        changes = TopicChanges(topic, cluster)
        answers = [_report(changes, command.broker_id, report) for report in command.reports]
        decision = _decision(command, changes, answers)
    return Decision(decision.events) if is_simulated else decision


def _unknown(command: _PartitionsCommand, indexes: Sequence[int]) -> Decision:
    return _decision(command, None, [_refused(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in indexes])


def _decision(
    command: _PartitionsCommand, changes: TopicChanges | None, answers: Sequence[PartitionAnswer]
) -> Decision:
    return answered(command, *([] if changes is None else changes.events), partitions=tuple(answers))


def _report(changes: TopicChanges, broker_id: BrokerId, report: commands.IsrReport) -> PartitionAnswer:
    index, partition = report.partition, changes.partition(report.partition)
    if partition is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    code = refusal(partition, broker_id, report, changes.cluster)
    if code is not None:
        return _refused(index, code)
    target = Target(isr=report.isr, recovering=report.recovering, election=changes.election)
    after = changes.change(index, target, f"reported by broker {broker_id}") or partition
    if after.leader != broker_id:
        return _refused(index, ErrorCode.NEW_LEADER_ELECTED)
    return PartitionAnswer(index, 0, "", after)


def refusal(
    partition: Partition, broker_id: BrokerId, report: commands.IsrReport, cluster: Cluster
) -> ErrorCode | None:
    """Returns the error code of an ISR report, or None if it is accepted."""
    if report.leader_epoch > partition.leader_epoch or report.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # the reporting leader knows a newer epoch than this controller
    if report.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if report.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members, known_epochs = set(report.isr), zip(report.isr, report.broker_epochs, strict=False)
    if len(members) < len(report.isr) or partition.leader not in members or min(members) < 0:
        return ErrorCode.INVALID_REQUEST
    if not members <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if report.recovering and (len(report.isr) > 1 or not replica_metadata_of(partition).recovering):
        return ErrorCode.INVALID_REQUEST
    if not all(map(cluster.is_live, report.isr)):
        return ErrorCode.INELIGIBLE_REPLICA
    is_eligible = all(epoch in (-1, cluster.brokers[member].broker_epoch) for member, epoch in known_epochs)  # KIP-903
    return None if is_eligible else ErrorCode.INELIGIBLE_REPLICA


def assign_directories(state: State, command: commands.AssignDirectories) -> Decision:
    """Records the directories of replicas (KIP-858). A replica in a failed directory neither leads nor is in sync."""
    if (refused := stale(state.cluster, command)) is not None:
        return refused
    topic = topic_named(state, command.topic)
    if topic is None or topic.topic_id != command.topic_id:
        return _unknown(command, [index for index, _ in command.directories])
    changes = TopicChanges(topic, state.cluster)
    answers = [_assign(changes, index, command.broker_id, directory) for index, directory in command.directories]
    return _decision(command, changes, answers)


def _assign(changes: TopicChanges, index: int, broker_id: BrokerId, directory: bytes) -> PartitionAnswer:
    partition = changes.partition(index)
    if partition is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in partition.replicas:
        return _refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    broker = changes.cluster.brokers[broker_id]
    others = without(partition.isr, (broker_id,))
    to = Target(directories={broker_id: directory})
    was_online = is_online(broker, directories_of(partition).get(broker_id, UNASSIGNED))
    if is_online(broker, directory) and not was_online:
        # The replica was recreated empty. A live broker is only in sync with its current registration.
        to = replace(to, isr=None if changes.cluster.is_live(broker_id) else others, unclean=(broker_id,))
    partition = changes.change(index, to, f"directory reported by broker {broker_id}") or partition
    if not is_online(broker, directory):
        changes.change(index, Target(isr=others, election=changes.election), f"directory of broker {broker_id} failed")
    elif partition.leader == NO_LEADER:  # the reported directory may allow this replica to lead
        changes.change(index, Target(election=changes.election), f"directory of broker {broker_id} is online")
    return PartitionAnswer(index)


def allocate_producer_ids(state: State, command: commands.AllocateProducerIds) -> Decision:
    if (refused := stale(state.cluster, command)) is not None:
        return refused
    first = state.cluster.next_producer_id
    event = ProducerIdsAllocated(command.broker_id, command.broker_epoch, first, first + PRODUCER_IDS_PER_BLOCK)
    return answered(command, event, number=first)


# Clients, and the controller itself.


def balance_leaders(state: State, command: commands.BalanceLeaders) -> Decision:
    """Elects preferred leaders (auto.leader.rebalance.enable). `command.partitions` limits it to some partitions."""
    events: list[Event] = []
    for name in dict.fromkeys(command.topics):
        topic = topic_named(state, name)
        if topic is not None:
            changes = TopicChanges(topic, state.cluster)
            for index, partition in numbered(topic.partitions, command.partitions):
                if partition.leader not in (partition.replicas[0], NO_LEADER):
                    changes.change(index, Target(election=Election.PREFERRED), "leaders balanced")
            events += changes.events
    return Decision(tuple(events))


def elect_leaders(state: State, command: commands.ElectLeaders) -> Decision:
    topic = topic_named(state, command.topic)
    changes = None if topic is None else TopicChanges(topic, state.cluster)
    answers = [_elect(changes, index, command) for index in dict.fromkeys(command.partitions)]
    return _decision(command, changes, answers)


def _elect(changes: TopicChanges | None, index: int, command: commands.ElectLeaders) -> PartitionAnswer:
    if changes is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {command.topic}")
    partition = changes.partition(index)
    if partition is None:
        message = f"No such partition as {command.topic}-{index}"
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if partition.leader >= 0 if command.unclean else partition.leader == partition.replicas[0]:
        return _refused(index, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    election = Election.UNCLEAN if command.unclean else Election.PREFERRED
    reason = f"{election.value} election requested by {command.principal}"
    if changes.change(index, Target(election=election), reason) is not None:
        return PartitionAnswer(index)
    if command.unclean:
        code, who = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are"
    else:
        code, who = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was"
    return _refused(index, code, f"{who} not available.")


def reassign_partitions(state: State, command: commands.ReassignPartitions) -> Decision:
    """Reassigns partitions, or cancels reassignments. A new order of the same replicas takes effect immediately, other
    changes when the added replicas are in sync."""
    topic = topic_named(state, command.topic)
    changes = None if topic is None else TopicChanges(topic, state.cluster)
    answers = [_reassign(changes, wanted, command) for wanted in command.reassignments]
    return _decision(command, changes, answers)


def _reassign(
    changes: TopicChanges | None, wanted: commands.Reassignment, command: commands.ReassignPartitions
) -> PartitionAnswer:
    index = wanted.partition
    if changes is None:
        message = f"Unable to find a topic named {command.topic}."
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    partition = changes.partition(index)
    if partition is None:
        message = f"Unable to find partition {command.topic}:{index}."
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if wanted.replicas is None:
        return _cancel(changes, index, partition, command)
    rejection = validation.replica_list(index, wanted.replicas, None, changes.cluster, one_live=False)
    if rejection is not None:
        return _refused(index, rejection.code, rejection.message)
    was, factor = len(without(partition.replicas, replica_metadata_of(partition).removing)), len(wanted.replicas)
    if was != factor and not command.allow_factor_change:
        message = f"The replication factor is changed from {was} to {factor}"
        return _refused(index, ErrorCode.INVALID_REPLICATION_FACTOR, message)
    changes.change(index, _moved(partition, wanted.replicas), f"reassignment requested by {command.principal}")
    return PartitionAnswer(index)


def _moved(partition: Partition, target: Ids) -> Target:
    """The target of a reassignment: the new replicas, then those to be removed. Placeholders are not among those to be
    removed. Replicas that a reassignment in progress adds are still to be added."""
    settled = without(partition.replicas, replica_metadata_of(partition).adding)
    removing = tuple(sorted(one for one in partition.replicas if one >= 0 and one not in target))
    adding = tuple(sorted(without(target, settled)))
    return Target(replicas=(*target, *removing), adding=adding, removing=removing)


def _cancel(
    changes: TopicChanges, index: int, partition: Partition, command: commands.ReassignPartitions
) -> PartitionAnswer:
    if not is_reassigned(partition):
        return _refused(index, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    adding = replica_metadata_of(partition).adding
    replicas, isr = without(partition.replicas, adding), without(partition.isr, adding)
    if not isr and changes.election is not Election.UNCLEAN:
        message = (
            f"Unable to revert partition assignment for {command.topic}:{index} because it would require an unclean "
            "leader election."
        )
        return _refused(index, ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    target = Target(isr=isr or replicas[:1], replicas=replicas, adding=(), removing=(), election=changes.election)
    changes.change(index, target, f"reassignment cancelled by {command.principal}")
    return PartitionAnswer(index)


def _refused(index: int, code: ErrorCode, message: str = "") -> PartitionAnswer:
    return PartitionAnswer(index, int(code), message)
