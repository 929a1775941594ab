"""The frame around every HTML page: navigation, user, point in time, activity, assets. `site` renders it."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from litestar import Response, get
from litestar.params import FromPath
from markupsafe import Markup, escape

from controller.http.errors import refused
from controller.http.query_threads import cacheable
from controller.machine.errors import ErrorCode
from controller.release import RELEASE
from projections.text.points_in_time import iso
from projections.views.events import SpanView
from projections.views.view import AsOfView

CHART_WIDTH, CHART_HEIGHT = 1000, 40
"""Width and height of the SVG view box of a chart."""
PHASES = {
    "CreateRequested": "requested",
    "TopicCreated": "decided: created",
    "CreateRejected": "decided: rejected",
    "MetadataPropagated": "propagated",
    "PartitionChanged": "partition changed",
    "TopicReady": "ready",
    "CreateAnswered": "answered",
}
"""The steps of a request as its page names them."""
AGO = {"15 min": 900_000, "1 h": 3_600_000, "1 day": 86_400_000, "1 week": 604_800_000}
"""Links to the state this many milliseconds before the newest event."""


ASSETS: Final = "/assets/"
_KINDS: Final = {"page.css": "text/css", "page.js": "text/javascript", "page.svg": "image/svg+xml"}
_FOREVER: Final = "public, max-age=31536000, immutable"


def _loaded() -> tuple[dict[str, str], dict[str, tuple[bytes, str]]]:
    addresses, contents = {}, {}
    for file, kind in _KINDS.items():
        content = (Path(__file__).with_name("assets") / file).read_bytes()
        stem, _, extension = file.partition(".")
        name = f"{stem}-{blake2b(content, digest_size=6).hexdigest()}.{extension}"
        addresses[file] = ASSETS + name
        contents[name] = content, kind
    return addresses, contents


ADDRESSES, _CONTENTS = _loaded()
"""The address of each asset contains a hash of its content, so that browsers may cache it forever."""


Series = tuple[str, str, Sequence[int | None]]
"""Values in a chart: what they count, their mark (a class of page.css), and one value for each span."""


def chart(spans: Sequence[SpanView], address: Callable[[str], str], *series: Series) -> Markup:
    """Stacked columns as SVG. A column shows its values on hover and links to `address` of its end. Heights are the
    square roots of values, so that small ones are visible."""
    rows = [sum(values) for values in zip(*([one or 0 for one in values] for _, _, values in series), strict=True)]
    scale, width = CHART_HEIGHT / (max(rows, default=0) ** 0.5 or 1.0), CHART_WIDTH / max(1, len(spans))
    columns = []
    for number, (span, total) in enumerate(zip(spans, rows, strict=True)):
        left, top, parts = f"{number * width:.1f}", 0.0, []
        for _, mark, values in series:
            value = values[number] or 0
            height = scale * value / total**0.5 if value else 0.0
            top += height
            rest = f'y="{CHART_HEIGHT - top:.1f}" width="{width * 0.85:.1f}" height="{max(height, 1.0):.1f}"'
            parts.append(f'<rect class="{mark}" x="{left}" {rest}/>' if value else "")
        counts = ", ".join(f"{values[number]} {name}" for name, _, values in series if values[number]) or "nothing"
        title = f"{span.start_at[:19]}Z to {span.end_at[:19]}Z: {counts}"
        hit = f'<rect class="hit" x="{left}" width="{width:.1f}" height="{CHART_HEIGHT}"/>'
        href = escape(address(span.end_at))
        columns.append(f'<a href="{href}" tabindex="-1"><title>{title}</title>{hit}{"".join(parts)}</a>')
    box = f'viewBox="0 0 {CHART_WIDTH} {CHART_HEIGHT}" preserveAspectRatio="none" aria-hidden="true"'
    return Markup(f'<svg class="chart" {box}>{"".join(columns)}</svg>')


@dataclass(kw_only=True)
class Frame:
    """One page's frame. `at` is the `at` parameter (None: now) and `as_of` the position that it resolved to."""

    path: str
    query: Mapping[str, str]
    at: str | None
    principal: str
    sees_all: bool = True
    spans: Sequence[SpanView] = ()
    """The activity of the whole log; empty if the user may not see it."""
    by_session: bool = False
    has_partitions: bool = False
    has_quorum: bool = False
    as_of: AsOfView | None = None
    follow: str = ""
    """The event stream that refreshes the page, empty if it is static."""
    arguments: tuple[str, ...] = ()
    """Those of `topicwright` that print the data of this page."""
    release = RELEASE
    assets = ADDRESSES

    def __post_init__(self) -> None:
        self.section = self.path.removeprefix("/v1").strip("/").partition("/")[0]
        self.query = _Query(self.query)
        self._at_elsewhere = self.at if self.as_of is None or self.as_of.partition is None else self.as_of.at
        """`at` in links to other pages: a time, because there an offset of one partition has no meaning."""
        self.follow = "" if self.at else self.follow
        until = ("--until" if self.arguments[:1] == ("events",) else "--at", self.at) if self.at else ()
        self.command = shlex.join(("topicwright", *self.arguments, *until)) if self.arguments else ""

    @property
    def ago(self) -> dict[str, str]:
        """The labels and times of `AGO` that the log covers."""
        if not self.spans:
            return {}
        first_ms, last_ms = self.spans[0].start_at_ms, self.spans[-1].end_at_ms - 1
        return {name: iso(last_ms - ago) for name, ago in AGO.items() if last_ms - ago >= first_ms}

    @property
    def strip(self) -> Markup:
        """The activity of the whole log as a chart, whose columns lead to this page at their time."""
        others = [one.events - (one.changes or 0) - (one.refused or 0) for one in self.spans]
        return self.chart(
            self.spans,
            ("other events", "", [max(0, one) for one in others]),
            ("changes", "good", [one.changes for one in self.spans]),
            ("rejected", "bad", [one.refused for one in self.spans]),
        )

    def chart(self, spans: Sequence[SpanView], *series: Series) -> Markup:
        """A chart whose columns lead to this page at their time."""
        return chart(spans, lambda at: self.here(at=at, cursor=None), *series)

    def lane(self, spans: Sequence[SpanView], broker_id: int) -> Markup:
        fenced = [None if one.fenced is None else int(broker_id in one.fenced) for one in spans]
        live = [None if one is None else 1 - one for one in fenced]
        return self.chart(spans, ("live", "calm", live), ("fenced", "bad", fenced))

    def link(self, *parts: object, **query: object) -> str:
        """The address of a page at the same `at`; parts are quoted."""
        path = "/" + "/".join(quote(str(part), safe="") for part in parts)
        return path + _query({"at": self._at_elsewhere, **query})

    def to(self, path: str) -> str:
        """The address of a page, given by its path and query, at the same `at`."""
        at = _query({"at": self._at_elsewhere}).removeprefix("?")
        return path + ("&" if "?" in path else "?") + at if at else path

    def here(self, **changes: object) -> str:
        """The address of this page with changed parameters; None removes one."""
        return _query({**self.query, **changes}) or "?"

    def then(self, offset: int, at: str) -> str:
        """The address of this page as of an event: by offset, or by time if the log has partitions."""
        return self.here(at=at if self.has_partitions else offset, cursor=None)

    @property
    def diff(self) -> str:
        """The address of the diff from this page's `at` until now."""
        return "/diff" + _query({"from": self._at_elsewhere})

    def hidden_fields(self, *without: str) -> dict[str, str]:
        """The parameters of this page that a form passes on."""
        return {name: value for name, value in self.query.items() if name not in without}


def flags(**given: str | None) -> tuple[str, ...]:
    """Command line flags (`--name value`) for the values that are not empty."""
    return tuple(word for name, value in given.items() if value for word in (f"--{name}", value))


class _Query(dict[str, str]):
    """Query parameters; a missing one is empty."""

    def __missing__(self, name: str) -> str:
        return ""


def _query(parameters: Mapping[str, object]) -> str:
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return "?" + urlencode(given) if given else ""


@get(ASSETS + "{name:str}", sync_to_thread=False)
def asset(name: FromPath[str]) -> Response[bytes]:
    if name not in _CONTENTS:
        message = f"there is no asset {name[:60]!r}; if the service was upgraded, reload the page"
        raise refused(404, ErrorCode.RESOURCE_NOT_FOUND, message)
    content, kind = _CONTENTS[name]
    answer = cacheable(content, kind)
    answer.headers["cache-control"] = _FOREVER
    return answer
