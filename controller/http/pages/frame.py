"""What stands around every page: where it is, who looks at it, which moment it shows, and what the slider goes over."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from urllib.parse import quote, urlencode

import msgspec

from controller.http.pages.assets import ADDRESSES
from controller.release import RELEASE
from projections.text.moments import iso
from projections.views.json_types import AsOfView
from projections.views.overview_types import TimelineView

DENSITY_WIDTH, DENSITY_HEIGHT = 1000, 28
"""Of the picture of when things happened, in units of its own."""
AGO = {"5 min": 300_000, "1 h": 3_600_000, "1 day": 86_400_000, "1 week": 604_800_000}
"""How long before the newest event the moments are that one can go to at once."""


class Density(msgspec.Struct, frozen=True):
    """How many events happened when, as a path of SVG: columns as high as the root of their number."""

    path: str
    first_ms: int
    last_ms: int

    @property
    def ago(self) -> dict[str, str]:
        """Moments of the log so long before its newest event."""
        return {name: iso(self.last_ms - ago) for name, ago in AGO.items() if self.last_ms - ago >= self.first_ms}


def density_of(timeline: TimelineView) -> Density | None:
    """The picture of a timeline; None where nothing has happened yet."""
    spans = timeline.spans
    if not spans:
        return None
    highest, width = max(one.events for one in spans) ** 0.5 or 1.0, DENSITY_WIDTH / len(spans)
    columns = [
        f"M{number * width:.1f} {DENSITY_HEIGHT}v-{max(1.5, DENSITY_HEIGHT * one.events**0.5 / highest):.1f}"
        f"h{width * 0.8:.1f}V{DENSITY_HEIGHT}z"
        for number, one in enumerate(spans)
        if one.events
    ]
    return Density("".join(columns), spans[0].start_at_ms, spans[-1].end_at_ms - 1)


class Frame:
    """Of one page. `at` is the moment as its address has it, None for now, and `as_of` what it came to; `follow` is
    where the page is sent what happens, empty where it does not change by itself."""

    def __init__(
        self,
        *,
        path: str,
        query: Mapping[str, str],
        at: str | None,
        principal: str,
        token: str,
        density: Density | None,
        has_partitions: bool = False,
        has_quorum: bool = False,
        as_of: AsOfView | None = None,
        follow: str = "",
        command: tuple[str, ...] = (),
    ) -> None:
        self.section = path.removeprefix("/v1").strip("/").partition("/")[0].replace("summary", "")
        self.query = _Query(query)
        self.at = at
        self._at_elsewhere = at if as_of is None or as_of.partition is None else as_of.at
        """Offsets of one partition mean nothing on pages of others."""
        self._has_partitions = has_partitions
        self.has_quorum = has_quorum
        self.principal = principal
        self.token = token
        self.density = density
        self.follow = "" if at else follow
        until = ("--until" if command[:1] == ("events",) else "--at", at) if at else ()
        self.command = shlex.join(("topicwright", *command, *until)) if command else ""
        """The same on the command line."""
        self.release = RELEASE
        self.assets = ADDRESSES
        newest = None if density is None else density.last_ms
        self.shown_ms = newest if as_of is None or at is None else as_of.at_ms

    def link(self, *parts: object, **query: object) -> str:
        """The address of a page, at the same moment; a part may be anything, such as a name that somebody chose."""
        path = "/" + "/".join(quote(str(part), safe="") for part in parts)
        return path + _query({"at": self._at_elsewhere, **query})

    def here(self, **changes: object) -> str:
        """The address of this page with other parameters; None takes one away."""
        return _query({**self.query, **changes}) or "?"

    def then(self, offset: int, at: str) -> str:
        """The address of this page right after an event; of a log in partitions at the time of the event."""
        return self.here(at=at if self._has_partitions else offset, cursor=None)

    @property
    def diff(self) -> str:
        """The address of what is different since the moment of this page."""
        return "/diff" + _query({"from": self._at_elsewhere})

    def kept(self, *without: str) -> dict[str, str]:
        """The parameters of this page that a form keeps."""
        return {name: value for name, value in self.query.items() if name not in without}


def flags(**given: str | None) -> tuple[str, ...]:
    """Flags of the command line, of what is given."""
    return tuple(word for name, value in given.items() if value for word in (f"--{name}", value))


class _Query(dict[str, str]):
    """The parameters of a page; one that it has not is empty."""

    def __missing__(self, name: str) -> str:
        return ""


def _query(parameters: Mapping[str, object]) -> str:
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return "?" + urlencode(given) if given else ""
