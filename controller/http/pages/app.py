"""The pages as an application: their handlers, and what a browser is shown where one of them refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litestar import Litestar, Response, Router
from litestar.di import Provide
from litestar.template import TemplateConfig

from controller.http.errors import HttpRequest, answer_error
from controller.http.form.packing import note_wish
from controller.http.pages import assets, brokers, changes, overview, requests, topics
from controller.http.pages.site import Site, template_engine
from controller.http.requests import refuse_other_sites, refuse_unknown_parameters
from projections.queries.query import NoTopic
from projections.text.moments import BadMoment

_PAGES = (
    overview.overview,
    topics.topics,
    topics.topic,
    requests.requests,
    requests.request_,
    requests.explanation,
    brokers.brokers,
    brokers.broker,
    brokers.events,
    brokers.topic_events,
    brokers.diff,
    brokers.quorum,
    changes.policies,
    changes.create,
    changes.change,
)


def pages_app(given: Mapping[str, Any], body_bytes_max: int) -> Litestar:
    """The pages, made of what the handlers of the JSON are given."""
    engine = template_engine()
    site = Site(engine=engine, **given)

    def answer(request: HttpRequest, error: Exception) -> Response[bytes]:
        return _error_page(site, request, error)

    return Litestar(
        route_handlers=[assets.asset, Router("/v1", route_handlers=_PAGES), Router("/", route_handlers=_PAGES)],
        dependencies={"site": Provide(lambda: site, sync_to_thread=False)},
        guards=[refuse_other_sites, refuse_unknown_parameters, note_wish],
        exception_handlers={Exception: answer},
        request_max_body_size=body_bytes_max,
        template_config=TemplateConfig(instance=engine),
        logging_config=None,
        openapi_config=None,
    )


def _error_page(site: Site, request: HttpRequest, error: Exception) -> Response[bytes]:
    """What the JSON says of an error, and where to go from there."""
    plain = answer_error(request, error)
    problem = plain.content
    gone = error.deleted_at if isinstance(error, NoTopic) else None
    born = error.created_at if isinstance(error, NoTopic) else None
    at = None if isinstance(error, BadMoment) else request.query_params.get("at")
    name = request.path_params.get("name") if isinstance(error, NoTopic) else None
    page = site.error_page(request, problem, at, gone=gone, born=born, name=name)
    page.headers.update({name: value for name, value in plain.headers.items() if name == "allow"})
    return page
