"""Lays out a report as one HTML page without outside resources.

The page includes the figures with Plotly's library, and below each figure its numbers in a table, which need no script.
Everything from the log is escaped, and the page's Content-Security-Policy forbids it to load anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from projections.replay.log.log_ref import as_of
from projections.replay.report import figures
from projections.replay.report.data import OUTCOMES, CheckResult, Held, Report, Waits
from projections.text.moments import iso
from projections.text.wording import many

BROKERS_BESIDE_WAITS = 8
"""With more brokers than this, their figure has the full width."""

_FORBID = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""Allows the page's own scripts, styles and images; forbids all requests."""

_STYLE = """
:root {
  color-scheme: light dark;
  --page: light-dark(#f5f7f9, #0d1117); --card: light-dark(#fff, #151b23);
  --ink: light-dark(#1f2933, #f0f6fc); --soft: light-dark(#52606d, #9ba5b1); --line: light-dark(#dde3e9, #3d444d);
  --bad: light-dark(#b03a00, #ff8e86); --good: light-dark(#00664b, #56d364);
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 24px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 2px; }
p { margin: 0 0 10px; color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px; margin: 18px 0; }
.tile { padding: 10px 14px; }
.tile b { display: block; font-size: 23px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.bad b, td.bad { color: var(--bad); } .good b, td.good { color: var(--good); }
.cards { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; }
section, .tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
section { padding: 16px 18px; min-width: 0; }
section.wide { grid-column: 1 / -1; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 600; }
th, td { padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.status { white-space: nowrap; font-weight: 600; }
details { margin-top: 8px; } summary { cursor: pointer; color: var(--soft); }
code { font-size: 13px; }
.cartesianlayer text, .infolayer text { fill: var(--ink) !important; }
.cartesianlayer tspan[style*="fill"] { fill: var(--soft) !important; }
.gridlayer path { stroke: var(--line) !important; }
@media (max-width: 820px) { .cards { grid-template-columns: minmax(0, 1fr); } }
@media (max-width: 520px) {
  #invariants tr { display: block; padding: 6px 0; border-bottom: 1px solid var(--line); }
  #invariants td { display: block; padding: 0; border: 0; }
  #invariants th { display: none; }
}
@media print { :root { color-scheme: light; --page: #fff; } section { break-inside: avoid; } }
"""


def page(report: Report) -> str:
    """The report as one HTML page."""
    title = f"Replay of {escape(report.log)}"
    body = "\n".join((_header(report, title), _tiles(report), '<div class="cards">', *_cards(report), "</div>"))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_FORBID}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head>\n<body><main>\n{body}\n</main></body></html>\n"
    )


def _header(report: Report, title: str) -> str:
    release = ", ".join(report.releases)
    return (
        f"<h1>{title}</h1><p>As of {as_of(report.ends)}: {report.events:,} events from "
        f"{iso(report.first_ms)} to {iso(report.last_ms)}, decided by release {escape(release) or 'unknown'}.</p>"
    )


def _tiles(report: Report) -> str:
    violations = report.violations
    tiles = [
        _tile(report.held.topics, "topics at the end"),
        _tile(report.held.partitions, "partitions at the end"),
        _tile(report.held.leaderless, "partitions without a leader", bad=report.held.leaderless > 0),
        _tile(report.held.placeholders, "placeholders that wait for a broker"),
        _tile(report.requests("created", "timed-out", "failed"), "creates done"),
        _tile(report.requests("refused", "change-refused"), "requests refused"),
        _tile(violations, f"violations of {len(report.checks)} invariants", bad=violations > 0, good=violations == 0),
    ]
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _tile(number: int, words: str, bad: bool = False, good: bool = False) -> str:
    kind = " bad" if bad else " good" if good else ""
    return f'<div class="tile{kind}"><b>{number:,}</b><span>{words}</span></div>'


def _cards(report: Report) -> Iterable[str]:
    yield _outcomes(report)
    yield _waits(report.waits)
    yield _brokers(report.held)
    yield _refusals(report)
    yield _checks(report.checks)
    yield _card("types", "Events by type", "", _table(("event", "count"), report.events_by_type), wide=True)


def _outcomes(report: Report) -> str:
    totals = [(name.replace("-", " "), words, report.requests(name)) for name, words in OUTCOMES.items()]
    words = f"Each bar is {figures.span(report.bucket_ms)}; a request counts when its outcome is recorded."
    title, table = "Requests over time, by outcome", _table(("outcome", "meaning", "requests"), totals)
    return _picture("outcomes", title, words, figures.outcomes_figure(report), table, wide=True)


def _waits(waits: Waits) -> str:
    if not waits.complete:
        words = f"No topic was complete yet; {waits.never:,} wait or were deleted before."
        return _card("waits", "Waits until complete", words, "")
    words = (
        f"{waits.complete:,} topics became complete: half within {waits.median_ms:,} ms, "
        f"95 % within {waits.p95_ms:,} ms, 99 % within {waits.p99_ms:,} ms, the longest {waits.max_ms:,} ms. "
        + (f"{waits.never:,} never were." if waits.never else "All that were created became complete.")
    )
    table = _table(("wait", "topics"), [(figures.bin_text(one), one.count) for one in waits.bins])
    return _picture("waits", "Waits until complete", words, figures.waits_figure(waits.bins), table)


def _refusals(report: Report) -> str:
    refusals = report.refusals
    if not refusals:
        return _card("refusals", "Refusals by rule", "Nothing was refused.", "", wide=True)
    more = f"; the first {figures.REFUSALS_SHOWN} are drawn" if len(refusals) > figures.REFUSALS_SHOWN else ""
    words = f"{sum(one.count for one in refusals):,} requests, refused by {many(len(refusals), 'rule')}{more}."
    table = _table(("rule", "error", "requests"), [(one.rule, one.error, one.count) for one in refusals])
    return _picture("refusals", "Refusals by rule", words, figures.refusals_figure(refusals), table, wide=True)


def _brokers(held: Held) -> str:
    title = "Replicas and leaders by broker"
    if not held.brokers:
        return _card("brokers", title, "No broker has registered.", "")
    live = sum(one.status == "live" for one in held.brokers)
    words = f"{live:,} of {many(len(held.brokers), 'broker')} live at the end."
    rows = [(one.broker_id, one.rack or "", one.status, one.replicas, one.leaders) for one in held.brokers]
    table = _table(("broker", "rack", "status", "replicas", "leaders"), rows)
    wide = len(held.brokers) > BROKERS_BESIDE_WAITS
    return _picture("brokers", title, words, figures.brokers_figure(held.brokers), table, wide)


def _checks(checks: Sequence[CheckResult]) -> str:
    broken = sum(check.violations > 0 for check in checks)
    words = f"{broken} of {len(checks)} are broken." if broken else f"All {len(checks)} hold."
    rows = "".join(map(_check, checks))
    head = "<tr><th>invariant</th><th>demands that</th><th>result</th></tr>"
    return _card("invariants", "Invariants", words, f"<table>{head}{rows}</table>", wide=True)


def _check(check: CheckResult) -> str:
    kind, said = ("good", "✓ holds")
    if check.violations:
        kind, said = "bad", f"✗ {many(check.violations, 'violation')}"
    examples = "".join(f"<br><code>{escape(one)}</code>" for one in check.examples)
    if check.violations > len(check.examples):
        examples += f"<br>… and {check.violations - len(check.examples):,} more"
    return (
        f'<tr><td>{escape(check.name)}</td><td>{escape(check.demands)}{examples}</td><td class="status {kind}">'
        f"{said}</td></tr>"
    )


def _picture(name: str, title: str, words: str, figure: go.Figure, table: str, wide: bool = False) -> str:
    drawn = to_html(
        figure,
        include_plotlyjs=False,
        full_html=False,
        div_id=f"{name}-picture",
        default_height=f"{figure.layout.height}px",
        config={"displaylogo": False, "responsive": True, "displayModeBar": False},
    )
    return _card(name, title, words, f"{drawn}<details><summary>numbers</summary>{table}</details>", wide)


def _card(name: str, title: str, words: str, inside: str, wide: bool = False) -> str:
    said = f"<p>{escape(words)}</p>" if words else ""
    return f'<section id="{name}"{" class=wide" if wide else ""}><h2>{title}</h2>{said}{inside}</section>'


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    numbers = [bool(rows) and all(isinstance(row[n], int) for row in rows) for n in range(len(header))]
    head = "".join(f"<th{_number(numbers[n])}>{name}</th>" for n, name in enumerate(header))
    body = "".join(
        "<tr>" + "".join(f"<td{_number(numbers[n])}>{_cell(cell)}</td>" for n, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _number(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _cell(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else escape(str(cell))
