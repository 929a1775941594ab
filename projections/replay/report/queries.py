"""Gathers what a report shows from a log, with Spark SQL on the columns of its events.

The columns are read once and kept by Spark, on disk where memory does not do, while all questions are asked of them and
the invariants are checked. Only what brokers hold at the end takes a fold of the topics (`rebuild`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from events.names import BrokerId
from projections.replay.checks.invariants import CHECKS, violation_line
from projections.replay.checks.invariants import COLUMNS as CHECKED_COLUMNS
from projections.replay.checks.on_spark import check_frame
from projections.replay.checks.rules import Found
from projections.replay.errors import message_of
from projections.replay.log.log_ref import Ends, Ref, ends_of
from projections.replay.rebuild.rebuild import rebuilt_cluster, rebuilt_topics
from projections.replay.report import data
from projections.replay.spark.source import events_frame
from projections.text.names import error_name
from projections.views.brokers import ClusterRow

EXAMPLES_MAX = 3
"""Violations that are shown of each invariant."""

_COLUMNS = tuple(
    {*CHECKED_COLUMNS, "offset", "at_ms", "shard", "type", "cause_command", "error_code", "rule", "release"}
)

_OUTCOME = """
    case
        when type = 'CreateRejected' then 'refused'
        when type = 'ChangeRejected' then 'change-refused'
        when type in ('PartitionsAdded', 'TopicDeleted', 'TopicConfigsChanged') then 'changed'
        when type = 'CreateAnswered' and error_code = 0 then 'created'
        when type = 'CreateAnswered' and error_code = 7 then 'timed-out'
        when type = 'CreateAnswered' and cause_command = 'DeleteTopic' then 'failed'
    end
"""
"""How a request ends by one of its events; a refusal counts when it is decided, not once more when it is answered."""


def gather(session: SparkSession, ref: Ref, at: str | None) -> data.Report:
    """Everything that a report shows of a log as of a moment. Raises ReplayError."""
    ends = ends_of(ref, at)
    with _kept(events_frame(session, ref, end=ends, columns=_COLUMNS)) as events:
        types = events.groupBy("type").count().collect()
        first_ms, last_ms = events.selectExpr("min(at_ms)", "max(at_ms)").head() or (0, 0)
        width = data.bucket_ms(last_ms - first_ms)
        releases = events.where("release is not null").groupBy("release").agg({"at_ms": "min"}).collect()
        outcomes = _outcomes(events, width)
        waits, refusals = _waits(events), _refusals(events)
        checks = _checks(events, len(ends) > 1)
    return data.Report(
        log=ref.text,
        ends=ends,
        first_ms=first_ms,
        last_ms=last_ms,
        releases=tuple(row[0] for row in sorted(releases, key=lambda row: row[1])),
        bucket_ms=width,
        outcomes=outcomes,
        events_by_type=tuple(sorted(((row[0], row[1]) for row in types), key=lambda pair: (-pair[1], pair[0]))),
        waits=waits,
        refusals=refusals,
        held=_held(session, ref, ends),
        checks=checks,
    )


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()


def _outcomes(events: DataFrame, width: int) -> tuple[data.Outcomes, ...]:
    ended = events.selectExpr(f"at_ms div {width} * {width} as since_ms", f"{_OUTCOME} as outcome")
    counted = ended.where("outcome is not null").groupBy("since_ms", "outcome").count()
    return tuple(data.Outcomes(*row) for row in sorted(counted.collect()))


def _refusals(events: DataFrame) -> tuple[data.Refusals, ...]:
    refused = events.where("type in ('CreateRejected', 'ChangeRejected')").groupBy("rule", "error_code").count()
    rows = sorted(refused.collect(), key=lambda row: (-row[2], row[0], row[1]))
    return tuple(data.Refusals(rule, error_name(code), count) for rule, code, count in rows)


def _waits(events: DataFrame) -> data.Waits:
    """From each TopicReady back to the TopicCreated before it in the same shard: one topic lives there at a time."""
    lives = events.where("type in ('TopicCreated', 'TopicReady')").selectExpr(
        "type", "at_ms - lag(at_ms) over (partition by log_partition, shard order by offset) as since_ms"
    )
    waits = lives.selectExpr("type", "case when type = 'TopicReady' then since_ms end as wait_ms")
    place = f"size(filter(array({', '.join(map(str, data.WAIT_EDGES_MS))}), edge -> edge <= wait_ms)) - 1"
    by_place = waits.where("wait_ms is not null").groupBy(expr(place)).count().collect()
    numbers = waits.selectExpr(
        "count_if(type = 'TopicReady')",
        "count_if(type = 'TopicCreated')",
        "percentile_approx(wait_ms, array(0.5, 0.95, 0.99, 1.0), 10000)",
    ).head()
    assert numbers is not None, "a count has a row"
    ready, created, percentiles = numbers
    return data.Waits(data.wait_bins(dict(map(tuple, by_place))), ready, created - ready, *(percentiles or ()))


def _held(session: SparkSession, ref: Ref, ends: Ends) -> data.Held | str:
    cluster = rebuilt_cluster(ref, ends)
    with _kept(rebuilt_topics(session, ref, ends).select("partitions")) as topics:
        try:
            count = topics.count()
        except PySparkException as error:
            return message_of(error)
        partitions = topics.selectExpr("inline(partitions)")
        numbers = partitions.selectExpr("count(*)", "count_if(leader < 0)").head() or (0, 0)
        replicas = partitions.selectExpr("explode(replicas) as broker_id", "leader")
        by_broker = replicas.groupBy("broker_id").agg(expr("count(*)"), expr("count_if(leader = broker_id)")).collect()
    loads = {row[0]: (row[1], row[2]) for row in by_broker}
    brokers = sorted({*(broker_id for broker_id in loads if broker_id >= 0), *cluster.brokers})
    return data.Held(
        topics=count,
        partitions=numbers[0],
        leaderless=numbers[1],
        placeholders=sum(held for broker_id, (held, _) in loads.items() if broker_id < 0),
        brokers=tuple(_load(broker_id, cluster, *loads.get(broker_id, (0, 0))) for broker_id in brokers),
    )


def _checks(events: DataFrame, several: bool) -> tuple[data.CheckResult, ...]:
    found = {one.check: one for one in check_frame(events, limit=EXAMPLES_MAX).found}
    return tuple(_result(name, demands, found.get(name), several) for name, demands in CHECKS.items())


def _result(name: str, demands: str, broken: Found | None, several: bool) -> data.CheckResult:
    if broken is None:
        return data.CheckResult(name, demands, 0)
    lines = tuple(violation_line(row, several) for row in broken.violations)
    return data.CheckResult(name, demands, broken.times, lines)


def _load(broker_id: int, cluster: ClusterRow, replicas: int, leaders: int) -> data.BrokerLoad:
    known = cluster.brokers.get(BrokerId(broker_id))
    if known is None:
        return data.BrokerLoad(broker_id, "not registered", None, replicas, leaders)
    return data.BrokerLoad(broker_id, "fenced" if known.fenced else "live", known.rack, replicas, leaders)
