"""Deciding on what clients ask of the partitions of real brokers: elections (KIP-460) and reassignments (KIP-455).

Each partition is answered for itself, with Kafka 4.3's codes and messages. What is refused changes nothing and is not
recorded; the reason of what is done names who requested it.
"""

from __future__ import annotations

from controller.machine import validation
from controller.machine.commands import commands
from controller.machine.decision import NOTHING, Answer, Decision, PartitionAnswer, topic_named
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.partitions import reports
from controller.machine.partitions.after_events import after_step, with_partition
from controller.machine.partitions.changes import Election, Ids, Wanted, change, is_reassigned, replica_metadata_of
from controller.machine.partitions.rules import election_for, rules_for
from controller.machine.state import Cluster, State, Topic
from events.catalog import Event, Partition, PartitionChanged
from events.names import TopicName

Outcome = PartitionChanged | Rejection | None
_RULE = "validation:partition"


def balance_leaders(state: State, command: commands.BalanceLeaders) -> Decision:
    """Preferred leaders where they are in sync and others lead."""
    events: list[Event] = []
    for name in dict.fromkeys(command.topics):
        topic = topic_named(state, name)
        if topic is not None:
            events += reports.balance(topic, state.cluster, command.span)
    return Decision(tuple(events)) if events else NOTHING


def elect_leaders(state: State, command: commands.ElectLeaders) -> Decision:
    """Elect leaders of a topic's partitions."""
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
    reason = f"{election.value} election asked for by {command.principal}"
    changed = change(topic.name, index, partition, Wanted(election=election), rules_for(topic, cluster), reason)
    if changed is not None:
        return changed
    if command.unclean:
        code, who = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are"
    else:
        code, who = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was"
    return _refused(code, f"{who} not available.")


def reassign_partitions(state: State, command: commands.ReassignPartitions) -> Decision:
    """Move partitions to other replicas, or end that. A move that only needs another order is done at once; any other
    is done when the replicas that it adds are in sync."""
    topic = topic_named(state, command.topic)
    steps: list[tuple[int, Outcome]] = []
    for wanted in command.reassignments:
        outcome = _reassigned(topic, wanted, command, state.cluster)
        steps.append((wanted.partition, outcome))
        if topic is not None and isinstance(outcome, PartitionChanged):
            after = after_step(topic.partitions[wanted.partition], outcome)
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
    reason = f"reassignment asked for by {command.principal}"
    return change(topic.name, index, partition, _moved(partition, wanted.replicas), rules_for(topic, cluster), reason)


def _moved(partition: Partition, target: Ids) -> Wanted:
    """The target first, then what it leaves out, until what it adds is in sync. A placeholder needs no waiting for, and
    what a reassignment under way adds is still to be added."""
    settled = [one for one in partition.replicas if one not in replica_metadata_of(partition).adding]
    removing = tuple(sorted(one for one in partition.replicas if one >= 0 and one not in target))
    adding = tuple(sorted(one for one in target if one not in settled))
    return Wanted(replicas=(*target, *removing), adding=adding, removing=removing)


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
    wanted = Wanted(isr=isr or replicas[:1], replicas=replicas, adding=(), removing=(), election=election)
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
