"""From events back to the ask that led to them, so that a decision can be made again.

What a client asked is in the events with every input of the decision: the counts as asked, the ids and times that the
front stamped, the authorizer's answer, the policies' verdict. `decide(state, recall(records))` on the state before
those records gives the same events, bit for bit, for as long as the rules are the same.

What it does not do: asks that change nothing (dry runs, alterations to what is) leave no events, so they are not
recalled; and commands of brokers and of time are observations, not decisions about an ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.machine.commands import AlterTopicConfigs, Ask, Clearance, CreatePartitions, CreateTopic, DeleteTopic
from controller.machine.discovering import BY_CLUSTER
from controller.machine.validation import QUOTA
from events.catalog import (
    ChangeRejected,
    ConfigsWanted,
    CreateRejected,
    CreateRequested,
    DeletionWanted,
    PartitionsAdded,
    PartitionsWanted,
    Recorded,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
    Verdict,
)

Change = PartitionsAdded | TopicDeleted | TopicConfigsChanged | ChangeRejected


def recall(records: Sequence[Recorded]) -> Ask | None:
    """The ask behind the records of one decision, in their order; None if no client's ask led to them."""
    for record in records:
        match record.event:
            case CreateRequested() as asked:
                return _create(record.at_ms, asked, records)
            case PartitionsAdded() | TopicDeleted() | TopicConfigsChanged() | ChangeRejected() as change:
                return _change(record.at_ms, change)
            case _:
                continue
    return None


def _verdict(records: Sequence[Recorded]) -> Verdict | None:
    for record in records:
        if isinstance(record.event, TopicCreated | CreateRejected):
            return record.event.verdict
    return None


def _clearance(refusal: object) -> Clearance:
    """What the cluster said, which a decision looks at only where one carries decisions out."""
    if isinstance(refusal, CreateRejected | ChangeRejected) and refusal.rule == BY_CLUSTER:
        return Clearance(refusal.error_code, refusal.message)
    return Clearance()


def _throttle_ms(refusals: Iterable[object]) -> int:
    """The stamp of a mutation quota: for how long it was exhausted is not recorded, only that it was (KIP-599)."""
    return int(any(isinstance(one, CreateRejected | ChangeRejected) and one.rule == QUOTA for one in refusals))


def _create(at_ms: int, asked: CreateRequested, records: Sequence[Recorded]) -> CreateTopic:
    refusal = next((record.event for record in records if isinstance(record.event, CreateRejected)), None)
    return CreateTopic(
        request_id=asked.request_id,
        at_ms=at_ms,
        topic=asked.topic,
        topic_id=asked.topic_id,
        num_partitions=asked.num_partitions,
        replication_factor=asked.replication_factor,
        assignments=asked.assignments,
        configs=asked.configs,
        timeout_ms=asked.timeout_ms,
        verdict=_verdict(records),
        clearance=_clearance(refusal),
        throttle_ms=_throttle_ms(record.event for record in records),
        principal=asked.principal,
        client_id=asked.client_id,
        api=asked.api,
        api_version=asked.api_version,
        duplicate=asked.duplicate,
        denied=asked.denied,
    )


def _change(at_ms: int, change: Change) -> Ask:
    asked = change.asked
    stamps = Ask(
        request_id=change.request_id,
        at_ms=at_ms,
        topic=change.topic,
        principal=change.principal,
        client_id=change.client_id,
        api=asked.api,
        api_version=asked.api_version,
        duplicate=asked.duplicate,
        denied=asked.denied,
        clearance=_clearance(change),
        throttle_ms=_throttle_ms([change]),
    )
    return _wanting(stamps, asked.wanted)


def _wanting(stamps: Ask, wanted: PartitionsWanted | DeletionWanted | ConfigsWanted) -> Ask:
    fields = {name: getattr(stamps, name) for name in stamps.__struct_fields__}
    match wanted:
        case PartitionsWanted():
            return CreatePartitions(**fields, count=wanted.count, assignments=wanted.assignments)
        case DeletionWanted():
            return DeleteTopic(**fields, topic_id=wanted.topic_id)
        case ConfigsWanted():
            return AlterTopicConfigs(**fields, ops=wanted.ops, incremental=wanted.incremental)
