"""Draws the figures of a report with Plotly.

The colours are those of Okabe and Ito, which colour-blind people can tell apart. Below each figure the page has the
same numbers in a table, so nothing is shown by colour or hovering alone. Labels come from the log and from policies,
and Plotly interprets some HTML in texts, so every label is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

import plotly.graph_objects as go

from projections.replay.report.data import OUTCOMES, BrokerLoad, Refusals, Report, WaitBin

BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
SKY, PURPLE, GREY, INK = "#56b4e9", "#cc79a7", "#9aa3ad", "#1f2933"
OUTCOME_COLOURS = {
    "created": GREEN,
    "timed-out": ORANGE,
    "refused": VERMILION,
    "failed": PURPLE,
    "changed": BLUE,
    "change-refused": SKY,
}
REFUSALS_SHOWN = 15
LANES_HIGH = 60
"""With more brokers than this, lanes become narrower."""
RACKS_SHOWN = 12
"""With more brokers than this, labels leave out the racks."""
LABEL_CHARS_MAX, RACK_CHARS_MAX = 46, 12
HEIGHT, ROW_HEIGHT = 340, 44


def outcomes_figure(report: Report) -> go.Figure:
    """Requests over time, stacked by outcome."""
    figure = go.Figure()
    for outcome, words in OUTCOMES.items():
        found = [one for one in report.outcomes if one.outcome == outcome]
        if found:
            figure.add_bar(
                x=[_time(one.at_ms) for one in found],
                y=[one.count for one in found],
                width=report.bucket_ms,
                offset=0,
                name=outcome.replace("-", " "),
                marker={"color": OUTCOME_COLOURS[outcome], "line": {"width": 0}},
                hovertemplate=f"%{{y}} {words}<extra>%{{x}}</extra>",
            )
    figure.update_xaxes(type="date", range=[_time(report.first_ms), _time(report.last_ms + report.bucket_ms)])
    figure.update_yaxes(title=f"requests per {span(report.bucket_ms)}", **_counting(_highest(report)))
    return _dressed(figure, barmode="stack", showlegend=True)


def waits_figure(bins: Sequence[WaitBin]) -> go.Figure:
    """The histogram of waits."""
    figure = go.Figure()
    figure.add_bar(
        x=[bin_text(one) for one in bins],
        y=[one.count for one in bins],
        marker={"color": BLUE, "line": {"width": 0}},
        hovertemplate="%{y} topics<extra>%{x}</extra>",
    )
    figure.update_xaxes(type="category", title="from creation until complete", tickangle=-45)
    figure.update_yaxes(title="topics", **_counting(max(one.count for one in bins)))
    return _dressed(figure, bargap=0.06)


def refusals_figure(refusals: Sequence[Refusals]) -> go.Figure:
    """Refusals by rule, the most frequent on top."""
    shown = list(refusals[:REFUSALS_SHOWN])
    labels = [f"{label(one.rule)}<br><span style='color:#66707a'>{label(one.error)}</span>" for one in shown]
    figure = go.Figure()
    figure.add_bar(
        x=[one.count for one in shown],
        y=list(range(len(shown))),
        orientation="h",
        marker={"color": VERMILION, "line": {"width": 0}},
        text=[f"{one.count:,}" for one in shown],
        textposition="outside",
        cliponaxis=False,
        customdata=[f"{escape(one.rule)}, {escape(one.error)}" for one in shown],
        hovertemplate="%{x}<extra>%{customdata}</extra>",
    )
    figure.update_xaxes(title="refused requests", **_counting(max(one.count for one in shown)))
    figure.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(shown))),
        ticktext=labels,
        ticklabelstandoff=8,
        range=[len(shown) - 0.4, -0.6],
    )
    return _dressed(figure, height=100 + len(shown) * ROW_HEIGHT)


def brokers_figure(brokers: Sequence[BrokerLoad]) -> go.Figure:
    """Replicas and leaders by broker."""
    names = [broker_text(one, racks=len(brokers) <= RACKS_SHOWN) for one in brokers]
    figure = go.Figure()
    for name, colour, counts in (
        ("replicas", SKY, [one.replicas for one in brokers]),
        ("leaders", BLUE, [one.leaders for one in brokers]),
    ):
        figure.add_bar(
            x=names,
            y=counts,
            name=name,
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate=f"%{{y}} {name}<extra>%{{x}}</extra>",
        )
    figure.update_xaxes(type="category", title="broker")
    figure.update_yaxes(title="partitions", **_counting(max(one.replicas for one in brokers)))
    return _dressed(figure, barmode="group", showlegend=True, bargap=0.25)


def lanes_figure(report: Report) -> go.Figure:
    """A lane for each broker: when it was live."""
    figure = go.Figure()
    for status, colour in (("live", GREEN), ("down", VERMILION)):
        found = [one for one in report.lanes if one.status == status]
        figure.add_bar(
            x=[one.until_ms - one.since_ms for one in found],
            y=[str(one.broker_id) for one in found],
            base=[_time(one.since_ms) for one in found],
            orientation="h",
            name=status,
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate=f"{status} from %{{base}}<extra>broker %{{y}}</extra>",
        )
    figure.update_xaxes(type="date", range=[_time(report.first_ms), _time(report.last_ms + report.bucket_ms)])
    figure.update_yaxes(type="category", title="broker", autorange="reversed")
    brokers = len({one.broker_id for one in report.lanes})
    return _dressed(figure, barmode="overlay", showlegend=True, height=100 + min(brokers, LANES_HIGH) * ROW_HEIGHT // 2)


def health_figure(report: Report) -> go.Figure:
    """Partitions over time: all, and those with a problem."""
    figure = go.Figure()
    for name, colour in (
        ("partitions", GREY),
        ("under_replicated", ORANGE),
        ("leaderless", VERMILION),
        ("placeholders", PURPLE),
    ):
        figure.add_scatter(
            x=[_time(one.at_ms) for one in report.health],
            y=[getattr(one, name) for one in report.health],
            name=name.replace("_", "-"),
            mode="lines",
            line={"color": colour, "shape": "hv", "dash": "dot" if name == "partitions" else "solid"},
        )
    figure.update_xaxes(type="date", range=[_time(report.first_ms), _time(report.last_ms + report.bucket_ms)])
    figure.update_yaxes(title="partitions", **_counting(max((one.partitions for one in report.health), default=0)))
    return _dressed(figure, showlegend=True)


def bin_text(one: WaitBin) -> str:
    """The bounds of a bar: `5 to 10 ms`."""
    if one.high_ms is None:
        return f"{span(one.low_ms)} and more"
    low, high = span(one.low_ms), span(one.high_ms)
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def broker_text(one: BrokerLoad, racks: bool) -> str:
    """A broker in up to three lines: its rack, if wanted, and its status if it is not live."""
    facts = [label(one.rack, RACK_CHARS_MAX)] if one.rack and racks else []
    facts += [] if one.status == "live" else [f"<b>{escape(one.status)}</b>"]
    return "<br>".join((str(one.broker_id), *facts))


def span(milliseconds: int) -> str:
    """A duration in the largest unit of which it is a whole number."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"


def label(text: str, chars_max: int = LABEL_CHARS_MAX) -> str:
    """A text from the log as a label: shortened and escaped."""
    return escape(text if len(text) <= chars_max else text[: chars_max - 1] + "…")


def _highest(report: Report) -> int:
    """The height of the highest bar."""
    heights = Counter[int]()
    for one in report.outcomes:
        heights[one.at_ms] += one.count
    return max(heights.values(), default=0)


def _counting(highest: int) -> dict[str, Any]:
    """An axis of counts: from 0, with whole numbers."""
    return {"rangemode": "tozero", **({"dtick": 1} if highest < 6 else {})}


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _dressed(figure: go.Figure, **layout: Any) -> go.Figure:
    figure.update_layout(
        **{
            "template": "plotly_white",
            "height": HEIGHT,
            "margin": {"l": 12, "r": 24, "t": 12, "b": 12},
            "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
            "hovermode": "closest",
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "showlegend": False,
            **layout,
        }
    )
    figure.update_xaxes(automargin=True, gridcolor="#e4e7eb", zeroline=False, linecolor="#9aa3ad")
    figure.update_yaxes(automargin=True, gridcolor="#e4e7eb", zeroline=False)
    return figure
