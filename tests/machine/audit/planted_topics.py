"""Faults planted in the order of a log, in requests and in topics. Each names the only check that must find it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from events import catalog
from events.names import BrokerId, Offset, RequestId, TopicName
from tests.machine.audit.planted import (
    Log,
    again,
    at,
    caught_by,
    changed,
    ids,
    renumbered,
    then,
    with_partition,
    without,
)

# The order of the log.


@caught_by("offsets-contiguous")
def a_record_is_lost(log: Log) -> Log:
    index = at(log, catalog.ChangeRejected)
    return log[:index] + log[index + 1 :]


@caught_by("offsets-contiguous")
def a_record_is_there_twice(log: Log) -> Log:
    index = at(log, catalog.MetadataPropagated)
    return [*log[: index + 1], *log[index:]]


@caught_by("offsets-contiguous")
def one_is_lost_and_another_there_twice(log: Log) -> Log:
    lost, again = at(log, catalog.ChangeRejected), at(log, catalog.MetadataPropagated, topic="hand")
    assert lost < again
    return [*log[:lost], *log[lost + 1 : again + 1], *log[again:]]


@caught_by("offsets-contiguous")
def the_beginning_is_lost(log: Log) -> Log:
    return [replace(record, offset=Offset(record.offset + 3)) for record in log]


@caught_by("settings-first")
def a_broker_before_the_settings(log: Log) -> Log:
    return renumbered([log[1], log[0], *log[2:]])


@caught_by("cause-exists")
def no_such_command(log: Log) -> Log:
    return [*log[:-1], replace(log[-1], cause=replace(log[-1].cause, command="Guess"))]


@caught_by("cause-exists")
def a_command_that_leads_to_something_else(log: Log) -> Log:
    index = at(log, catalog.TopicReady)
    return [*log[:index], replace(log[index], cause=catalog.Cause("FenceBroker", RequestId("b1"))), *log[index + 1 :]]


@caught_by("cause-exists")
def caused_by_another_request(log: Log) -> Log:
    index = at(log, catalog.CreateAnswered, topic="a_b")
    return [*log[:index], replace(log[index], cause=catalog.Cause("CreateTopic", RequestId("q99"))), *log[index + 1 :]]


@caught_by("cause-exists")
def a_deletion_of_another_request(log: Log) -> Log:
    index = at(log, catalog.TopicDeleted)
    return [*log[:index], replace(log[index], cause=catalog.Cause("DeleteTopic", RequestId("q99"))), *log[index + 1 :]]


@caught_by("cause-exists")
def rejected_without_a_request(log: Log) -> Log:
    return without(log, at(log, catalog.CreateRequested, request_id="q1"))


# Requests.


@caught_by("one-answer")
def answered_twice(log: Log) -> Log:
    return again(log, at(log, catalog.CreateAnswered))


@caught_by("one-answer")
def a_rejection_not_answered(log: Log) -> Log:
    return without(log, at(log, catalog.CreateAnswered, request_id="q1"))


@caught_by("one-answer")
def not_waited_for_and_not_answered(log: Log) -> Log:
    return without(log, at(log, catalog.CreateAnswered, topic="a_b"))


@caught_by("one-answer")
def ready_and_not_answered(log: Log) -> Log:
    return without(log, at(log, catalog.CreateAnswered, topic="auto"))


@caught_by("one-answer")
def deleted_while_it_waits_and_not_answered(log: Log) -> Log:
    return without(log, at(log, catalog.CreateAnswered, topic="gone"))


@caught_by("one-answer")
def requested_twice(log: Log) -> Log:
    return again(log, at(log, catalog.CreateRequested))


@caught_by("none-after-ready")
def answered_before_it_is_ready(log: Log) -> Log:
    return without(log, at(log, catalog.TopicReady, topic="a"))


@caught_by("none-after-ready")
def a_timeout_called_success(log: Log) -> Log:
    return changed(log, at(log, catalog.CreateAnswered, topic="slow"), error_code=0)


@caught_by("none-after-ready")
def a_rejection_called_success(log: Log) -> Log:
    return changed(log, at(log, catalog.CreateAnswered, request_id="q1"), error_code=0)


@caught_by("none-after-ready")
def ready_in_another_life(log: Log) -> Log:
    return without(log, at(log, catalog.TopicReady, 1, topic="hand"))


@caught_by("timeout-when-due")
def timed_out_early(log: Log) -> Log:
    return changed(log, at(log, catalog.CreateRequested, topic="slow"), deadline_ms=2**50)


@caught_by("created-as-asked")
def created_though_rejected(log: Log) -> Log:
    rejected = catalog.CreateRejected(RequestId("q4"), TopicName("slow"), 44, "no", "policy:x")
    return then(log, "CreateTopic", "q4", rejected, at=at(log, catalog.TopicCreated, topic="slow"))


@caught_by("created-as-asked")
def created_by_a_dry_run(log: Log) -> Log:
    created: Any = log[at(log, catalog.TopicCreated, topic="waits")].event
    return then(log, "CreateTopic", "dry", replace(created, topic="tried", request_id="dry"))


@caught_by("created-as-asked")
def created_as_if_it_had_been_there(log: Log) -> Log:
    return changed(log, at(log, catalog.TopicCreated, topic="waits"), deadline_ms=0)


@caught_by("rejected-with-rule")
def rejected_without_a_rule(log: Log) -> Log:
    return changed(log, at(log, catalog.CreateRejected), rule="")


@caught_by("rejected-with-rule")
def refused_without_an_error(log: Log) -> Log:
    return changed(log, at(log, catalog.ChangeRejected), error_code=0)


@caught_by("as-asked")
def a_partition_less(log: Log) -> Log:
    return changed(log, at(log, catalog.CreateRequested, topic="waits"), num_partitions=2)


@caught_by("as-asked")
def other_partitions_than_the_default(log: Log) -> Log:
    return changed(log, at(log, catalog.CreateRequested, topic="hand", request_id="q11"), num_partitions=-1)


@caught_by("as-asked")
def another_factor(log: Log) -> Log:
    return changed(log, at(log, catalog.CreateRequested, topic="slow"), replication_factor=3)


@caught_by("as-asked")
def another_factor_than_the_event_says(log: Log) -> Log:
    return changed(log, at(log, catalog.TopicCreated, topic="waits"), replication_factor=2)


@caught_by("as-asked")
def not_where_it_was_assigned(log: Log) -> Log:
    by_hand = (catalog.Assignment(0, ids(1, 3)), catalog.Assignment(1, ids(1, 3)))
    return changed(log, at(log, catalog.CreateRequested, topic="hand"), assignments=by_hand)


@caught_by("as-asked")
def fewer_partitions_added_than_requested(log: Log) -> Log:
    return _added(log, 3)


@caught_by("as-asked")
def a_partition_added_with_another_factor(log: Log) -> Log:
    index = at(log, catalog.PartitionsAdded, topic="a", first=3)
    added: Any = log[index].event
    kept = (added.partitions[0].leader, max(added.partitions[0].replicas))  # both lead
    return with_partition(log, index, replicas=kept, isr=kept)


@caught_by("as-asked")
def added_elsewhere_than_assigned(log: Log) -> Log:
    index = at(log, catalog.PartitionsAdded, topic="a", first=3)
    added: Any = log[index].event
    wanted = catalog.RequestedPartitions(added.request.change.count, (tuple(reversed(added.partitions[0].replicas)),))
    return changed(log, index, request=replace(added.request, change=wanted))


def _added(log: Log, wanted: int, **fields: Any) -> Log:
    """The log with another count that was requested, and other fields, where partitions are added."""
    index = at(log, catalog.PartitionsAdded, topic="under")
    added: Any = log[index].event
    return changed(
        log, index, request=replace(added.request, change=catalog.RequestedPartitions(wanted, None)), **fields
    )


# Topics.


@caught_by("ready-is-true")
def ready_twice(log: Log) -> Log:
    return again(log, at(log, catalog.TopicReady))


@caught_by("ready-is-true")
def ready_before_all_brokers_know(log: Log) -> Log:
    return changed(log, at(log, catalog.MetadataPropagated, topic="a"), brokers=ids(1))


@caught_by("one-creation-per-life")
def created_again_without_being_deleted(log: Log) -> Log:
    return without(log, at(log, catalog.TopicDeleted, topic="hand"))


@caught_by("one-creation-per-life")
def created_beside_a_name_that_collides(log: Log) -> Log:
    index = at(log, catalog.CreateRequested, topic="waits")
    with_dot = [replace(record, event=replace(record.event, topic="a.b")) for record in log[index : index + 2]]
    return [*log[:index], *with_dot]


@caught_by("topic-exists")
def known_though_never_created(log: Log) -> Log:
    return then(log, "ConfirmMetadata", "c", catalog.MetadataPropagated(TopicName("never"), ids(1)))


@caught_by("topic-exists")
def changed_after_it_was_deleted(log: Log) -> Log:
    altered: Any = log[at(log, catalog.TopicConfigsChanged)].event
    assert isinstance(altered.request.change, catalog.RequestedConfigs), "the clean log alters configs"
    return then(log, "AlterTopicConfigs", "late", replace(altered, topic="gone", request_id="late"))


@caught_by("topic-exists")
def a_partition_that_is_not_there(log: Log) -> Log:
    one = catalog.Partition(ids(1), ids(1), BrokerId(1))
    fake_credential = catalog.PartitionChanged(TopicName("a"), 9, one, replace(one, partition_epoch=1), "made up")
    return then(log, "AlterPartition", "b1", fake_credential)


@caught_by("partitions-never-fall")
def partitions_that_leave_a_gap(log: Log) -> Log:
    return _added(log, 6, first=5)


@caught_by("partitions-never-fall")
def no_partitions_added(log: Log) -> Log:
    added: Any = log[at(log, catalog.PartitionsAdded, topic="under")].event
    live = ids(1, 2, 3)
    request = replace(added.request, change=catalog.RequestedPartitions(1, None))
    none = replace(added, topic="kept", first=1, partitions=(), request_id="none", live_brokers=live, request=request)
    return then(log, "CreatePartitions", "none", none)
