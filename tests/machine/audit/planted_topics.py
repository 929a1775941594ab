"""Faults planted in the order of a log, in requests and in topics. Each names the only check that must find it."""

from typing import Any

from msgspec.structs import replace

from events import catalog
from events.names import BrokerId, Offset, RequestId, TopicName
from tests.machine.audit.planted import Faults, Log, again, at, changed, ids, renumbered, then, with_partition, without

# The order of the log.


def a_record_is_lost(log: Log) -> Log:
    index = at(log, catalog.ChangeRejected)
    return log[:index] + log[index + 1 :]


def a_record_is_there_twice(log: Log) -> Log:
    index = at(log, catalog.MetadataPropagated)
    return [*log[: index + 1], *log[index:]]


def one_is_lost_and_another_there_twice(log: Log) -> Log:
    lost, again = at(log, catalog.ChangeRejected), at(log, catalog.MetadataPropagated, topic="hand")
    assert lost < again
    return [*log[:lost], *log[lost + 1 : again + 1], *log[again:]]


def a_command_that_leads_to_something_else(log: Log) -> Log:
    index = at(log, catalog.TopicReady)
    return [*log[:index], replace(log[index], cause=catalog.Cause("FenceBroker", RequestId("b1"))), *log[index + 1 :]]


def caused_by_another_request(log: Log) -> Log:
    index = at(log, catalog.CreateAnswered, topic="a_b")
    return [*log[:index], replace(log[index], cause=catalog.Cause("CreateTopic", RequestId("q99"))), *log[index + 1 :]]


def a_deletion_of_another_request(log: Log) -> Log:
    index = at(log, catalog.TopicDeleted)
    return [*log[:index], replace(log[index], cause=catalog.Cause("DeleteTopic", RequestId("q99"))), *log[index + 1 :]]


# Requests.


def created_though_rejected(log: Log) -> Log:
    rejected = catalog.CreateRejected(RequestId("q4"), TopicName("slow"), 44, "no", "policy:x")
    return then(log, "CreateTopic", "q4", rejected, at=at(log, catalog.TopicCreated, topic="slow"))


def created_by_a_dry_run(log: Log) -> Log:
    created: Any = log[at(log, catalog.TopicCreated, topic="waits")].event
    return then(log, "CreateTopic", "dry", replace(created, topic="tried", request_id="dry"))


def not_where_it_was_assigned(log: Log) -> Log:
    by_hand = (catalog.Assignment(0, ids(1, 3)), catalog.Assignment(1, ids(1, 3)))
    return changed(log, at(log, catalog.CreateRequested, topic="hand"), assignments=by_hand)


def a_partition_added_with_another_factor(log: Log) -> Log:
    index = at(log, catalog.PartitionsAdded, topic="a", first=3)
    added: Any = log[index].event
    kept = (added.partitions[0].leader, max(added.partitions[0].replicas))  # each leads at some time
    return with_partition(log, index, replicas=kept, isr=kept)


def added_elsewhere_than_assigned(log: Log) -> Log:
    index = at(log, catalog.PartitionsAdded, topic="a", first=3)
    added: Any = log[index].event
    wanted = catalog.RequestedPartitions(added.request.change.count, (tuple(reversed(added.partitions[0].replicas)),))
    return changed(log, index, request=replace(added.request, change=wanted))


def _with_partitions_added(log: Log, wanted: int, **fields: Any) -> Log:
    """Returns the log with another requested count, and other fields, in the added partitions."""
    index = at(log, catalog.PartitionsAdded, topic="under")
    added: Any = log[index].event
    return changed(
        log, index, request=replace(added.request, change=catalog.RequestedPartitions(wanted, None)), **fields
    )


# Topics.


def created_next_to_a_colliding_name(log: Log) -> Log:
    index = at(log, catalog.CreateRequested, topic="waits")
    with_dot = [replace(record, event=replace(record.event, topic="a.b")) for record in log[index : index + 2]]
    return [*log[:index], *with_dot]


def changed_after_it_was_deleted(log: Log) -> Log:
    altered: Any = log[at(log, catalog.TopicConfigsChanged)].event
    assert isinstance(altered.request.change, catalog.RequestedConfigs), "the clean log alters configs"
    return then(log, "AlterTopicConfigs", "late", replace(altered, topic="gone", request_id="late"))


def a_partition_that_is_not_there(log: Log) -> Log:
    one = catalog.Partition(ids(1), ids(1), BrokerId(1))
    fake_credential = catalog.PartitionChanged(TopicName("a"), 9, one, replace(one, partition_epoch=1), "made up")
    return then(log, "AlterPartition", "b1", fake_credential)


def no_partitions_added(log: Log) -> Log:
    added: Any = log[at(log, catalog.PartitionsAdded, topic="under")].event
    live = ids(1, 2, 3)
    request = replace(added.request, change=catalog.RequestedPartitions(1, None))
    none = replace(added, topic="kept", first=1, partitions=(), request_id="none", live_brokers=live, request=request)
    return then(log, "CreatePartitions", "none", none)


FAULTS: Faults = {
    "offsets-contiguous": {
        "a_record_is_lost": a_record_is_lost,
        "a_record_is_there_twice": a_record_is_there_twice,
        "one_is_lost_and_another_there_twice": one_is_lost_and_another_there_twice,
        "the_beginning_is_lost": lambda log: [replace(record, offset=Offset(record.offset + 3)) for record in log],
    },
    "settings-first": {"a_broker_before_the_settings": lambda log: renumbered([log[1], log[0], *log[2:]])},
    "cause-exists": {
        "no_such_command": lambda log: [*log[:-1], replace(log[-1], cause=replace(log[-1].cause, command="Guess"))],
        "a_command_that_leads_to_something_else": a_command_that_leads_to_something_else,
        "caused_by_another_request": caused_by_another_request,
        "a_deletion_of_another_request": a_deletion_of_another_request,
        "rejected_without_a_request": lambda log: without(log, at(log, catalog.CreateRequested, request_id="q1")),
    },
    "one-answer": {
        "answered_twice": lambda log: again(log, at(log, catalog.CreateAnswered)),
        "a_rejection_not_answered": lambda log: without(log, at(log, catalog.CreateAnswered, request_id="q1")),
        "not_waited_for_and_not_answered": lambda log: without(log, at(log, catalog.CreateAnswered, topic="a_b")),
        "ready_and_not_answered": lambda log: without(log, at(log, catalog.CreateAnswered, topic="auto")),
        "deleted_while_it_waits_and_not_answered": lambda log: without(
            log, at(log, catalog.CreateAnswered, topic="gone")
        ),
        "requested_twice": lambda log: again(log, at(log, catalog.CreateRequested)),
    },
    "none-after-ready": {
        "answered_before_it_is_ready": lambda log: without(log, at(log, catalog.TopicReady, topic="a")),
        "a_timeout_called_success": lambda log: changed(
            log, at(log, catalog.CreateAnswered, topic="slow"), error_code=0
        ),
        "a_rejection_called_success": lambda log: changed(
            log, at(log, catalog.CreateAnswered, request_id="q1"), error_code=0
        ),
        "ready_in_another_life": lambda log: without(log, at(log, catalog.TopicReady, 1, topic="hand")),
    },
    "timeout-when-due": {
        "timed_out_early": lambda log: changed(log, at(log, catalog.CreateRequested, topic="slow"), deadline_ms=2**50)
    },
    "created-as-asked": {
        "created_though_rejected": created_though_rejected,
        "created_by_a_dry_run": created_by_a_dry_run,
    },
    "rejected-with-rule": {
        "rejected_without_a_rule": lambda log: changed(log, at(log, catalog.CreateRejected), rule=""),
        "refused_without_an_error": lambda log: changed(log, at(log, catalog.ChangeRejected), error_code=0),
    },
    "as-asked": {
        "a_partition_less": lambda log: changed(log, at(log, catalog.CreateRequested, topic="waits"), num_partitions=2),
        "other_partitions_than_the_default": lambda log: changed(
            log, at(log, catalog.CreateRequested, topic="hand", request_id="q11"), num_partitions=-1
        ),
        "another_factor": lambda log: changed(
            log, at(log, catalog.CreateRequested, topic="slow"), replication_factor=3
        ),
        "another_factor_than_the_event_says": lambda log: changed(
            log, at(log, catalog.TopicCreated, topic="waits"), replication_factor=2
        ),
        "not_where_it_was_assigned": not_where_it_was_assigned,
        "fewer_partitions_added_than_requested": lambda log: _with_partitions_added(log, 3),
        "a_partition_added_with_another_factor": a_partition_added_with_another_factor,
        "added_elsewhere_than_assigned": added_elsewhere_than_assigned,
    },
    "ready-is-true": {
        "ready_twice": lambda log: again(log, at(log, catalog.TopicReady)),
        "ready_before_all_brokers_know": lambda log: changed(
            log, at(log, catalog.MetadataPropagated, topic="a"), brokers=ids(1)
        ),
    },
    "one-creation-per-life": {
        "created_again_without_being_deleted": lambda log: without(log, at(log, catalog.TopicDeleted, topic="hand")),
        "created_next_to_a_colliding_name": created_next_to_a_colliding_name,
    },
    "topic-exists": {
        "known_though_never_created": lambda log: then(
            log, "ConfirmMetadata", "c", catalog.MetadataPropagated(TopicName("never"), ids(1))
        ),
        "changed_after_it_was_deleted": changed_after_it_was_deleted,
        "a_partition_that_is_not_there": a_partition_that_is_not_there,
    },
    "partitions-never-fall": {
        "partitions_that_leave_a_gap": lambda log: _with_partitions_added(log, 6, first=5),
        "no_partitions_added": no_partitions_added,
    },
}
