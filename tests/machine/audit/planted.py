"""Faults for the auditor to find: each makes a clean log wrong in one way, and names the check that must see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from events.catalog import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    ChangeRejected,
    CreateAnswered,
    CreateRejected,
    CreateRequested,
    IsrChanged,
    LeaderElected,
    MetadataPropagated,
    Partition,
    PartitionsAdded,
    PlaceholderFilled,
    Recorded,
    SettingsChanged,
    TopicCreated,
    TopicDeleted,
    TopicReady,
)
from events.names import BrokerId, Offset
from tests.machine.tables import command, given

Log = list[Recorded]
Fault = Callable[[Log], Log]

STEPS = """
create a 2x3 id=q0
confirm 1 2
create a 1x1 id=q1
create a_b 1x1 id=q2 timeout=0
create slow 1x2 id=q3
expire slow id=q3 at=5000
register 3
unfence 3
review a a_b slow
sync a
partitions a to=4 id=q4
partitions a to=1 id=q5
create hand on=0:1.3,1:3.1 id=q6
confirm 1 2 3
fence 2
review a a_b slow hand
delete hand id=q7
alter a set:min.insync.replicas=2 id=q8
create waits 1x1 id=q9
"""


def clean() -> Log:
    """A log with something of everything, in which nothing is wrong."""
    rig = given("1 2 fewer")
    for line in STEPS.strip().splitlines():
        rig.put(command(rig, line))
    return rig.log


FAULTS: list[tuple[str, Fault]] = []
"""The check that must see it, and the fault."""


def caught_by(check: str) -> Callable[[Fault], Fault]:
    """Plant a fault for a check."""

    def plant(fault: Fault) -> Fault:
        FAULTS.append((check, fault))
        return fault

    return plant


# Tools.


def _at(log: Log, kind: type, **fields: Any) -> int:  # the first event of a kind with these fields
    return next(
        index
        for index, record in enumerate(log)
        if isinstance(record.event, kind) and all(getattr(record.event, k) == v for k, v in fields.items())
    )


def _changed(log: Log, index: int, **fields: Any) -> Log:
    event = replace(log[index].event, **fields)
    return [*log[:index], replace(log[index], event=event), *log[index + 1 :]]


def _renumbered(log: Log) -> Log:
    return [replace(record, offset=Offset(offset)) for offset, record in enumerate(log)]


def _without(log: Log, *indices: int) -> Log:
    return _renumbered([record for index, record in enumerate(log) if index not in indices])


def _without_all(log: Log, kind: type, **fields: Any) -> Log:
    kept = [
        record
        for record in log
        if not isinstance(record.event, kind) or any(getattr(record.event, k) != v for k, v in fields.items())
    ]
    return _renumbered(kept)


def _again(log: Log, index: int) -> Log:
    return _renumbered([*log[: index + 1], log[index], *log[index + 1 :]])


def _with_partition(log: Log, index: int, **fields: Any) -> Log:
    """The log with the first partition of a creation changed."""
    event: Any = log[index].event
    partition: Partition = replace(event.partitions[0], **fields)
    return _changed(log, index, partitions=(partition, *event.partitions[1:]))


def _with_settings(log: Log, **pairs: str) -> Log:
    event = log[0].event
    assert isinstance(event, SettingsChanged), "the first event of a clean log"
    settings = dict(event.settings) | {key.replace("_", "."): value for key, value in pairs.items()}
    return _changed(log, 0, settings=tuple(sorted(settings.items())))


def ids(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(one) for one in ids)


# The order of the log.


@caught_by("offsets-contiguous")
def a_record_is_lost(log: Log) -> Log:
    return log[:5] + log[6:]


@caught_by("offsets-contiguous")
def a_record_is_there_twice(log: Log) -> Log:
    return [*log[:5], log[5], *log[5:]]


@caught_by("settings-first")
def no_settings(log: Log) -> Log:
    return _without(log, 0)


@caught_by("cause-exists")
def no_such_command(log: Log) -> Log:
    return [*log[:-1], replace(log[-1], cause=replace(log[-1].cause, command="Guess"))]


@caught_by("cause-exists")
def caused_by_an_ask_that_nobody_made(log: Log) -> Log:
    index = _at(log, CreateAnswered)
    return [*log[:index], replace(log[index], cause=replace(log[-1].cause, request_id="q99")), *log[index + 1 :]]


# Requests.


@caught_by("one-answer")
def answered_twice(log: Log) -> Log:
    return _again(log, _at(log, CreateAnswered))


@caught_by("one-answer")
def a_rejection_not_answered(log: Log) -> Log:
    return _without(log, _at(log, CreateAnswered, request_id="q1"))


@caught_by("one-answer")
def not_waited_for_and_not_answered(log: Log) -> Log:
    return _without(log, _at(log, CreateAnswered, topic="a_b"))


@caught_by("one-answer")
def asked_twice(log: Log) -> Log:
    return _again(log, _at(log, CreateRequested))


@caught_by("none-after-ready")
def answered_before_it_is_ready(log: Log) -> Log:
    return _without(log, _at(log, TopicReady, topic="a"))


@caught_by("none-after-ready")
def a_timeout_called_success(log: Log) -> Log:
    return _changed(log, _at(log, CreateAnswered, error_code=7), error_code=0)


@caught_by("timeout-when-due")
def timed_out_early(log: Log) -> Log:
    return _changed(log, _at(log, CreateRequested, topic="slow"), deadline_ms=2**50)


@caught_by("answer-as-decided")
def answered_with_another_code(log: Log) -> Log:
    return _changed(log, _at(log, CreateAnswered, error_code=36), error_code=37)


@caught_by("created-as-asked")
def created_though_nobody_asked(log: Log) -> Log:
    return _without(log, _at(log, CreateRequested, topic="slow"))


@caught_by("created-as-asked")
def created_though_rejected(log: Log) -> Log:
    slow = _at(log, TopicCreated, topic="slow")
    rejected = replace(log[slow], event=CreateRejected("q3", "slow", 44, "no", "policy:x"))  # type: ignore[arg-type]
    return _renumbered([*log[:slow], rejected, *log[slow:]])


@caught_by("rejected-with-rule")
def rejected_without_a_rule(log: Log) -> Log:
    return _changed(log, _at(log, CreateRejected), rule="")


@caught_by("rejected-with-rule")
def rejected_without_an_error(log: Log) -> Log:
    return _changed(log, _at(log, ChangeRejected), error_code=0)


# Topics.


@caught_by("one-creation-per-life")
def created_twice(log: Log) -> Log:
    return _again(log, _at(log, TopicCreated))


@caught_by("one-creation-per-life")
def created_beside_a_name_that_collides(log: Log) -> Log:
    return _changed(log, _at(log, TopicCreated, topic="slow"), topic="a.b")


@caught_by("topic-exists")
def ready_after_it_was_deleted(log: Log) -> Log:
    return _renumbered([*log, replace(log[-1], event=TopicReady("hand"))])  # type: ignore[arg-type]


@caught_by("topic-exists")
def changed_but_never_created(log: Log) -> Log:
    return _without(log, _at(log, TopicCreated, topic="slow"))


@caught_by("topic-exists")
def a_partition_that_is_not_there(log: Log) -> Log:
    return _changed(log, _at(log, LeaderElected), partition=9)


@caught_by("partitions-never-fall")
def appended_too_early(log: Log) -> Log:
    return _changed(log, _at(log, PartitionsAdded), first=1)


@caught_by("as-asked")
def a_partition_less(log: Log) -> Log:
    index = _at(log, TopicCreated)
    event: Any = log[index].event
    return _changed(log, index, partitions=event.partitions[:1])


@caught_by("as-asked")
def another_factor(log: Log) -> Log:
    return _changed(log, _at(log, CreateRequested), replication_factor=2)


@caught_by("as-asked")
def not_where_it_was_assigned(log: Log) -> Log:
    return _with_partition(log, _at(log, TopicCreated, topic="hand"), replicas=ids(3, 1))


@caught_by("ready-is-true")
def ready_before_all_brokers_know(log: Log) -> Log:
    return _changed(log, _at(log, MetadataPropagated), brokers=ids(1))


@caught_by("ready-is-true")
def ready_twice(log: Log) -> Log:
    return _again(log, _at(log, TopicReady))


@caught_by("ready-is-true")
def ready_under_a_leader_that_is_fenced(log: Log) -> Log:
    index = _at(log, TopicReady, topic="hand")
    fenced = replace(log[index], event=BrokerFenced(BrokerId(3), 3, "died"))
    return _renumbered([*log[:index], fenced, *log[index:]])


# Replicas and leaders.


@caught_by("replicas-distinct")
def a_replica_twice(log: Log) -> Log:
    return _with_partition(log, _at(log, TopicCreated, topic="hand"), replicas=ids(1, 1))


@caught_by("leader-in-isr")
def a_leader_out_of_sync(log: Log) -> Log:
    return _with_partition(log, _at(log, TopicCreated), isr=ids(2), leader=BrokerId(1))


@caught_by("leader-in-isr")
def in_sync_but_no_replica(log: Log) -> Log:
    return _changed(log, _at(log, IsrChanged), isr=ids(1, 2, 3, 4))


@caught_by("leader-in-isr")
def a_placeholder_in_sync(log: Log) -> Log:
    return _with_partition(log, _at(log, TopicCreated), isr=ids(1, 2, -1))


@caught_by("leader-in-isr")
def nobody_in_sync(log: Log) -> Log:
    return _changed(log, _at(log, IsrChanged), isr=())


@caught_by("replicas-live")
def placed_on_a_broker_that_is_not_there_yet(log: Log) -> Log:
    return _with_partition(log, _at(log, TopicCreated, topic="slow"), replicas=ids(1, 3))


@caught_by("replicas-live")
def assigned_to_an_unknown_broker(log: Log) -> Log:
    return _without_all(_without_all(log, BrokerRegistered, broker_id=3), BrokerUnfenced, broker_id=3)


@caught_by("epochs-never-go-back")
def a_partition_epoch_goes_back(log: Log) -> Log:
    return _changed(log, _at(log, IsrChanged), partition_epoch=0)


@caught_by("epochs-never-go-back")
def another_leader_in_the_same_epoch(log: Log) -> Log:
    return _changed(log, _at(log, LeaderElected), leader_epoch=0)


@caught_by("epochs-never-go-back")
def a_change_is_lost(log: Log) -> Log:
    return _without(log, _at(log, PlaceholderFilled))


@caught_by("leaders-unfenced")
def a_fenced_broker_elected(log: Log) -> Log:
    return _changed(log, _at(log, LeaderElected), leader=BrokerId(2), isr=ids(2))


@caught_by("led-when-possible")
def nobody_elected_after_a_leader_died(log: Log) -> Log:
    return _without_all(log, LeaderElected)


@caught_by("placeholders-allowed")
def placeholders_though_they_are_off(log: Log) -> Log:
    return _with_settings(log, enable_under_replicated_topic_creation="false")


@caught_by("placeholders-allowed")
def placeholders_with_too_few_live_brokers(log: Log) -> Log:
    return _with_settings(log, min_insync_replicas="3")


@caught_by("placeholders-filled")
def filled_by_a_fenced_broker(log: Log) -> Log:
    return _without_all(log, BrokerUnfenced, broker_id=3)


@caught_by("placeholders-filled")
def not_filled_though_a_broker_joined(log: Log) -> Log:
    return _without_all(log, PlaceholderFilled, partition=1)


# Brokers.


@caught_by("broker-life")
def fenced_twice(log: Log) -> Log:
    return _again(log, _at(log, BrokerFenced))


@caught_by("broker-life")
def an_epoch_used_again(log: Log) -> Log:
    return _changed(log, _at(log, BrokerRegistered, broker_id=3), broker_epoch=1)


@caught_by("broker-life")
def live_though_never_registered(log: Log) -> Log:
    return _without(log, _at(log, BrokerRegistered, broker_id=2))


KINDS = {LeaderElected, IsrChanged, PlaceholderFilled, TopicDeleted, PartitionsAdded, ChangeRejected}
"""What a clean log has beside what every log has."""
