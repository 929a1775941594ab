"""Checks of single partitions: replicas, leaders, in-sync sets, epochs and placeholders. One window after one shuffle.

Creations and additions are cut into one row a partition, its base; further rows are the changes of its leader, its
in-sync set and its placeholders. The window goes through each partition in the order of offsets and looks up its base,
its last leader and epochs, and which placeholders were filled since; so the replicas of the moment are the base with
brokers in the places that were filled. The brokers of the moment are joined to what is left, without a shuffle.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from projections.replay.checks_rows import ADOPTED
from projections.replay.checks_timeline import SpanTable
from projections.replay.checks_told import Check, columns, found, listed, text, violations, words

PARTITION_COLUMNS = (
    "log_partition", "offset", "shard", "topic", "type", "cause_command", "partition", "first", "partitions",
    "leader", "isr", "leader_epoch", "partition_epoch", "placeholder", "broker_id", "replicas",
)  # fmt: skip
"""What is read of every event."""

_LEADING = ("LeaderElected", "IsrChanged")
_NEW = "replicas is not null and type != 'TopicDiscovered'"
"""A partition that was decided here, and begins with epochs 0 and a live leader; one that was found has a past."""
_STEP = "PartitionChanged"
"""What real brokers' partitions change by: it says only what changes, and may give a partition other replicas."""
_OF_PARTITIONS = ("TopicCreated", "PartitionsAdded", "TopicDiscovered", *_LEADING, "PlaceholderFilled", _STEP)

_ONE_A_PARTITION = {
    "log_partition": "log_partition",
    "offset": "offset",
    "shard": "shard",
    "topic": "topic",
    "type": "type",
    "adopted": f"cause_command = '{ADOPTED}'",
    "reviewed": "cause_command = 'ReviewTopics'",
    "partition": "case when new is null then partition else coalesce(first, 0) + place end",
    "replicas": "new.replicas",
    "moved": "case when new is null then replicas end",
    "leader": "coalesce(new.leader, leader)",
    "isr": "coalesce(new.isr, isr)",
    "leader_epoch": "coalesce(new.leader_epoch, leader_epoch)",
    "partition_epoch": "coalesce(new.partition_epoch, partition_epoch)",
    "placeholder": "placeholder",
    "broker_id": "broker_id",
}
"""What goes through the shuffle. Only a base has `replicas`; what a reassignment makes of them is `moved`."""

_OF_ONE = "partition by log_partition, shard, partition order by offset"
_BEFORE = f"{_OF_ONE} rows between unbounded preceding and 1 preceding"
_STOOD_BEFORE = {
    "base": "last_value(case when coalesce(replicas, moved) is not null "
    "then named_struct('offset', offset, 'replicas', coalesce(replicas, moved)) end, "
    f"true) over ({_BEFORE})",
    "synced": f"last_value(isr, true) over ({_BEFORE})",
    "led": "last_value(case when leader is not null then named_struct('id', leader, 'epoch', leader_epoch) end, true) "
    f"over ({_BEFORE})",
    "fills": "collect_list(case when type = 'PlaceholderFilled' then named_struct("
    f"'offset', offset, 'placeholder', placeholder, 'broker_id', broker_id) end) over ({_BEFORE})",
    "epoch": f"lag(partition_epoch) over ({_OF_ONE})",
    "is_last": f"lead(offset) over ({_OF_ONE}) is null",
}

_BROKER_IN_PLACE = "get(filter(fills, fill -> fill.offset > base.offset and fill.placeholder = replica), 0).broker_id"
_BASE_FILLED = f"transform(base.replicas, replica -> coalesce({_BROKER_IN_PLACE}, replica))"
_STOOD = {
    "stood": "case when coalesce(replicas, moved) is not null then coalesce(replicas, moved) "
    "when size(fills) = 0 then base.replicas "
    f"else {_BASE_FILLED} end"
}
"""The replicas of a partition: of a base its own, as of what moves it; else those before the event."""

_CHANGED = "replicas is null and base is not null"
_EPOCHS = text("'partition '", "partition", "': epochs '", "leader_epoch", "', '", "partition_epoch")
_STATE = text(
    "'partition '",
    "partition",
    "': leader '",
    "leader",
    "', in sync '",
    listed("isr"),
    "', replicas '",
    listed("stood"),
)
_FILL = text(
    "'partition '", "partition", "': broker '", "broker_id", "' for '", "placeholder", "' of '", listed("stood")
)
_IN_ORDER = (
    "coalesce(size(isr) > 0 and array_min(isr) >= 0 and size(array_distinct(isr)) = size(isr) "
    "and size(array_except(isr, stood)) = 0 and (leader = -1 or array_contains(isr, leader)), false)"
)
_LED = "coalesce(leader, led.id)"
_SYNCED = "coalesce(isr, synced)"
_STEP_IN_ORDER = (
    f"coalesce(({_LED} = -1 or array_contains({_SYNCED}, {_LED})) and size(array_distinct({_SYNCED})) = "
    f"size({_SYNCED}) and size(array_except({_SYNCED}, stood)) = 0 "
    f"and (size({_SYNCED}) = 0 or array_min({_SYNCED}) >= 0), false)"
)
"""With eligible leader replicas nobody may be in sync; then nobody leads (KIP-966)."""
_EPOCHS_FOLLOW = (
    "partition_epoch <=> epoch + 1 and (type = 'PlaceholderFilled' "
    f"or (type = '{_STEP}' and leader_epoch <=> led.epoch + int(leader is not null)) "
    f"or (type != '{_STEP}' and leader_epoch <=> led.epoch + int(leader != led.id)))"
)

PARTITION_CHECKS = (
    Check(
        "replicas-distinct",
        "replicas is not null and (size(array_distinct(replicas)) != size(replicas) or size(replicas) = 0)",
        text("'partition '", "partition", "': replicas '", listed("replicas")),
        "'distinct replicas'",
    ),
    Check(
        "replicas-distinct",
        "moved is not null and (size(array_distinct(moved)) != size(moved) or size(moved) = 0)",
        text("'partition '", "partition", "': replicas '", listed("moved")),
        "'distinct replicas'",
    ),
    Check(
        "replicas-distinct",
        f"type = 'PlaceholderFilled' and {_CHANGED} and array_contains(stood, broker_id)",
        _FILL,
        "'a broker that is no replica yet'",
    ),
    Check(
        "leader-in-isr",
        f"((replicas is not null and not adopted) or (type in ({words(_LEADING)}) and base is not null)) "
        f"and not {_IN_ORDER}",
        _STATE,
        "'a leader of the in-sync set, which is of the replicas, without placeholders'",
    ),
    Check(
        "leader-in-isr",
        f"type = '{_STEP}' and base is not null and not {_STEP_IN_ORDER}",
        text(
            "'partition '", "partition", "': leader '", _LED, "', in sync '", listed(_SYNCED), "' of '", listed("stood")
        ),
        "'a leader of the in-sync set, which is of the replicas, without placeholders'",
    ),
    Check(
        "epochs-never-go-back",
        f"{_NEW} and not adopted and not (leader_epoch <=> 0 and partition_epoch <=> 0)",
        _EPOCHS,
        "'epochs 0, 0 when it is new'",
    ),
    Check(
        "epochs-never-go-back",
        f"{_CHANGED} and not ({_EPOCHS_FOLLOW})",
        _EPOCHS,
        text("'epochs '", "led.epoch + coalesce(int(leader != led.id), 0)", "', '", "epoch + 1"),
    ),
    Check(
        "leaders-unfenced",
        f"((replicas is not null and not adopted) or type in ({words(_LEADING)})) "
        f"and not coalesce(array_contains(live, leader) or (leader = -1 and not ({_NEW})) "
        "or type = 'TopicDiscovered', false)",
        text("'partition '", "partition", "': leader '", "leader"),
        text("'one of the live brokers '", listed("live")),
    ),
    Check(
        "leaders-unfenced",
        f"type = '{_STEP}' and leader >= 0 and not coalesce(array_contains(live, leader), false)",
        text("'partition '", "partition", "': leader '", "leader"),
        text("'one of the live brokers '", listed("live")),
    ),
    Check(
        "placeholders-filled",
        f"type = 'PlaceholderFilled' and {_CHANGED} and not coalesce("
        "placeholder < 0 and array_contains(stood, placeholder) and array_contains(live, broker_id), false)",
        _FILL,
        text("'one of its placeholders filled by one of the live brokers '", listed("live")),
    ),
    Check(
        "placeholders-filled",
        f"reviewed and type in ({words(_LEADING)}) and {_CHANGED} and array_min(stood) < 0 "
        "and size(array_except(live, stood)) > 0",
        text("'partition '", "partition", "': '", listed("stood"), "' after a review'"),
        text("'filled by one of '", listed("array_except(live, stood)")),
    ),
)
"""What follows from how a partition stood before an event, and from the brokers of that moment."""

_STANDS = (
    "case when type = 'PlaceholderFilled' "
    "then transform(stood, replica -> case when replica = placeholder then broker_id else replica end) else stood end"
)
_UNFILLED = (
    Check(
        "placeholders-filled",
        "true",
        text("'partition '", "partition", "': '", listed("stands"), "' at the end of the log'"),
        text("'filled by one of '", listed("array_except(could, stands)")),
    ),
)


def _stood(events: DataFrame) -> DataFrame:
    """One row for each partition of each event that concerns one, with how the partition stood before it."""
    concerned = events.where(f"type in ({words(_OF_PARTITIONS)})").select(*PARTITION_COLUMNS)
    cut = concerned.selectExpr("*", "posexplode_outer(partitions) as (place, new)")
    rows = cut.selectExpr(*columns(_ONE_A_PARTITION))
    return rows.selectExpr("*", *columns(_STOOD_BEFORE)).selectExpr("*", *columns(_STOOD))


def partition_violations(events: DataFrame, spans: SpanTable) -> DataFrame:
    """All that is wrong with single partitions at the time of an event."""
    known = spans.joined(_stood(events), "true")
    return violations(known.selectExpr("*", f"{found(PARTITION_CHECKS)} as broken"), "broken")


def unfilled_violations(events: DataFrame, could: str) -> DataFrame:
    """Placeholders that are left at the end of a log in topics that are not deleted, though brokers could have filled
    them; `could` is SQL for the array of those brokers."""
    left = _stood(events).where("is_last").selectExpr("*", f"{_STANDS} as stands", f"{could} as could")
    left = left.where("array_min(stands) < 0 and size(array_except(could, stands)) > 0")
    since = left.selectExpr("*", "case when replicas is not null then offset else base.offset end as since")
    ends = "'TopicDeleted', 'TopicVanished', 'CreationRefused'"
    deleted = events.where(f"type in ({ends})").selectExpr(
        "log_partition as deleted_in", "shard as deleted", "offset as deleted_at"
    )
    same = "log_partition = deleted_in and shard = deleted and deleted_at > since"
    alive = since.join(deleted, expr(same), "left_anti")
    return violations(alive.selectExpr("*", f"{found(_UNFILLED)} as broken"), "broken")
