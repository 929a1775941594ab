"""Draws the figures of a report with Plotly, from the numbers that `report` computes: a `Report`.

The colours are those of Okabe and Ito, which colour-blind people can tell apart. Below each figure the page has the
same numbers in a table, so no information depends on colour or hovering. Labels come from the log and from policies,
and Plotly interprets some HTML in texts, so every label is escaped.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from types import SimpleNamespace
from typing import Any

import plotly.graph_objects as go

from events.errors import shortened
from projections.views.lines import span

Row = SimpleNamespace
"""A row of a query of `report`, with its columns as attributes."""
Rows = Sequence[Row]
Report = SimpleNamespace
"""All numbers of the page: the time of the first and the last event, `ends` by log partition, the width of a bar.

Rows: `outcomes` (requests by outcome in the bar that begins at `at_ms`), `wait_bins` (topics that became complete so
long after their creation), `refusals` by rule, `brokers` (the load at the end, also of unregistered brokers with
replicas), `lanes` (ranges of time in which the status of a broker does not change), `health` (the highest numbers of
partitions in a bar) and `checks`. One row each: `waits` (`never`: not complete before they were deleted or the log
ended) and `held`, the totals at the end. `principals` and `changes` are tuples, in the form that the page renders.
"""

BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
SKY, PURPLE, GREY, INK = "#56b4e9", "#cc79a7", "#9aa3ad", "#1f2933"
OUTCOMES = {
    "created": ("created and complete in time", GREEN),
    "timed-out": ("created, answered before it was complete", ORANGE),
    "rejected": ("rejected", VERMILION),
    "failed": ("created, gone before it was complete", PURPLE),
    "changed": ("partitions added, configs changed or deleted", BLUE),
    "change-rejected": ("change rejected", SKY),
}
"""The outcomes of requests in the order of the legend, with their meaning and colour."""
BUCKETS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1000, 2000, 5000, 10_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 1_800_000),
    *(3_600_000, 7_200_000, 21_600_000, 43_200_000),
    *(86_400_000, 604_800_000, 2_592_000_000),
)
"""The possible widths of a bar on the time axis."""
BUCKETS_MAX = 96  # bars of the time axis that a page has room for

WAIT_EDGES_MS = (
    *(0, 1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1000, 2000, 5000, 10_000, 20_000, 60_000, 300_000, 3_600_000),
)
"""The lower edges of the bars in the histogram of waits; the last bar is unbounded."""
REFUSALS_SHOWN = 15
LANES_HIGH = 60
"""With more brokers than this, lanes become narrower."""
LABEL_CHARS_MAX = 46
HEIGHT, ROW_HEIGHT = 340, 44


def requests(report: Report, *outcomes: str) -> int:
    """The number of requests with one of these outcomes."""
    return sum(one.count for one in report.outcomes if one.outcome in outcomes)


def bucket_ms(span_ms: int) -> int:
    """The narrowest width of a bar with which a span has at most BUCKETS_MAX bars."""
    return next((width for width in BUCKETS_MS if span_ms // width < BUCKETS_MAX), BUCKETS_MS[-1])


def wait_bins(counts: Mapping[int, int]) -> list[Row]:
    """The bars of the histogram from the first to the last that is not empty; `counts` has the count by index of
    WAIT_EDGES_MS."""
    ends = (*WAIT_EDGES_MS[1:], None)
    return [
        Row(low_ms=WAIT_EDGES_MS[place], high_ms=ends[place], count=counts.get(place, 0))
        for place in range(min(counts, default=0), max(counts, default=-1) + 1)
    ]


def outcomes_figure(report: Report) -> go.Figure:
    """Requests over time, stacked by outcome."""
    bars, heights = [], Counter[int]()
    for outcome, (words, colour) in OUTCOMES.items():
        found = [one for one in report.outcomes if one.outcome == outcome]
        for one in found:
            heights[one.at_ms] += one.count
        if found:
            bars.append(
                _bars(
                    colour,
                    x=[_time(one.at_ms) for one in found],
                    y=[one.count for one in found],
                    width=report.bucket_ms,
                    offset=0,
                    name=outcome.replace("-", " "),
                    hovertemplate=f"%{{y}} {words}<extra>%{{x}}</extra>",
                )
            )
    counts = _counts(f"requests per {span(report.bucket_ms)}", max(heights.values(), default=0))
    return _figure(bars, _times(report), counts, barmode="stack", showlegend=True)


def waits_figure(bins: Rows) -> go.Figure:
    """The histogram of the times from the creation of a topic until it was complete."""
    counts = [one.count for one in bins]
    bars = _bars(BLUE, x=[bin_text(one) for one in bins], y=counts, hovertemplate="%{y} topics<extra>%{x}</extra>")
    axis = {"type": "category", "title": "from creation until complete", "tickangle": -45}
    return _figure([bars], axis, _counts("topics", max(counts)), bargap=0.06)


def refusals_figure(refusals: Rows) -> go.Figure:
    """Refusals by rule, the most frequent on top."""
    shown = list(refusals[:REFUSALS_SHOWN])
    counts, places = [one.count for one in shown], list(range(len(shown)))
    bars = _bars(
        VERMILION,
        x=counts,
        y=places,
        orientation="h",
        text=[f"{count:,}" for count in counts],
        textposition="outside",
        cliponaxis=False,
        customdata=[f"{escape(one.rule)}, {escape(one.error)}" for one in shown],
        hovertemplate="%{x}<extra>%{customdata}</extra>",
    )
    labels = [f"{label(one.rule)}<br><span style='color:#66707a'>{label(one.error)}</span>" for one in shown]
    rules = {"tickmode": "array", "tickvals": places, "ticktext": labels, "ticklabelstandoff": 8}
    rules["range"] = [len(shown) - 0.4, -0.6]
    return _figure([bars], _counts("rejected requests", max(counts)), rules, height=100 + len(shown) * ROW_HEIGHT)


def brokers_figure(brokers: Rows) -> go.Figure:
    """Replicas and leaders by broker."""
    names = [f"{one.broker_id}" if one.status == "live" else f"{one.broker_id}<br>{one.status}" for one in brokers]
    replicas = [one.replicas for one in brokers]
    bars = [
        _bars(colour, x=names, y=counts, name=name, hovertemplate=f"%{{y}} {name}<extra>%{{x}}</extra>")
        for name, colour, counts in (("replicas", SKY, replicas), ("leaders", BLUE, [one.leaders for one in brokers]))
    ]
    axis = {"type": "category", "title": "broker"}
    return _figure(bars, axis, _counts("partitions", max(replicas)), barmode="group", showlegend=True, bargap=0.25)


def lanes_figure(report: Report) -> go.Figure:
    """A lane for each broker: when it was live."""
    bars = []
    for status, colour in (("live", GREEN), ("down", VERMILION)):
        found = [one for one in report.lanes if one.status == status]
        bars.append(
            _bars(
                colour,
                x=[one.until_ms - one.since_ms for one in found],
                y=[str(one.broker_id) for one in found],
                base=[_time(one.since_ms) for one in found],
                orientation="h",
                name=status,
                hovertemplate=f"{status} from %{{base}}<extra>broker %{{y}}</extra>",
            )
        )
    axis = {"type": "category", "title": "broker", "autorange": "reversed"}
    brokers = len({one.broker_id for one in report.lanes})
    height = 100 + min(brokers, LANES_HIGH) * ROW_HEIGHT // 2
    return _figure(bars, _times(report), axis, barmode="overlay", showlegend=True, height=height)


def health_figure(report: Report) -> go.Figure:
    """Partitions over time: all, and those with a problem."""
    colours = {"partitions": GREY, "under_replicated": ORANGE, "leaderless": VERMILION, "placeholders": PURPLE}
    lines = [
        go.Scatter(
            x=[_time(one.at_ms) for one in report.health],
            y=[getattr(one, name) for one in report.health],
            name=name.replace("_", "-"),
            mode="lines",
            line={"color": colour, "shape": "hv", "dash": "dot" if name == "partitions" else "solid"},
        )
        for name, colour in colours.items()
    ]
    counts = _counts("partitions", max((one.partitions for one in report.health), default=0))
    return _figure(lines, _times(report), counts, showlegend=True)


def bin_text(one: Row) -> str:
    """The bounds of a bar: `5 ms to 10 ms`."""
    if one.high_ms is None:
        return f"{span(one.low_ms)} and more"
    return f"{span(one.low_ms)} to {span(one.high_ms)}"


def label(text: str) -> str:
    """A text from the log as a label: shortened and escaped."""
    return escape(shortened(text, LABEL_CHARS_MAX))


def _bars(colour: str, **bars: Any) -> go.Bar:
    return go.Bar(marker={"color": colour, "line": {"width": 0}}, **bars)


def _counts(title: str, highest: int) -> dict[str, Any]:
    """An axis of counts: from 0, with whole numbers."""
    return {"title": title, "rangemode": "tozero", **({"dtick": 1} if highest < 6 else {})}


def _times(report: Report) -> dict[str, Any]:
    return {"type": "date", "range": [_time(report.first_ms), _time(report.last_ms + report.bucket_ms)]}


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _figure(traces: Sequence[Any], x_axis: dict[str, Any], y_axis: dict[str, Any], **layout: Any) -> go.Figure:
    axis = {"automargin": True, "gridcolor": "#e4e7eb", "zeroline": False}
    return go.Figure(
        traces,
        {
            "template": "plotly_white",
            "height": HEIGHT,
            "margin": {"l": 12, "r": 24, "t": 12, "b": 12},
            "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
            "hovermode": "closest",
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "showlegend": False,
            "xaxis": {**axis, "linecolor": "#9aa3ad", **x_axis},
            "yaxis": {**axis, **y_axis},
            **layout,
        },
    )
