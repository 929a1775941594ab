"""Checks of a topic's life and of the requests that made it: two windows after one shuffle by shard.

The first window goes through each shard in the order of offsets and looks up, for each event, how the topic stood
before it: its life (the creation or deletion last seen), its partition count, its `min.insync.replicas`. The second
goes through the events of each create request for each topic, and looks up what was recorded of it so far. A topic's
TopicReady and TopicDeleted name no request; the first window tells whose topic it was.

Only what the windows need is shuffled. Nothing is kept of a shard but the rows themselves, which Spark spills.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from projections.replay.checks_offsets import Extent
from projections.replay.checks_rows import ROW_CHECKS
from projections.replay.checks_timeline import SpanTable
from projections.replay.checks_told import Check, by_partition, columns, found, listed, text, violations, words

TOPIC_COLUMNS = (
    "log_partition", "offset", "at_ms", "shard", "topic", "type", "cause_command", "cause_id", "request_id",
    "error_code", "rule", "deadline_ms", "timeout_ms", "partition", "first", "partitions", "brokers",
    "configs", "assignments",
)  # fmt: skip
"""What is read of every event."""

_OF_A_TOPIC = (
    "PartitionsAdded", "TopicDeleted", "TopicConfigsChanged", "LeaderElected", "IsrChanged", "PlaceholderFilled",
    "PartitionChanged", "MetadataPropagated", "TopicReady", "TopicVanished", "CreationRefused",
)  # fmt: skip
_OF_A_PARTITION = ("LeaderElected", "IsrChanged", "PlaceholderFilled", "PartitionChanged")
_OF_A_REQUEST = (
    "CreateRequested", "CreateRejected", "TopicCreated", "TopicReady", "TopicDeleted", "CreateAnswered",
    "TopicVanished", "CreationRefused",
)  # fmt: skip
_ENDS = ("TopicDeleted", "TopicVanished", "CreationRefused")
_BIT = {event: 1 << place for place, event in enumerate(_OF_A_REQUEST)}

_NARROW = {
    "log_partition": "log_partition",
    "offset": "offset",
    "at_ms": "at_ms",
    "shard": "shard",
    "topic": "topic",
    "type": "type",
    "request_id": "request_id",
    "error_code": "error_code",
    "deadline_ms": "deadline_ms",
    "timeout_ms": "timeout_ms",
    "partition": "partition",
    "first": "first",
    "brokers": "case when partitions is not null then brokers end",
    "manual": "assignments is not null",
    "added": "case when partitions is not null then size(partitions) end",
    "factor": "case when partitions is not null then size(get(partitions, 0).replicas) end",
    "placed": "case when partitions is not null and type != 'TopicDiscovered' "
    "then array_distinct(flatten(partitions.replicas)) end",
    "own_min_isr": "case when type in ('TopicCreated', 'TopicConfigsChanged', 'TopicDiscovered') then "
    "named_struct('value', try_cast(configs['min.insync.replicas'] as int)) end",
    "broken_row": found(ROW_CHECKS),
}
"""What goes through the shuffle. `placed` are all brokers and placeholders of the partitions of an event."""

_IN_A_SHARD = "partition by log_partition, shard order by offset rows between unbounded preceding and 1 preceding"
_STOOD_BEFORE = {
    "life": "last_value(case when type = 'TopicCreated' then named_struct('topic', topic, 'request_id', request_id) "
    f"when type in ({words(_ENDS)}) then "
    "named_struct('topic', cast(null as string), 'request_id', cast(null as string)) "
    f"end, true) over ({_IN_A_SHARD})",
    "found_there": "last_value(case when type = 'TopicDiscovered' then named_struct('topic', topic) "
    f"when type in ({words(_ENDS)}) then named_struct('topic', cast(null as string)) end, true) over ({_IN_A_SHARD})",
    "count": "last_value(case when type in ('TopicCreated', 'TopicDiscovered') then added "
    "when type = 'PartitionsAdded' then first + added "
    f"end, true) over ({_IN_A_SHARD})",
    "set_min_isr": f"last_value(own_min_isr, true) over ({_IN_A_SHARD})",
}

_STANDING = "coalesce(life.topic, found_there.topic)"
"""The topic that stands under a shard key: created here, or found in the cluster that carries decisions out."""
_LIVES = f"{_STANDING} is not null"
LIFE_CHECKS = (
    Check(
        "one-creation-per-life",
        f"type = 'TopicCreated' and {_LIVES}",
        text("'created while '", _STANDING, "' exists'"),
        "'no topic under this shard key'",
    ),
    Check(
        "one-creation-per-life",
        f"type = 'TopicDiscovered' and {_LIVES} and {_STANDING} != topic",
        text("'discovered while '", _STANDING, "' exists'"),
        "'no other topic under this shard key'",
    ),
    Check(
        "topic-exists",
        f"type in ({words(_OF_A_TOPIC)}) and not coalesce({_STANDING} = topic, false)",
        text("type", "' while there is '", _STANDING),
        "'the topic'",
    ),
    Check(
        "topic-exists",
        f"type in ({words(_OF_A_PARTITION)}) and {_STANDING} = topic "
        "and not coalesce(partition between 0 and count - 1, false)",
        text("type", "' of partition '", "partition"),
        text("'a partition below '", "count"),
    ),
    Check(
        "partitions-never-fall",
        f"type = 'PartitionsAdded' and {_STANDING} = topic and (not (first <=> count) or added = 0)",
        text("added", "' partitions added from '", "first"),
        text("'some, from '", "count"),
    ),
)
"""What follows from how a topic stood before an event."""

_OF_ONE_ASK = "partition by log_partition, shard, topic, ask order by offset"
_SO_FAR = f"{_OF_ONE_ASK} rows between unbounded preceding and 1 preceding"
_TOLD_BEFORE = {
    "asked": "first_value(case when type = 'CreateRequested' then named_struct("
    "'offset', offset, 'deadline_ms', deadline_ms, 'timeout_ms', timeout_ms, 'manual', manual) end, true) "
    f"over ({_SO_FAR})",
    "rejected_with": f"last_value(case when type = 'CreateRejected' then error_code end, true) over ({_SO_FAR})",
    "so_far": f"coalesce(bit_or(bit) over ({_SO_FAR}), 0)",
    "is_last": f"lead(offset) over ({_OF_ONE_ASK}) is null",
}


def _had(event: str) -> str:
    return f"so_far & {_BIT[event]} != 0"


def _has(event: str) -> str:
    return f"(so_far | bit) & {_BIT[event]} != 0"


ASK_CHECKS = (
    Check("one-answer", "type = 'CreateRequested' and asked is not null", "'asked again'", "'one ask'"),
    Check(
        "one-answer",
        f"type = 'CreateAnswered' and {_had('CreateAnswered')}",
        "'answered again'",
        "'one answer'",
    ),
    Check(
        "cause-exists",
        "type in ('CreateRejected', 'CreateAnswered') and asked is null",
        text("type", "' of request '", "request_id"),
        "'a CreateRequested of that request before it'",
    ),
    Check(
        "created-as-asked",
        "type = 'TopicCreated' and asked is null and deadline_ms != 0",
        text("'request '", "request_id", "' is in the log without an ask'"),
        "'a recorded ask (a dry run leaves none)'",
    ),
    Check(
        "created-as-asked",
        f"(type = 'TopicCreated' and {_had('CreateRejected')}) or (type = 'CreateRejected' and {_had('TopicCreated')})",
        text("'created and rejected by request '", "request_id"),
        "'one of both'",
    ),
    Check(
        "none-after-ready",
        "type = 'CreateAnswered' and error_code = 0 and asked is not null "
        f"and not ({_had('TopicReady')} or ({_had('TopicCreated')} and asked.timeout_ms <= 0))",
        f"case when {_had('TopicCreated')} then 'NONE before TopicReady' else 'NONE, but not created' end",
        "'TopicReady before the answer'",
    ),
    Check(
        "timeout-when-due",
        "type = 'CreateAnswered' and error_code = 7 and at_ms < asked.deadline_ms",
        text("'timed out at '", "at_ms"),
        text("'at or after '", "asked.deadline_ms"),
    ),
    Check(
        "replicas-live",
        "type = 'TopicCreated' and deadline_ms != 0 and not coalesce(asked.manual, false) and "
        "array_max(array_except(placed, coalesce(live, array()))) >= 0",
        text("'placed on '", listed("array_except(placed, coalesce(live, array()))")),
        text("'live brokers: '", listed("live")),
    ),
    Check(
        "replicas-live",
        "type = 'PartitionsAdded' and not manual and "
        "array_max(array_except(placed, coalesce(live, array()))) >= 0",
        text("'placed on '", listed("array_except(placed, coalesce(live, array()))")),
        text("'live brokers: '", listed("live")),
    ),
    Check(
        "replicas-live",
        "placed is not null and (manual or coalesce(asked.manual, false)) and "
        "array_max(array_except(placed, coalesce(registered, array()))) >= 0",
        text("'assigned by hand to '", listed("array_except(placed, coalesce(registered, array()))")),
        text("'registered brokers: '", listed("registered")),
    ),
    Check(
        "replicas-live",
        "placed is not null and not (array_sort(brokers) <=> coalesce(live, array()))",
        text("'placement saw '", listed("brokers")),
        text("'live brokers: '", listed("live")),
    ),
    Check(
        "placeholders-allowed",
        "array_min(placed) < 0 and coalesce(deadline_ms, 1) != 0 and not (coalesce(enabled, false) and "
        "size(live) >= least(floor, factor) and size(live) - array_min(placed) = factor)",
        text(
            "-array_min(placed)", "' of '", "factor", "' wait, '", "size(live)", "' brokers live, allowed: '", "enabled"
        ),
        text("'allowed, at least '", "least(floor, factor)", "' live, and each of them used'"),
    ),
)  # fmt: skip
"""What follows from what was recorded of a request before an event, and from the brokers of that moment."""


def _never_answered(extents: Mapping[int, Extent]) -> Check:
    """An ask without an answer that does not wait either. The events of a decision stand together: not judged of one
    that the end of the log may cut."""
    ends = by_partition({log_partition: str(one.end_offset) for log_partition, one in extents.items()})
    waits = f"{_has('TopicCreated')} and not {_has('TopicReady')} and not {_has('TopicDeleted')} and timeout_asked > 0"
    waits += f" and not {_has('TopicVanished')} and not {_has('CreationRefused')}"
    return Check(
        "one-answer",
        f"is_last and {_has('CreateRequested')} and offset < {ends} and not {_has('CreateAnswered')} and not ({waits})",
        "'never answered'",
        "'one answer, or a topic that is waited for'",
    )


_OF_THE_ASK = {
    "timeout_asked": "coalesce(asked.timeout_ms, case when type = 'CreateRequested' then timeout_ms end)",
    "floor": "coalesce(case when type = 'TopicCreated' then own_min_isr.value else set_min_isr.value end, min_isr, 1)",
}


_ASK = (
    f"case when type in ('TopicReady', {words(_ENDS)}) and life.topic = topic then life.request_id else request_id end"
)
"""Whose request an event belongs to."""


def topic_violations(events: DataFrame, spans: SpanTable, extents: Mapping[int, Extent]) -> DataFrame:
    """All that is wrong with single events, topics' lives and create requests."""
    narrow = events.selectExpr(*columns(_NARROW))
    stood = narrow.selectExpr("*", *columns(_STOOD_BEFORE)).selectExpr("*", f"{found(LIFE_CHECKS)} as broken_life")
    bits = " ".join(f"when '{event}' then {bit}" for event, bit in _BIT.items())
    concerned = (
        f"type in ({words((*_OF_A_REQUEST, 'PartitionsAdded'))}) or broken_row is not null or broken_life is not null"
    )
    told = (
        stood.where(concerned)
        .selectExpr("*", f"{_ASK} as ask", f"case type {bits} else 0 end as bit")
        .selectExpr("*", *columns(_TOLD_BEFORE))
    )
    placed = spans.joined(told, "placed is not null").selectExpr("*", *columns(_OF_THE_ASK))
    checks = (*ASK_CHECKS, _never_answered(extents))
    return violations(
        placed.selectExpr("*", f"{found(checks)} as broken_ask"), "broken_row", "broken_life", "broken_ask"
    )
