"""What is refused before a handler sees it: query parameters that it does not know, and pages of other sites.

A misspelled parameter that is ignored gives a wrong answer that looks right (`?att=5` would show the present), so it is
an error that names what is allowed.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter

from controller.http.errors import refused
from controller.machine.errors import ErrorCode


def refuse_unknown_parameters(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Raise Refused for a query parameter that the handler does not know, or that is given twice."""
    allowed = _query_parameters(handler)
    for name in connection.query_params:
        if name not in allowed:
            known = f"allowed are {', '.join(sorted(allowed))}" if allowed else "none is allowed here"
            raise refused(400, ErrorCode.INVALID_REQUEST, f"{name}: unknown query parameter; {known}")
        if len(connection.query_params.getall(name)) > 1:
            raise refused(400, ErrorCode.INVALID_REQUEST, f"{name}: given more than once")


@cache
def _query_parameters(handler: BaseRouteHandler) -> frozenset[str]:
    declared = handler.parsed_fn_signature.parameters.items()
    return frozenset(
        field.kwarg_definition.name or name
        for name, field in declared
        if isinstance(field.kwarg_definition, QueryParameter)
    )


def refuse_other_sites(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Raise Refused where a browser says that a page of another site makes it change something here."""
    origin = connection.headers.get("origin")
    if connection.scope.get("method") in {"GET", "HEAD"} or origin is None:
        return
    if urlsplit(origin).netloc != connection.headers.get("host"):
        message = f"pages of {origin} may not change anything here"
        raise refused(403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)
