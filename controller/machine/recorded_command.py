"""Reconstructs the command of a client from its events, for replay and for HTTP retries with an Idempotency-Key.

The events contain every input of the decision: the requested counts, the ids and times in the command, the result of
authorization, the verdict of the policies. `decide(state, recall(records))` on the state before those records returns
the same events, byte for byte, as long as the code of the decision is the same.

Reassignments, elections and changes of broker configs are recorded by their results, so their command is one that leads
to these. It has no client id and, for the first two, no host.

Not covered: requests without events (dry runs, alterations that change nothing), and commands of brokers and timers.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from controller.machine.commands import commands
from controller.machine.commands.commands import Approval, DryRunResult, TopicCommand
from controller.machine.configs.changes import OpType
from controller.machine.partitions.changes import Election
from controller.machine.topics import REQUESTED
from controller.machine.validation import BY_CLUSTER, QUOTA
from events import catalog
from events.names import BrokerId, TopicName
from events.values import ConfigOp, Fact, Verdict

APPROVED_TIMEOUT_MS = 30_000
"""The maximum time that an approver waits until an approved topic is complete."""
Change = catalog.PartitionsAdded | catalog.TopicDeleted | catalog.TopicConfigsChanged | catalog.ChangeRejected


def recall(records: Sequence[catalog.Recorded]) -> TopicCommand | None:
    """Returns the command behind the records of one decision, in order; None if they do not come from a client's
    request."""
    for record in records:
        if isinstance(record.event, catalog.CreateRequested):
            return _create(record.at_ms, record.event, records)
        if isinstance(record.event, Change):
            return _change(record.at_ms, record.event)
    match (records[0].cause.command, records[0].event) if records else None:
        case "ReassignPartitions" | "ElectLeaders", catalog.PartitionChanged():
            return _of_partitions(records)
        case "AlterResourceConfigs", catalog.ResourceConfigsChanged() as event:
            return _resource(records[0].at_ms, event)
        case _:
            return None


def _outside(outcome: object) -> dict[str, Any]:
    """The dry-run result and the throttle time of the command. Events do not record that time (KIP-599): it is 1 if a
    quota was exhausted. Without a target cluster the dry-run result is unused."""
    dry_run, throttle_ms = DryRunResult(), 0
    if isinstance(outcome, catalog.CreateRejected | catalog.ChangeRejected):
        if outcome.rule == BY_CLUSTER:
            dry_run = DryRunResult(outcome.error_code, outcome.message)
        throttle_ms = int(outcome.rule == QUOTA)
    return {"dry_run": dry_run, "throttle_ms": throttle_ms}


def _create(at_ms: int, event: catalog.CreateRequested, records: Sequence[catalog.Recorded]) -> commands.CreateTopic:
    outcomes = (one.event for one in records if isinstance(one.event, catalog.TopicCreated | catalog.CreateRejected))
    outcome = next(outcomes, None)
    return commands.CreateTopic(
        **_shared(commands.CreateTopic, event),
        at_ms=at_ms,
        **_outside(outcome),
        verdict=None if outcome is None else outcome.verdict,
    )


def _change(at_ms: int, change: Change) -> TopicCommand:
    kind = _COMMANDS[type(change.request.change)]
    return kind(**_of_request(change), **_outside(change), at_ms=at_ms)


def _of_request(recorded: Change | catalog.ApprovalRequested) -> dict[str, Any]:
    request = recorded.request
    return _shared(TopicCommand, recorded) | _shared(TopicCommand, request) | asdict(request.change)


def approved_command(held: catalog.ApprovalRequested, approval: Approval, **stamps: Any) -> TopicCommand:
    """The command of a held request that was approved, to be judged again by policies and target cluster. `stamps` has
    its request id, its time, and the id of a new topic."""
    kind, of_request = _COMMANDS[type(held.request.change)], _of_request(held)
    if kind is commands.CreateTopic:
        of_request["timeout_ms"] = APPROVED_TIMEOUT_MS
    else:
        del stamps["topic_id"]
    return kind(**of_request | stamps, topic=held.name, approval=approval)


_COMMANDS: dict[type, type[TopicCommand]] = {requested: command for command, requested in REQUESTED.items()}


def _of_partitions(records: Sequence[catalog.Recorded]) -> TopicCommand:
    """The election or reassignment behind changes of partitions, whose reasons name the principal."""
    changes = [one.event for one in records if isinstance(one.event, catalog.PartitionChanged)]
    reason = changes[0].reason.removeprefix("unclean election: ")
    cause, at_ms, by = records[0].cause, records[0].at_ms, reason.partition(" by ")[2]
    shared: dict[str, Any] = {
        "request_id": cause.request_id,
        "at_ms": at_ms,
        "topic": changes[0].topic,
        "principal": by,
    }
    if cause.command == "ElectLeaders":
        is_unclean, partitions = reason.startswith(Election.UNCLEAN.value), tuple(each.partition for each in changes)
        return commands.ElectLeaders(**shared, api="ElectLeaders", partitions=partitions, unclean=is_unclean)
    targets = tuple(commands.Reassignment(each.partition, _target(each)) for each in changes)
    return commands.ReassignPartitions(**shared, api="AlterPartitionReassignments", reassignments=targets)


def _target(change: catalog.PartitionChanged) -> tuple[BrokerId, ...] | None:
    """The replicas that a reassignment requested; None if it cancelled one."""
    if change.reason.removeprefix("unclean election: ").startswith("reassignment cancelled"):
        return None
    metadata = change.after.replica_metadata
    removing = () if metadata is None else metadata.removing
    return tuple(one for one in change.after.replicas if one not in removing)


def _resource(at_ms: int, event: catalog.ResourceConfigsChanged) -> commands.AlterResourceConfigs:
    before, after = dict(event.before or ()), dict(event.configs)
    deleted = tuple(ConfigOp(name, OpType.DELETE, None) for name in before if name not in after)
    changed = tuple(ConfigOp(name, OpType.SET, text) for name, text in after.items() if before.get(name) != text)
    return commands.AlterResourceConfigs(
        **_shared(commands.AlterResourceConfigs, event),
        topic=TopicName(f"{event.kind}:{event.name}"),
        at_ms=at_ms,
        api="IncrementalAlterConfigs",
        ops=(*deleted, *changed),
        verdict=Verdict("allowed"),
    )


def _shared(kind: type[TopicCommand], recorded: Fact) -> dict[str, Any]:
    """The fields of a command that an event, or a value in the event, has under the same name."""
    return {name: getattr(recorded, name) for name in recorded.__struct_fields__ if name in kind.__struct_fields__}
