"""Compares live state with the events: equal, or both sides and the first event at which they differ."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller.machine.state import Topic
from controller.store.store import CLUSTER
from controller.store.stored_topics import TOPIC
from events.catalog import Recorded
from events.logs.log import read_one, shard_offsets
from events.names import BrokerId, ShardKey, TopicName
from projections.replay.log.log_ref import LogRef
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import Options
from projections.replay.rebuild.compare import UNEXPLAINED, first_difference, run_compare, topic_steps
from projections.replay.runner import InProcess
from tests.replay.damage import put_view

SHARDS = ("pay_orders", "pay_refunds", "late_one", "slow_one", "team_auto", "orders")


Steps = list[tuple[Recorded, Topic | None]]


def steps_of(history: LogRef, shard: str) -> Steps:
    """The events of a shard, each with the topic after it."""
    with frozen_log(history.path) as log:
        offsets = shard_offsets(log, ShardKey(shard), 0)
        return list(topic_steps([(offset, read_one(log, offset)) for offset in offsets]))


@pytest.mark.parametrize("shard", SHARDS)
def test_compare_finds_the_event_after_which_a_live_topic_stopped(history: LogRef, shard: str) -> None:
    steps = steps_of(history, shard)
    each = [None, *(topic and replace(topic, propagated=()) for _, topic in steps)]  # TopicReady empties it
    for count, live in enumerate(each):
        if live == each[-1]:
            continue
        if live is None:
            after = max(n for n, one in enumerate(each) if n and one is not None and each[n - 1] is None)
        else:
            after = next(n for n in range(count, len(each)) if each[n] != live)
        found, _ = first_difference(steps, each[-1], live)
        expected = steps[after - 1][0].offset
        if shard == "pay_refunds":  # its second life has some parts of the first
            assert found is not None
            assert found >= expected
        else:
            assert found == expected, f"{shard} after {count} events"


def with_partition(number: int, **changes: Any) -> Callable[[Topic], Topic]:
    """Returns a change of one partition of a topic."""

    def changed(topic: Topic) -> Topic:
        partitions = list(topic.partitions)
        partitions[number] = replace(partitions[number], **changes)
        return replace(topic, partitions=tuple(partitions))

    return changed


CHANGED: dict[str, tuple[Callable[[Topic], Topic], str]] = {
    "a leader that no event elected": (with_partition(1, leader=BrokerId(9)), UNEXPLAINED),
    "changed more often than the log says": (with_partition(0, partition_epoch=99, leader=BrokerId(2)), UNEXPLAINED),
    "configs that it never had": (lambda topic: replace(topic, configs=(("retention.ms", "77"),)), UNEXPLAINED),
    "not ready": (lambda topic: replace(topic, ready_at_ms=None, propagated=(BrokerId(1),)), "pay.orders is ready"),
    "another name": (lambda topic: replace(topic, name=TopicName("pay_orders")), UNEXPLAINED),
}


@pytest.mark.parametrize(("change", "event"), CHANGED.values(), ids=CHANGED)
def test_compare_finds_the_event_that_a_changed_live_topic_contradicts(
    history: LogRef, change: Callable[[Topic], Topic], event: str
) -> None:
    steps = steps_of(history, "pay_orders")
    topic = steps[-1][1]
    assert topic is not None
    offset, text = first_difference(steps, topic, change(topic))
    assert text.startswith(event)
    assert (offset is None) == (event == UNEXPLAINED)


def test_compare_reports_a_live_topic_without_events_as_unexplained(history: LogRef) -> None:
    topic = steps_of(history, "slow_one")[2][1]
    assert topic is not None
    assert first_difference([], None, topic) == (None, UNEXPLAINED)


# --- the sub-command


def state_key(shard: str) -> bytes:
    """The key of a topic's state in the views."""
    return b"s" + TOPIC + shard.encode()


def plant(path: Path, shard: str, live: Topic | bytes | None) -> None:
    """Replace the live state of a topic."""
    put_view(path, state_key(shard), msgspec.msgpack.encode(live) if isinstance(live, Topic) else live)


def test_compare_reports_the_rebuilt_and_the_live_value(own_history: LogRef) -> None:
    orders = steps_of(own_history, "pay_orders")
    stale, newest, missed = orders[6][1], orders[-1][1], orders[7][0].offset
    created = steps_of(own_history, "late_one")[1][0].offset
    stranger = steps_of(own_history, "slow_one")[2][1]
    assert stale is not None
    assert newest is not None
    assert stranger is not None
    plant(own_history.path, "pay_orders", stale)
    plant(own_history.path, "late_one", None)
    plant(own_history.path, "stranger", replace(stranger, name=TopicName("stranger")))
    plant(own_history.path, "team_auto", b"\xc1")
    outcome = run_compare(InProcess(), own_history, Options())
    assert outcome.found
    rows: dict[str, Any] = {row["shard"]: row for row in outcome.rows}
    assert rows.keys() == {"pay_orders", "late_one", "stranger", "team_auto"}
    assert {shard: row["offset"] for shard, row in rows.items()} == {
        "pay_orders": missed,
        "late_one": created,
        "stranger": None,
        "team_auto": None,
    }
    assert rows["late_one"]["live_hash"] is None
    assert "cannot be read" in rows["team_auto"]["event"]
    text = "\n".join(outcome.lines)
    assert text.startswith("4 differences between the live state and the events, as of offset ")
    assert f"topic pay.orders: rebuilt {rows['pay_orders']['rebuilt_hash'][:16]}, live " in text
    assert f"  they differ from offset {missed} on: " in text
    partition = next(one for one in rows["pay_orders"]["differs"] if one["what"] == "partition 2")
    assert partition["rebuilt"]["partition_epoch"] == newest.partitions[2].partition_epoch
    assert partition["live"] != partition["rebuilt"]


def test_compare_covers_brokers_and_settings(own_history: LogRef) -> None:
    with frozen_log(own_history.path) as log:
        stored = msgspec.msgpack.decode(log.get(CLUSTER) or b"")
    stored[1] = "another release"
    put_view(own_history.path, b"s" + CLUSTER, msgspec.msgpack.encode(stored))
    outcome = run_compare(InProcess(), own_history, Options())
    assert outcome.found
    assert "  release: rebuilt 1.0, live another release" in outcome.lines
    assert [row["shard"] for row in outcome.rows] == [""]
