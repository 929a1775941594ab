"""Shared parts of the HTML pages: JSON handlers called in-process, templates, security headers, and the login page.

A page calls the handler of the JSON request, so both return the same data under the same permissions. Templates are
rendered in query threads, where JSON is encoded too. `pages/handlers` uses this module.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast, get_type_hints
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import Response, get
from litestar.di import Dependency, NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send
from markupsafe import Markup, escape

from controller.access.authorizer import Operation
from controller.http.errors import NO_STORE, HttpRequest, answer_error, respond
from controller.http.pages.frame import Frame
from controller.http.permissions import Reader
from controller.http.query_threads import QueryThreads, cacheable
from controller.http.requests import SESSION_KEY, caller_of
from projections.queries.activity import timeline_page
from projections.queries.events import Window
from projections.queries.query import NoTopic
from projections.text.names import escaped
from projections.text.points_in_time import InvalidPointInTime
from projections.views import lines
from projections.views.events import SpanView
from projections.views.view import AsOfView

FOLLOW: Final = "/v1/events/follow"
HTML: Final = "text/html"
SPANS: Final = 100
SPANS_MAX_AGE_S: Final = 5.0
_PROGRAMS: Final = ("/v1", "/openapi", "/health", "/metrics")
SECURITY: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
"""Nothing from another host, no inline scripts or styles, and no framing by other sites."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def is_page(path: str) -> bool:
    """True for paths that answer HTML: all but the API, its document, health and metrics."""
    return not any(path == one or path.startswith((f"{one}/", f"{one}.")) for one in _PROGRAMS)


class _Undecoded:
    """Runs queries as `QueryThreads` does, but returns the view instead of its JSON."""

    def __init__(self, threads: QueryThreads) -> None:
        self.run, self.stopping = threads.run, threads.stopping

    async def answer(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Response[_T]:
        return Response(await self.run(work, *args, **kwargs))


class Site:
    """Calls JSON handlers and renders templates for the pages of one service."""

    def __init__(self, dependencies: Mapping[str, Any]) -> None:
        reader: Reader = dependencies["reader"]
        self.api = reader.api
        self._queries, self._threads = reader.queries, reader.threads
        self._templates = templates()
        undecoded: Any = _Undecoded(self._threads)
        self._dependencies, self._reader = dependencies, Reader(self.api, self._queries, undecoded)
        self._spans: tuple[float, Sequence[SpanView]] = (-SPANS_MAX_AGE_S, ())

    async def call(self, handler: HTTPRouteHandler, request: HttpRequest, **given: object) -> Any:
        """Call a JSON handler for the sender of the request, and return its view. Raises what the handler raises."""
        parameters = signature(handler.fn).parameters
        parts = {**self._dependencies, "reader": self._reader.of(request), "request": request}
        dependencies = {name: part for name, part in parts.items() if name in parameters}
        answer = await handler.fn(**dependencies, **given)
        return answer.content if isinstance(answer, Response) else answer

    async def page(
        self,
        request: HttpRequest,
        template: str,
        *,
        at: str | None = None,
        as_of: AsOfView | None = None,
        status: int = 200,
        follow: str = "",
        command: tuple[str, ...] = (),
        **context: object,
    ) -> Response[bytes]:
        """Render a template. `as_of` is the rendered position in the log. `follow` is the event stream that refreshes
        the page. `command` has the arguments of `topicwright` that print the same data."""
        await self._refresh_spans(request)
        frame = self._frame(request, at=at, as_of=as_of, follow=follow, arguments=command)
        answer = await self._threads.run(self._render, template, status, {"frame": frame, **context})
        answer.headers.update(SECURITY)
        return answer

    def error_page(self, request: HttpRequest, error: Exception) -> Response[bytes]:
        """The error as an HTML page with links to related pages. Rendered on the event loop."""
        plain = answer_error(request, error)
        of_topic = error if isinstance(error, NoTopic) else None
        context = {
            "frame": self._frame(
                request, at=None if isinstance(error, InvalidPointInTime) else request.query_params.get("at")
            ),
            "problem": plain.content,
            "gone": of_topic and of_topic.deleted_at,
            "born": of_topic and of_topic.created_at,
            "name": of_topic and request.path_params.get("name"),
        }
        answer = self._render("error.html", plain.content.status, context)
        allow = {name: value for name, value in plain.headers.items() if name == "allow"}
        answer.headers.update({**SECURITY, **NO_STORE, **allow})
        return answer

    @property
    def partitions(self) -> tuple[int | None, ...]:
        """The partitions of the log; `(None,)` for a log without partitions."""
        return tuple(part.partition for part in self._queries.parts)

    def allows(self, request: HttpRequest, operation: Operation, topic: str | None = None) -> bool:
        """True if the sender may do the operation on the topic, or without a topic on the cluster."""
        return self.api.allows(caller_of(request), operation, topic)

    def _frame(self, request: HttpRequest, **given: Any) -> Frame:
        principal, sees_all = caller_of(request).principal, self.allows(request, "Describe")
        return Frame(
            path=request.url.path,
            query={name: request.query_params[name] for name in request.query_params},
            principal=principal,
            by_session=bool(request.scope.get(SESSION_KEY)),
            has_partitions=self.partitions != (None,),
            has_quorum=self.api.quorum is not None,
            sees_all=sees_all,
            spans=self._spans[1] if sees_all else (),
            **given,
        )

    def _render(self, template: str, status: int, context: dict[str, object]) -> Response[bytes]:
        return cacheable(self._templates.get_template(template).render(context).encode(), HTML, status)

    async def _refresh_spans(self, request: HttpRequest) -> None:
        now = asyncio.get_running_loop().time()
        if self.allows(request, "Describe") and now - self._spans[0] >= SPANS_MAX_AGE_S:
            timeline = await self._threads.run(timeline_page, self._queries, Window(limit=SPANS))
            self._spans = now, timeline.spans


def page(
    path: str, source: HTTPRouteHandler, template: str, refusals: tuple[type[Exception], ...] = (), **defaults: object
) -> Callable[[Callable[..., Awaitable[dict[str, Any]]]], HTTPRouteHandler]:
    """A GET handler that renders the answer of the JSON handler `source` (`found`), with the same parameters.

    The decorated function names its arguments: `site`, `request`, `found`, a parameter, or all parameters (`given`). It
    returns other arguments of `Site.page`: the context of the template, and of its frame. `defaults` replace those of
    `source`. Without a parameter that `source` needs there is only a form: `found` is None. It is also None for an
    exception in `refusals`, which the template gets as `error`. The page follows all events, unless it is a later one
    of a list, or the user may not see them.
    """
    hints = get_type_hints(source.fn, include_extras=True)
    parameters = [
        one.replace(annotation=hints[name], default=defaults.get(name, one.default))
        for name, one in signature(source.fn).parameters.items()
        if not any(isinstance(part, Dependency) for part in getattr(hints[name], "__metadata__", ()))
    ]

    needed = [name for name in defaults if signature(source.fn).parameters[name].default is Parameter.empty]

    def decorate(context: Callable[..., Awaitable[dict[str, Any]]]) -> HTTPRouteHandler:
        named = signature(context).parameters

        async def handle(request: HttpRequest, site: Site, **given: Any) -> Response[bytes]:
            shown: dict[str, Any] = {"at": given.get("at"), "found": None, "error": None}
            try:
                if all(given[name] for name in needed):
                    shown["found"] = await site.call(source, request, **given)
            except refusals as refusal:
                shown |= {"error": answer_error(request, refusal).content, "status": 400}
            is_live = given.get("cursor") is None and site.allows(request, "Describe")
            shown |= {"as_of": getattr(shown["found"], "as_of", None), "follow": FOLLOW if is_live else ""}
            parts = {"site": site, "request": request, "found": shown["found"], "given": given, **given}
            own = await context(**{name: part for name, part in parts.items() if name in named})
            return await site.page(request, template, **{**shown, **own})

        kinds = {"request": HttpRequest, "site": NamedDependency[Site]}
        own = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind) for name, kind in kinds.items()]
        by_keyword = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
        handle.__signature__ = signature(handle).replace(parameters=[*own, *by_keyword])  # type: ignore[attr-defined]
        handle.__annotations__ = {
            **kinds,
            **{one.name: one.annotation for one in parameters},
            "return": Response[bytes],
        }
        handle.__name__ = context.__name__
        return get(path)(handle)

    return decorate


def clean_queries(app: ASGIApp) -> ASGIApp:
    """Removes the empty parameters that forms send from the address of a page."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if is_page(scope["path"]):
            given = parse_qsl(scope["query_string"].decode("latin-1"), errors="replace")
            cast(dict[str, Any], scope)["query_string"] = urlencode(given).encode()
        await app(scope, receive, send)

    return served


def templates() -> Environment:
    """The templates. They escape all values, and print control characters and text-direction marks visibly."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_printed,
    )
    environment.filters["grouped"] = lambda number: f"{number:,}"
    environment.filters["labelled"] = labelled
    environment.filters["timed"] = _timed
    environment.globals.update(lines=lines)
    return environment


_CELLS = re.compile(r"<tr\b|<td\b(?! colspan)")


def labelled(rows: Markup, names: Sequence[str]) -> Markup:
    """Rows of a table whose cells carry the name of their column, for narrow screens, which show each row as a card."""
    column = iter(names)

    def cell(found: re.Match[str]) -> str:
        nonlocal column
        if found[0] == "<tr":
            column = iter(names)
            return found[0]
        return f'<td data-label="{next(column, "").lstrip("#")}"'

    return Markup(_CELLS.sub(cell, rows))


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z")


def _timed(text: str) -> Markup:
    """A text, whose times the page shows in the zone of the browser."""
    clock = r'<time class="clock" datetime="\g<0>">\g<0></time>'
    return Markup("<bdi>{}</bdi>").format(Markup(_TIME.sub(clock, str(escape(escaped(text))))))


def _printed(value: object) -> object:
    if isinstance(value, str) and not isinstance(value, Markup):
        return escaped(value)
    return "-" if value is None else value


_LOGIN: Final = templates().get_template("login.html")


async def answer_login(send: Send, message: str, challenges: Iterable[tuple[bytes, bytes]], login: str = "") -> None:
    """Answer 401 to a browser. `login` is the path of a login by an identity provider. A client without a login gets
    no asset, so the page has no stylesheet and no script."""
    body = _LOGIN.render(message=message, login=login).encode()
    headers = {"content-type": "text/html; charset=utf-8", **SECURITY, **NO_STORE}
    await respond(send, 401, body, *((name.encode(), value.encode()) for name, value in headers.items()), *challenges)
