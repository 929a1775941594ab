"""Faults planted in partitions: replicas, leaders, epochs, placeholders. Each names the check that must find it."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from events import catalog
from events.catalog import Cause, LogDirsChanged, PartitionChanged, Recorded
from events.names import BrokerId, Offset, TopicName
from tests.machine.audit.planted import (
    Faults,
    Log,
    as_requested,
    at,
    changed,
    changed_to,
    changes,
    first_replicas,
    ids,
    last_fill,
    same_partition,
    then,
    with_partition,
    with_settings,
    without,
)

Ids = tuple[BrokerId, ...]

# Replicas and leaders.


def a_replica_twice(log: Log) -> Log:
    index = at(log, catalog.TopicCreated, topic="hand")
    return as_requested(with_partition(log, index, replicas=ids(1, 1), isr=ids(1)), "hand")


def in_sync_but_no_replica(log: Log) -> Log:
    index = at(log, PartitionChanged, topic="a")
    event: Any = log[index].event
    return changed_to(log, index, isr=(*event.after.isr, BrokerId(8)))


def placed_on_a_broker_that_is_not_there_yet(log: Log) -> Log:
    index = at(log, catalog.TopicCreated, topic="a_b")
    return as_requested(with_partition(log, index, replicas=ids(*first_replicas(log, "a_b"), 3)), "a_b")


def assigned_to_an_unknown_broker(log: Log) -> Log:
    index = at(log, catalog.TopicCreated, topic="hand")
    return as_requested(with_partition(log, index, replicas=ids(1, 7), isr=ids(1)), "hand")


def partitions_on_a_fenced_broker(log: Log) -> Log:
    added: Any = log[at(log, catalog.PartitionsAdded, topic="a", first=3)].event
    assert added.request.change.assignments is None, "placement chose the replicas"
    leader = added.partitions[0].leader
    where = at(log, catalog.PartitionsAdded, topic="a", first=3)
    other = max(added.partitions[0].replicas)  # becomes leader later
    return with_partition(log, where, replicas=(leader, other, BrokerId(4)), isr=(leader, other))


def a_change_is_lost(log: Log) -> Log:
    some = changes(log, lambda event: event.topic == "a" and not event.has_new_leader)
    return without(log, next(n for n in some if any(same_partition(log[n], later) for later in log[n + 1 :])))


def a_new_partition_led_by_a_fenced_broker(log: Log) -> Log:
    never_ready = without(log, at(log, catalog.TopicReady, topic="onfenced"))
    return with_partition(never_ready, at(log, catalog.TopicCreated, topic="onfenced"), leader=BrokerId(2), isr=ids(2))


def no_leader_although_the_isr_is_not_empty(log: Log) -> Log:
    created: Any = log[at(log, catalog.TopicCreated, topic="waits")].event
    partition = created.partitions[0]
    after = replace(partition, leader=BrokerId(-1), leader_epoch=1, partition_epoch=1)
    left = PartitionChanged(TopicName("waits"), 0, partition, after, "made up")
    return then(log, "AlterPartition", "b1", left)


def ready_under_a_leader_that_is_fenced(log: Log) -> Log:
    ready = at(log, catalog.TopicReady, topic="a")
    created: Any = log[at(log, catalog.TopicCreated, topic="a")].event
    leader = created.partitions[1].leader
    fenced, back = catalog.BrokerFenced(leader, 1, "died"), catalog.BrokerUnfenced(leader, 1, "back")
    return then(then(log, "UnfenceBroker", "b1", back, at=ready + 1), "FenceBroker", "b1", fenced, at=ready)


def more_placeholders_than_brokers_are_missing(log: Log) -> Log:
    (leader,) = first_replicas(log, "waits")
    others = [broker for broker in ids(1, 2, 3) if broker != leader]
    index = at(log, catalog.TopicCreated, topic="waits")
    return as_requested(with_partition(log, index, replicas=ids(leader, *others, -2)), "waits")


def not_filled_though_a_broker_joined(log: Log) -> Log:
    fill = last_fill(log, "under")
    event: Any = log[fill].event
    back = catalog.BrokerRegistered(BrokerId(4), 9, "back", None, ())
    there = then(without(log, fill), "RegisterBroker", "b4", back)
    assert event.filled == (4,), "broker 4 filled the placeholder"
    return then(there, "UnfenceBroker", "b4", catalog.BrokerUnfenced(BrokerId(4), 9, "back"))


def _filled_otherwise(log: Log, fill: int, replicas: Callable[[Ids, BrokerId], Ids]) -> Log:
    """Returns the log with other replicas after a fill, computed from them and the placeholder."""
    event: Any = log[fill].event
    return changed_to(log, fill, replicas=replicas(event.after.replicas, event.before.replicas[-1]))


def reconciled_and_not_filled(log: Log) -> Log:
    fill = last_fill(log, "under")
    event: Any = log[fill].event
    return changed_to(log, fill, replicas=event.before.replicas, isr=event.after.isr[:1])


DIRECTORY = b"d" * 16


def in_sync_is_no_replica(log: Log) -> Log:
    index = changes(log, lambda event: event.after.isr != event.before.isr and not event.has_new_leader)[0]
    return changed_to(log, index, isr=ids(1, 9))


def elected_while_fenced(log: Log) -> Log:
    index = changes(log, lambda event: event.has_new_leader and event.after.leader == 2)[0]
    return changed_to(log, index, leader=BrokerId(1), isr=ids(1, 3))


def moved_to_the_same_broker_twice(log: Log) -> Log:
    index = changes(log, lambda event: event.after.replicas != event.before.replicas)[-1]
    event: Any = log[index].event
    return changed_to(log, index, replicas=(*event.after.replicas, event.after.replicas[0]))


def led_again_in_the_old_epoch(log: Log) -> Log:
    index = changes(log, lambda _: True)[-1]
    event: Any = log[index].event
    return changed_to(log, index, partition_epoch=event.before.partition_epoch)


def while_cordoned(log: Log, at: int, broker_id: BrokerId) -> Log:
    """Returns the log with all log directories of a broker cordoned during one event."""
    during = log[at]

    def dirs_changed(*cordoned: bytes) -> Recorded:
        event = LogDirsChanged(broker_id, 1, (DIRECTORY,), cordoned)
        return replace(during, cause=Cause("ChangeLogDirs", during.cause.request_id), event=event)

    planted = [*log[:at], dirs_changed(DIRECTORY), during, dirs_changed(), *log[at + 1 :]]
    return [replace(one, offset=Offset(number)) for number, one in enumerate(planted)]


def filled_by_a_cordoned_broker(log: Log) -> Log:
    index = changes(log, lambda event: event.filled)[0]
    event: Any = log[index].event
    return while_cordoned(log, index, event.filled[0])


FAULTS: Faults = {
    "replicas-distinct": {"a_replica_twice": a_replica_twice},
    "leader-in-isr": {
        "nobody_in_sync": lambda log: with_partition(log, at(log, catalog.TopicCreated, topic="waits"), isr=()),
        "a_leader_out_of_sync": lambda log: with_partition(
            log, at(log, catalog.TopicCreated, topic="hand"), isr=ids(3)
        ),
        "a_placeholder_in_sync": lambda log: with_partition(log, at(log, catalog.TopicCreated), isr=ids(1, 2, -1)),
        "in_sync_but_no_replica": in_sync_but_no_replica,
    },
    "replicas-live": {
        "placed_on_a_broker_that_is_not_there_yet": placed_on_a_broker_that_is_not_there_yet,
        "assigned_to_an_unknown_broker": assigned_to_an_unknown_broker,
        "partitions_on_a_fenced_broker": partitions_on_a_fenced_broker,
        "placement_saw_another_broker": lambda log: changed(
            log, at(log, catalog.TopicCreated), live_brokers=ids(1, 2, 3)
        ),
    },
    "epochs-never-go-back": {
        "a_partition_epoch_goes_back": lambda log: changed_to(log, at(log, PartitionChanged), partition_epoch=0),
        "another_leader_in_the_same_epoch": lambda log: changed_to(
            log, changes(log, lambda event: event.has_new_leader)[0], leader_epoch=0
        ),
        "a_new_partition_with_a_past": lambda log: with_partition(
            log, at(log, catalog.TopicCreated, topic="waits"), leader_epoch=4
        ),
        "a_change_is_lost": a_change_is_lost,
    },
    "leaders-unfenced": {"a_new_partition_led_by_a_fenced_broker": a_new_partition_led_by_a_fenced_broker},
    "led-when-possible": {
        "a_broker_died_and_nobody_was_elected": lambda log: then(
            log, "FenceBroker", "b1", catalog.BrokerFenced(BrokerId(1), 9, "died")
        ),
        "no_leader_although_the_isr_is_not_empty": no_leader_although_the_isr_is_not_empty,
    },
    "ready-is-true": {"ready_under_a_leader_that_is_fenced": ready_under_a_leader_that_is_fenced},
    "placeholders-allowed": {
        "placeholders_though_they_are_off": lambda log: with_settings(
            log, enable_under_replicated_topic_creation="false"
        ),
        "placeholders_with_too_few_live_brokers": lambda log: with_settings(log, min_insync_replicas="3"),
        "the_topic_wants_more_in_sync": lambda log: changed(
            log, at(log, catalog.TopicCreated), configs=(("min.insync.replicas", "3"),)
        ),
        "more_placeholders_than_brokers_are_missing": more_placeholders_than_brokers_are_missing,
    },
    "placeholders-filled": {
        "not_filled_though_a_broker_joined": not_filled_though_a_broker_joined,
        "filled_by_a_broker_that_is_not_live": lambda log: _filled_otherwise(
            log, last_fill(log, "under"), lambda replicas, _: (*replicas[:-1], BrokerId(6))
        ),
        "added_next_to_the_placeholder": lambda log: _filled_otherwise(
            log, last_fill(log, "under"), lambda replicas, placeholder: (*replicas[:-1], placeholder, replicas[-1])
        ),
        "reconciled_and_not_filled": reconciled_and_not_filled,
    },
}

REAL_FAULTS: Faults = {
    "leader-in-isr": {"in_sync_is_no_replica": in_sync_is_no_replica},
    "leaders-unfenced": {"elected_while_fenced": elected_while_fenced},
    "replicas-distinct": {"moved_to_the_same_broker_twice": moved_to_the_same_broker_twice},
    "epochs-never-go-back": {"led_again_in_the_old_epoch": led_again_in_the_old_epoch},
    "placeholders-filled": {"filled_by_a_cordoned_broker": filled_by_a_cordoned_broker},
}
