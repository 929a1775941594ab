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


def _dry_run_of(outcome: object) -> DryRunResult:
    """The dry-run result of the command: the target cluster's error, or success. Unused without a target cluster."""
    if isinstance(outcome, _REFUSALS) and outcome.rule == BY_CLUSTER:
        return DryRunResult(outcome.error_code, outcome.message)
    return DryRunResult()


def _throttle_ms(outcome: object) -> int:
    """1 if the events record that a mutation quota was exhausted, else 0; they do not record the time (KIP-599)."""
    return int(isinstance(outcome, _REFUSALS) and outcome.rule == QUOTA)


_REFUSALS = catalog.CreateRejected | catalog.ChangeRejected


def _create(at_ms: int, event: catalog.CreateRequested, records: Sequence[catalog.Recorded]) -> commands.CreateTopic:
    outcomes = (one.event for one in records if isinstance(one.event, catalog.TopicCreated | catalog.CreateRejected))
    outcome = next(outcomes, None)
    return commands.CreateTopic(
        **_shared(commands.CreateTopic, event),
        at_ms=at_ms,
        verdict=None if outcome is None else outcome.verdict,
        dry_run=_dry_run_of(outcome),
        throttle_ms=_throttle_ms(outcome),
    )


def _change(at_ms: int, change: Change) -> TopicCommand:
    details = change.request
    kind = _COMMANDS[type(details.change)]
    return kind(
        **_shared(TopicCommand, change),
        **_shared(TopicCommand, details),
        **asdict(details.change),
        at_ms=at_ms,
        dry_run=_dry_run_of(change),
        throttle_ms=_throttle_ms(change),
    )


_COMMANDS: dict[type, type[TopicCommand]] = {
    RequestedPartitions: commands.CreatePartitions,
    RequestedDeletion: commands.DeleteTopic,
    RequestedConfigs: commands.AlterTopicConfigs,
}


def _shared(kind: type[TopicCommand], recorded: Fact) -> dict[str, Any]:
    """The fields of a command that an event, or a value in the event, has under the same name."""
    return {name: getattr(recorded, name) for name in recorded.__struct_fields__ if name in kind.__struct_fields__}
