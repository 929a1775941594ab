"""Reconstructs the command of a client from its events, for replay and for HTTP retries with an Idempotency-Key.

The events contain every input of the decision: the requested counts, the ids and times in the command, the result of
authorization, the verdict of the policies. `decide(state, recall(records))` on the state before those records returns
the same events, byte for byte, as long as the code of the decision is the same.

Not covered: requests without events (dry runs, alterations that change nothing), and commands of brokers and timers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from controller.machine.commands import commands
from controller.machine.commands.commands import DryRunResult, TopicCommand
from controller.machine.validation import BY_CLUSTER, QUOTA
from events import catalog
from events.values import Fact, RequestedConfigs, RequestedDeletion, RequestedPartitions

Change = catalog.PartitionsAdded | catalog.TopicDeleted | catalog.TopicConfigsChanged | catalog.ChangeRejected


def recall(records: Sequence[catalog.Recorded]) -> TopicCommand | None:
    """Returns the command behind the records of one decision, in order; None if they do not come from a client's
    request."""
    for record in records:
        if isinstance(record.event, catalog.CreateRequested):
            return _create(record.at_ms, record.event, records)
        if isinstance(record.event, Change):
            return _change(record.at_ms, record.event)
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
    details = change.request
    kind = _COMMANDS[type(details.change)]
    return kind(
        **_shared(TopicCommand, change),
        **_shared(TopicCommand, details),
        **asdict(details.change),
        **_outside(change),
        at_ms=at_ms,
    )


_COMMANDS: dict[type, type[TopicCommand]] = {
    RequestedPartitions: commands.CreatePartitions,
    RequestedDeletion: commands.DeleteTopic,
    RequestedConfigs: commands.AlterTopicConfigs,
}


def _shared(kind: type[TopicCommand], recorded: Fact) -> dict[str, Any]:
    """The fields of a command that an event, or a value in the event, has under the same name."""
    return {name: getattr(recorded, name) for name in recorded.__struct_fields__ if name in kind.__struct_fields__}
