"""Writes a report: `topicwright replay report LOG --to FILE.html`, one HTML page that loads no other files.

SQL on the events of a log and the views of `checks/views.sql` computes the numbers. report.html
includes the figures (`report_figures`) with Plotly's library, and below each figure its numbers in a table, which need
no script. Everything from the log is escaped, and the page's Content-Security-Policy forbids it to load anything. Spark
is not needed.
"""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from events.files import replacing
from projections.replay import report_figures
from projections.replay.checks.checking import check
from projections.replay.checks.history import COLUMNS, history_of
from projections.replay.checks.invariants import CHECKS, violation_line
from projections.replay.checks.rules import Found, invariants, together
from projections.replay.log.log_ref import Ref, as_of, ends_of, offsets_row
from projections.replay.outcome import Options, Outcome, ReplayError
from projections.replay.report_figures import OUTCOMES, WAIT_EDGES_MS, Report, Row, bucket_ms, requests, wait_bins
from projections.replay.runner import events_of
from projections.text.names import error_name_and_code
from projections.text.points_in_time import iso
from projections.text.wording import many


def page(report: Report) -> str:
    """The report as one HTML page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = "{:,}".format
    return environment.get_template("report.html").render(
        report=report,
        outcome_rows=[(name.replace("-", " "), words, requests(report, name)) for name, (words, _) in OUTCOMES.items()],
        wait_rows=[(report_figures.bin_text(one), one.count) for one in report.wait_bins],
        broker_rows=[(one.broker_id, one.rack or "", one.status, one.replicas, one.leaders) for one in report.brokers],
        refusal_rows=[(one.rule, one.error, one.count) for one in report.refusals],
        health_rows=[(iso(at_ms), *counts) for at_ms, *counts in (vars(one).values() for one in report.health)],
        lane_rows=[(one.broker_id, one.status, iso(one.since_ms), iso(one.until_ms)) for one in report.lanes],
        plotly=Markup(get_plotlyjs()),
        **{"as_of": as_of, "drawn": _drawn, "figures": report_figures, "iso": iso, "many": many, "requests": requests},
    )


def _drawn(name: str, figure: go.Figure) -> Markup:
    return Markup(
        to_html(
            figure,
            include_plotlyjs=False,
            full_html=False,
            div_id=f"{name}-picture",
            default_height=f"{figure.layout.height}px",
            config={"displaylogo": False, "responsive": True, "displayModeBar": False},
        )
    )


EXAMPLES_MAX = 3
"""The maximum number of violations listed for each invariant."""
_COLUMNS = (*COLUMNS, "release", "rack", "principal")

_OUTCOMES = """
select at_ms // $width * $width as at_ms,
       case when type = 'CreateRejected' then 'rejected'
            when type = 'ChangeRejected' then 'change-rejected'
            when type in ('PartitionsAdded', 'TopicDeleted', 'TopicConfigsChanged') then 'changed'
            when type = 'CreateAnswered' and error_code = 0 then 'created'
            when type = 'CreateAnswered' and error_code = 7 then 'timed-out'
            when type = 'CreateAnswered' and cause_command = 'DeleteTopic' then 'failed' end as outcome,
       count(*) as count
from events group by all having outcome is not null order by all
"""
"""The outcomes of requests. A refusal counts when it is decided, not again when it is answered."""
_WAITS = """
with lives as (
  select min(ready.at_ms) - created.at_ms as wait_ms
  from topic_events created
  left join topic_events ready on ready.type = 'TopicReady' and ready.log_partition = created.log_partition
    and ready.shard = created.shard and ready.created_at = created."offset"
  where created.type = 'TopicCreated'
  group by created.log_partition, created."offset", created.at_ms)
"""
_HELD = """
select (select count(*) from topic_lives where until = forever() and topic <> '') as topics, count(*) as partitions,
       coalesce(sum(len(list_filter(replicas, lambda id: id < 0))), 0)::bigint as placeholders,
       count(*) filter (where leader < 0) as leaderless
from open_partitions
"""
_BROKERS = """
with loads as (
  select broker_id, count(*) as replicas, count(*) filter (where leader = broker_id) as leaders
  from (select unnest(replicas) as broker_id, leader from open_partitions)
  where broker_id >= 0 group by broker_id),
brokers as (
  select broker_id,
         if(max_by(registered, since), if(max_by(live, since), 'live', 'fenced'), null) as status
  from broker_spans where log_partition = (select min(log_partition) from log_extents) group by broker_id),
racks as (
  select broker_id, max_by(coalesce(rack, ''), "offset") as rack from events
  where type = 'BrokerRegistered' and log_partition = (select min(log_partition) from log_extents) group by broker_id)
select broker_id, coalesce(status, 'not registered') as status,
       if(brokers.status is null, null, nullif(rack, '')) as rack,
       coalesce(replicas, 0) as replicas, coalesce(leaders, 0) as leaders
from brokers full join loads using (broker_id) left join racks using (broker_id)
where brokers.status is not null or loads.replicas is not null order by broker_id
"""
_LANES = """
select broker_id, since_ms, coalesce(lead(since_ms) over (partition by broker_id order by since), $last) as until_ms,
       if(live, 'live', 'down') as status
from broker_spans where registered and log_partition = (select min(log_partition) from log_extents) order by all
"""
_HEALTH = """
with states as (
  select log_partition, "offset", least(until, life_until) as until, 1 as partitions, (leader < 0)::int as leaderless,
         (len(isr) < len(replicas))::int as under_replicated, (list_min(replicas) < 0)::int as placeholders
  from partition_steps where life_until is not null),
changes as (
  select * exclude until from states
  union all
  select log_partition, until, -partitions, -leaderless, -under_replicated, -placeholders
  from states where until < forever()),
by_event as (
  select at_ms, "offset", sum(c.partitions) as partitions, sum(leaderless) as leaderless,
         sum(under_replicated) as under_replicated, sum(placeholders) as placeholders
  from changes c join events using (log_partition, "offset") group by all)
select at_ms // $width * $width as at_ms, max(partitions)::bigint as partitions,
       max(leaderless)::bigint as leaderless, max(under_replicated)::bigint as under_replicated,
       max(placeholders)::bigint as placeholders
from (select at_ms, sum(partitions) over up_to as partitions, sum(leaderless) over up_to as leaderless,
             sum(under_replicated) over up_to as under_replicated, sum(placeholders) over up_to as placeholders
      from by_event window up_to as (order by at_ms, "offset"))
group by 1 order by 1
"""
"""The highest number within each bar, so that a short outage shows."""
_REFUSALS = """
select rule, error_code, count(*) as count from events where type in ('CreateRejected', 'ChangeRejected')
group by all order by count desc, rule, error_code
"""
_PRINCIPALS = """
with results as (
  select q.principal, r.type
  from events q join events r on (r.log_partition, r.request_id, r.topic) = (q.log_partition, q.request_id, q.topic)
  where q.type = 'CreateRequested' and r.type in ('TopicCreated', 'CreateRejected')
  union all
  select principal, type from events where type = 'ChangeRejected')
select principal, count(*) filter (where type = 'TopicCreated'), count(*) filter (where type <> 'TopicCreated')
from results group by principal order by count(*) desc, principal limit 20
"""
_CHANGES = """
select at_ms, coalesce(principal, '-'), topic, case type
    when 'TopicConfigsChanged' then 'configs are now ' || array_to_string(
      list_transform(map_entries(configs), lambda one: one.key || '=' || one.value), ', ')
    when 'PartitionsAdded' then len(partitions) || ' partitions added' else 'deleted' end
from events where type in ('TopicConfigsChanged', 'PartitionsAdded', 'TopicDeleted')
order by at_ms desc, "offset" desc limit 20
"""


def gather(ref: Ref, at: str | None) -> Report:
    """The report of a log as of a point in time. Raises ReplayError."""
    ends = ends_of(ref, at)
    source = events_of(ref, ends, _COLUMNS)
    with history_of(source.rows(), source.schema) as history:
        rows = check(history, limit=EXAMPLES_MAX).rows
        found = {one.check: one for one in together(rows, invariants(), EXAMPLES_MAX)}
        ((first_ms, last_ms),) = history.execute("select min(at_ms), max(at_ms) from events").fetchall()
        width = bucket_ms(last_ms - first_ms)
        releases = "select release from events where release is not null group by release order by min(at_ms)"
        types = "select type, count(*) from events group by type order by count(*) desc, type"
        refusals = _rows(history, _REFUSALS)
        for one in refusals:
            one.error = error_name_and_code(one.error_code)
        waits, bins = _waits(history)
        return Report(
            log=ref.text,
            ends=ends,
            events=sum(ends.values()),
            first_ms=first_ms,
            last_ms=last_ms,
            releases=tuple(release for (release,) in history.execute(releases).fetchall()),
            bucket_ms=width,
            outcomes=_rows(history, _OUTCOMES, width=width),
            events_by_type=history.execute(types).fetchall(),
            waits=waits,
            wait_bins=bins,
            refusals=refusals,
            held=_rows(history, _HELD)[0],
            brokers=_rows(history, _BROKERS),
            lanes=_rows(history, _LANES, last=last_ms),
            health=_rows(history, _HEALTH, width=width),
            principals=history.execute(_PRINCIPALS).fetchall(),
            changes=[(iso(at_ms), *row) for at_ms, *row in history.execute(_CHANGES).fetchall()],
            checks=[_result(name, demands, found.get(name), len(ends) > 1) for name, demands in CHECKS.items()],
            violations=sum(row["times"] for row in rows),
        )


def _rows(history: duckdb.DuckDBPyConnection, query: str, **parameters: int) -> list[Row]:
    answer = history.execute(query, parameters)
    names = [column[0] for column in answer.description or ()]
    return [Row(**dict(zip(names, row, strict=True))) for row in answer.fetchall()]


def _waits(history: duckdb.DuckDBPyConnection) -> tuple[Row, list[Row]]:
    """How long topics waited until they were ready: the quantiles, and the histogram."""
    place = f"len(list_filter({list(WAIT_EDGES_MS)}, lambda edge: edge <= wait_ms)) - 1"
    bins = history.execute(f"{_WAITS} select {place}, count(*) from lives where wait_ms is not null group by all")
    by_place = dict(bins.fetchall())
    (waits,) = _rows(
        history,
        f"{_WAITS} select count(wait_ms) as complete, count(*) - count(wait_ms) as never, "
        "quantile_disc(wait_ms, 0.5) as median_ms, quantile_disc(wait_ms, 0.95) as p95_ms, "
        "quantile_disc(wait_ms, 0.99) as p99_ms, max(wait_ms) as max_ms from lives",
    )
    return waits, wait_bins(by_place)


def _result(name: str, demands: str, broken: Found | None, several: bool) -> Row:
    found = Found(name, 0, ()) if broken is None else broken
    examples = [violation_line(row, several) for row in found.violations]
    return Row(name=name, demands=demands, violations=found.times, examples=examples)


DEFAULT_OUTPUT = "topicwright-report.html"


def check_report(ref: Ref, options: Options) -> None:
    """Check that the page can be written. Raises ReplayError."""
    output = _place(options)
    if not output.parent.is_dir() or output.is_dir():
        raise ReplayError(f"--to {output} cannot be written: name a file in an existing folder")


def _place(options: Options) -> Path:
    return Path(options.to or DEFAULT_OUTPUT).absolute()


def run_report(_: object, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay report`: write the report up to `options.at` to `options.to`; `found` is true
    if an invariant is violated. Raises ReplayError."""
    output = _place(options)
    report = gather(ref, options.at)
    try:
        with replacing(output) as file:
            file.write(page(report).encode())
    except OSError as error:
        raise ReplayError(f"--to {output} cannot be written: {error.strerror or error}") from error
    broken = [check.name for check in report.checks if check.violations]
    row = {
        "output": str(output),
        **offsets_row(report.ends),
        "outcomes": {name: requests(report, name) for name in OUTCOMES},
        "violations": {check.name: check.violations for check in report.checks if check.violations},
    }
    return Outcome(rows=[row], found=bool(broken), lines=list(_lines(report, broken, output)))


def _lines(report: Report, broken: list[str], output: Path) -> Iterator[str]:
    yield f"{output} shows {report.log} up to {as_of(report.ends)}"
    yield f"  invariants broken: {', '.join(broken)}" if broken else f"  all {len(report.checks)} invariants hold"
