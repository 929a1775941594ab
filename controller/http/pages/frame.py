"""The frame around every HTML page: navigation, user, position in the log, event density, assets. `site` renders it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from litestar import Response, get
from litestar.params import FromPath

from controller.http.errors import refused
from controller.http.query_threads import cacheable
from controller.machine.errors import ErrorCode
from controller.release import RELEASE
from projections.text.points_in_time import iso
from projections.views.events import TimelineView
from projections.views.view import AsOfView

DENSITY_WIDTH, DENSITY_HEIGHT = 1000, 28
"""Width and height of the SVG view box of `Density`."""
AGO = {"5 min": 300_000, "1 h": 3_600_000, "1 day": 86_400_000, "1 week": 604_800_000}
"""Links to the state this many milliseconds before the newest event."""


class Density(msgspec.Struct, frozen=True):
    """The number of events over time as an SVG path; the height of a column is the square root of its event count."""

    path: str
    first_ms: int
    last_ms: int

    @property
    def ago(self) -> dict[str, str]:
        """The labels and times of `AGO` that the log covers."""
        return {name: iso(self.last_ms - ago) for name, ago in AGO.items() if self.last_ms - ago >= self.first_ms}


def density_of(timeline: TimelineView) -> Density | None:
    """The density of a timeline; None without events."""
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
    """One page's frame. `at` is the `at` parameter (None: now) and `as_of` the position that it resolved to. `follow`
    is the event stream that refreshes the page, empty if it is static."""

    def __init__(
        self,
        *,
        path: str,
        query: Mapping[str, str],
        at: str | None,
        principal: str,
        token: str,
        density: Density | None,
        by_session: bool = False,
        has_partitions: bool = False,
        has_quorum: bool = False,
        as_of: AsOfView | None = None,
        follow: str = "",
        command: tuple[str, ...] = (),
    ) -> None:
        self.section = path.removeprefix("/v1").strip("/").partition("/")[0]
        self.query = _Query(query)
        self.at = at
        self._at_elsewhere = at if as_of is None or as_of.partition is None else as_of.at
        """`at` in links to other pages: a time, because there an offset of one partition has no meaning."""
        self._has_partitions = has_partitions
        self.has_quorum = has_quorum
        self.principal = principal
        self.token = token
        self.by_session = by_session
        self.density = density
        self.follow = "" if at else follow
        until = ("--until" if command[:1] == ("events",) else "--at", at) if at else ()
        self.command = shlex.join(("topicwright", *command, *until)) if command else ""
        """The `topicwright` command line that prints the data of this page."""
        self.release = RELEASE
        self.assets = ADDRESSES
        newest = None if density is None else density.last_ms
        self.shown_ms = newest if as_of is None or at is None else as_of.at_ms

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
        return self.here(at=at if self._has_partitions else offset, cursor=None)

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


@get(ASSETS + "{name:str}", sync_to_thread=False)
def asset(name: FromPath[str]) -> Response[bytes]:
    if name not in _CONTENTS:
        message = f"there is no asset {name[:60]!r}; if the service was upgraded, reload the page"
        raise refused(404, ErrorCode.RESOURCE_NOT_FOUND, message)
    content, kind = _CONTENTS[name]
    answer = cacheable(content, kind)
    answer.headers["cache-control"] = _FOREVER
    return answer
