"""What pages are made with: the answers of the JSON as they are, the templates, and what stands around a page.

A page requests what it shows of the very handlers that answer the JSON, so both show the same to the same people. It is
written in a thread, as the JSON is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.plugins.jinja import JinjaTemplateEngine
from markupsafe import Markup

from controller.access.authorizer import Operation
from controller.controller_api import ControllerApi
from controller.http.changes import Changes
from controller.http.errors import NOT_KEPT, HttpRequest
from controller.http.form.packing import packed
from controller.http.pages import drawn
from controller.http.pages.frame import Density, Frame, density_of
from controller.http.pages.security import SECURITY
from controller.http.pages.tokens import Tokens
from controller.http.permissions import Reader
from controller.http.query_threads import Reading
from controller.http.requests import caller_of
from projections.queries import overviews
from projections.queries.overviews import Window
from projections.queries.query import Questions
from projections.text.names import escaped
from projections.views import lines
from projections.views.json_types import AsOfView, ProblemView

FOLLOW: Final = "/v1/events/follow"
"""Where pages are sent what happens."""
HTML: Final = "text/html"
SPANS: Final = 100
DENSITY_KEPT_S: Final = 5.0
"""The picture of when things happened is drawn anew so often at most."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _AsItIs:
    """Answers queries as `Reading` does, but for that what is shown stays what it is."""

    def __init__(self, reading: Reading) -> None:
        self.run = reading.run

    async def answer(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Response[_T]:
        return Response(await self.run(work, *args, **kwargs))


class Site:
    """The pages of one service."""

    def __init__(
        self,
        api: ControllerApi,
        queries: Questions,
        reading: Reading,
        changes: Changes,
        engine: JinjaTemplateEngine,
        **more: object,
    ) -> None:
        """`more` is what else handlers of the JSON are given, by name."""
        self.api = api
        self.changes = changes
        self.tokens = Tokens()
        self._queries = queries
        self._reading = reading
        self._engine = engine
        as_it_is: Any = _AsItIs(reading)
        reader = Reader(api, queries, as_it_is)
        self._given = {
            **more, "gateway": api, "queries": queries, "reading": as_it_is, "reader": reader, "changes": changes,
        }  # fmt: skip
        self._density: tuple[float, Density | None] | None = None

    async def shown(self, handler: HTTPRouteHandler, request: HttpRequest, **given: object) -> Any:
        """What a handler of the JSON shows to who sends the request. Raises what that raises."""
        wanted = signature(handler.fn).parameters
        parts = {name: part for name, part in self._given.items() if name in wanted}
        answer = await handler.fn(**{"request": request} if "request" in wanted else {}, **parts, **given)
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
        **shown: object,
    ) -> Response[bytes]:
        """A page of what is shown. `as_of` is the moment that this comes to, `follow` where the page is sent what
        happens, `command` the words after `topicwright` that show the same."""
        await self._draw_density(request)
        frame = self._frame(request, at=at, as_of=as_of, follow=follow, command=command)
        answer = await self._reading.run(self._written, template, status, {"frame": frame, **shown})
        answer.headers.update(SECURITY)
        return answer

    def error_page(
        self, request: HttpRequest, problem: ProblemView, at: str | None, **shown: object
    ) -> Response[bytes]:
        """A page that says what went wrong. It is written at once, as errors are."""
        context = {"frame": self._frame(request, at=at), "problem": problem, **shown}
        answer = self._written("error.html", problem.status, context)
        answer.headers.update({**SECURITY, **NOT_KEPT})
        return answer

    @property
    def partitions(self) -> tuple[int | None, ...]:
        """The partitions of the log; None alone where it has none."""
        return tuple(part.partition for part in self._queries.parts)

    def allows(self, request: HttpRequest, operation: Operation, topic: str | None = None) -> bool:
        """Whether who sends the request may do this to a topic, or (None) to the cluster."""
        return self.api.allows(caller_of(request), operation, topic)

    def _frame(self, request: HttpRequest, **given: Any) -> Frame:
        principal = caller_of(request).principal
        return Frame(
            path=request.url.path,
            query={name: request.query_params[name] for name in request.query_params},
            principal=principal,
            has_partitions=self.partitions != (None,),
            has_quorum=self.api.quorum is not None,
            token=self.tokens.of(principal, self.api.controller.now_ms()),
            density=self._density[1] if self._density is not None and self.allows(request, "Describe") else None,
            **given,
        )

    def _written(self, template: str, status: int, context: dict[str, object]) -> Response[bytes]:
        return packed(self._engine.get_template(template).render(context).encode(), HTML, status)

    async def _draw_density(self, request: HttpRequest) -> None:
        now = asyncio.get_running_loop().time()
        if self.allows(request, "Describe") and (self._density is None or now - self._density[0] > DENSITY_KEPT_S):
            timeline = await self._reading.run(overviews.timeline, self._queries, Window(limit=SPANS))
            self._density = now, density_of(timeline)


def template_engine() -> JinjaTemplateEngine:
    """The templates. Whatever they show is escaped, and nothing in it turns text around."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_final,
    )
    environment.filters["grouped"] = lambda number: f"{number:,}"
    environment.globals.update(drawn=drawn, lines=lines)
    return JinjaTemplateEngine.from_environment(environment)


def _final(value: object) -> object:
    """A value as it is written: what is not there as `-`, as in tables of the command line."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return escaped(value)
    return "-" if value is None else value
