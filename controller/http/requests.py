"""Parse HTTP requests strictly, for all handlers: sender, query parameters, JSON body, form.

An ignored misspelling would give a wrong answer that looks right (`?att=5` would return the present state), so unknown
parameters are errors that name the allowed ones. Litestar parses bodies leniently (`"1e3"` for a config would become
`1000.0`), so bodies are parsed here, and described here for the OpenAPI document.

Changes from pages of other sites are refused by the Origin header, which browsers send with each POST. A program may
leave it out, but not with a form: so no browser can send a form without it.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar, get_type_hints
from urllib.parse import parse_qsl, urlsplit

import msgspec
from litestar.di import Provide
from litestar.handlers import BaseRouteHandler
from litestar.openapi.spec import Operation
from litestar.params import QueryParameter

from controller.access.authorizer import Caller
from controller.http.errors import Connection, HttpRequest, invalid, refused
from controller.kafka.handling import ANONYMOUS
from controller.machine.commands.commands import HTTP
from controller.machine.errors import ErrorCode
from events.catalog import EVENT_TYPES
from projections.text.points_in_time import OFFSET_END, SYNTAX

API: Final = HTTP
CLIENT_ID_CHARACTERS_MAX: Final = 200
"""The User-Agent header is the client id in events; longer ones are truncated."""
KEY_CHARACTERS_MAX: Final = 100
"""A JSON key in an error message is truncated to this."""
SCOPE_KEY: Final = "topicwright.principal"
"""The key of the ASGI scope under which `controller.http.gate` stores the principal and the roles."""

SESSION_KEY: Final = "topicwright.session"
"""The key of the ASGI scope that is True if the client logged in with a browser, by an identity provider."""

_T = TypeVar("_T", bound=msgspec.Struct)


def caller_of(connection: Connection) -> Caller:
    """The sender of a request; anonymous without a login, and with no client id without a User-Agent."""
    login: tuple[str, frozenset[str]] = connection.scope.get(SCOPE_KEY, (ANONYMOUS, frozenset()))  # type: ignore[assignment]
    agent: str | None = connection.headers.get("user-agent")
    client_id = None if agent is None else agent[:CLIENT_ID_CHARACTERS_MAX]
    host = "" if connection.client is None else connection.client.host
    return Caller(login[0], host, client_id, roles=login[1])


async def refuse_other_sites(connection: Connection, _: BaseRouteHandler) -> None:
    """Raise Refused if the Origin header of a state-changing request names another site."""
    if connection.scope.get("method") in {"GET", "HEAD"}:
        return
    for origin in other_sites(connection):
        message = f"requests from pages of {origin} may not change anything here"
        raise refused(403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)


def other_sites(connection: Connection) -> list[str]:
    """The Origin headers of a request that name another site."""
    origins: list[str] = connection.headers.getall("origin", [])
    return [origin for origin in origins if _site_of(origin) != connection.headers.get("host")]


def _site_of(origin: str) -> str:
    """HOST:PORT of an Origin header; empty if it has none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:  # `http://[`
        return ""


async def refuse_unknown_parameters(connection: Connection, handler: BaseRouteHandler) -> None:
    """Raise Refused for a query parameter that is unknown or given twice."""
    allowed = _query_parameters(handler)
    for name in connection.query_params:
        if name not in allowed:
            known = f"allowed are {', '.join(sorted(allowed))}" if allowed else "this path takes none"
            raise invalid(f"{name}: unknown query parameter; {known}")
        if len(connection.query_params.getall(name)) > 1:
            raise invalid(f"{name}: given more than once")


@cache
def _query_parameters(handler: BaseRouteHandler) -> frozenset[str]:
    declared = handler.parsed_fn_signature.parameters.items()
    return frozenset(
        field.kwarg_definition.name or name
        for name, field in declared
        if isinstance(field.kwarg_definition, QueryParameter)
    )


async def read_body(request: HttpRequest, kind: type[_T]) -> _T:
    """Parse the JSON body. Raises Refused, naming the invalid field and what is allowed."""
    body = await request.body()
    if not body.strip():
        raise invalid("body: missing; it must be JSON")
    try:
        read = msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = _problem(str(error), kind)
        field, place, why = message.partition("[...]")
        if place:
            message = f"{field}[{_wrong_key(body, kind, field)}]{why}"
        raise invalid(message) from None
    json.loads(body, object_pairs_hook=_refuse_repeated_keys, parse_int=bool, parse_float=bool)
    return read


def _refuse_repeated_keys(pairs: list[tuple[str, object]]) -> None:
    """Raise Refused for a repeated key, of which msgspec would take the last value."""
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            raise invalid(f"{key[:KEY_CHARACTERS_MAX]}: given more than once")
        keys.add(key)


def _wrong_key(body: bytes, kind: type[_T], field: str) -> str:
    """The first key of the object `field` with an invalid value: msgspec's error names only the object."""
    with suppress(KeyError, RecursionError):
        type_ = get_type_hints(kind, include_extras=True)[field]
        for key, value in msgspec.json.decode(body)[field].items():
            try:
                msgspec.convert({key: value}, type_, str_keys=True)
            except msgspec.ValidationError:
                return str(key)[:KEY_CHARACTERS_MAX]
    return "..."


FORM_FIELDS_MAX: Final = 20
FORM_BYTES_MAX: Final = 64 << 10
"""The largest form. Forms are parsed in Python on the event loop; this size takes about 20 ms."""


async def read_form(request: HttpRequest) -> dict[str, str]:
    """Parse a form of this site; each field may be given once. Raises Refused."""
    if "origin" not in request.headers:
        message = "a form needs the Origin header, which browsers send; programs use the paths below /v1"
        raise refused(403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)
    body = await request.body()
    if len(body) > FORM_BYTES_MAX:
        raise refused(413, ErrorCode.INVALID_REQUEST, f"body: a form has at most {FORM_BYTES_MAX} bytes")
    try:
        text = body.decode()
        pairs = parse_qsl(
            text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=FORM_FIELDS_MAX
        )
    except ValueError:  # not UTF-8, not NAME=VALUE pairs, or too many
        message = f"body: it must be a form of at most {FORM_FIELDS_MAX} fields, in UTF-8"
        raise invalid(message) from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise invalid("body: a field is given more than once")
    return fields


def body_of(fields: Mapping[str, object], kind: type[_T]) -> _T:
    """Convert the fields of a form to a body; a number is text there. Raises Refused as `read_body` does."""
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise refused(400, ErrorCode.INVALID_REQUEST, _problem(str(error), kind)) from None


def _problem(message: str, kind: type[msgspec.Struct]) -> str:
    what, _, path = message.partition(" - at `")
    if what.startswith("Object contains unknown field"):
        unknown, within = what.split("`")[1], path.rstrip("`").removeprefix("$.")
        known = "" if within else f"; allowed are {', '.join(kind.__struct_fields__)}"
        return f"{within}{'.' if within else ''}{unknown[:KEY_CHARACTERS_MAX]}: unknown field{known}"
    if what.startswith("Invalid value"):  # of the tag of a change, the only union
        what = f"{what[:KEY_CHARACTERS_MAX]}; allowed are create, alter, delete"
    field = path.rstrip("`").replace("key` in `", "key of ").replace("$.", "")
    return f"{field or 'body'}: {what}"


def takes(kind: type[msgspec.Struct], *, required: bool = True) -> dict[str, Any]:
    """Arguments for the decorator of a handler, which gets its JSON body as `content`; OpenAPI describes it."""
    body = {"required": required, "content": {"application/json": {"schema": schemas_of(kind)[kind.__name__]}}}

    class WithBody(Operation):
        def to_schema(self) -> dict[str, Any]:
            return {**super().to_schema(), "requestBody": body}

    async def content(request: HttpRequest) -> Any:
        return await read_body(request, kind) if required or await request.body() else kind()

    return {"operation_class": WithBody, "dependencies": {"content": Provide(content)}}


def schemas_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return msgspec.json.schema_components((kind,), ref_template="#/components/schemas/{name}")[1]


LIMIT_MAX = 1000
"""The most topics, events or requests per page."""
OFFSET_MAX = OFFSET_END - 1

GLOB_CHARACTERS_MAX = 249

Glob = Annotated[
    str | None,
    QueryParameter(
        min_length=1, max_length=GLOB_CHARACTERS_MAX, description="Name pattern: `*` for any characters, `?` for one"
    ),
]
Label = Annotated[
    str | None, QueryParameter(description="Only for topics with this label: `NAME=VALUE`, or `NAME` for any value")
]
At = Annotated[str | None, QueryParameter(description=f"Show the state as of: {SYNTAX}")]
Limit = Annotated[int, QueryParameter(ge=1, le=LIMIT_MAX, description="Maximum number of results")]
From = Annotated[str | None, QueryParameter(name="from", description=f"Not before: {SYNTAX}")]
FromPointInTime = Annotated[str, QueryParameter(name="from", description=f"The earlier point in time: {SYNTAX}")]
To = Annotated[str | None, QueryParameter(name="to", description="Not after; same syntax")]
FromOffset = Annotated[int, QueryParameter(name="from", ge=0, le=OFFSET_MAX, description="First offset")]
Partition = Annotated[
    int | None, QueryParameter(ge=0, le=OFFSET_MAX, description="Only this partition, if the log has partitions")
]
EventType = Annotated[
    str | None,
    QueryParameter(
        name="type",
        pattern=f"^({'|'.join(sorted(kind.__name__ for kind in EVENT_TYPES))})$",
        description="Only events of this type",
    ),
]

EventOrder = Annotated[
    Literal["oldest", "newest"],
    QueryParameter(name="order", description="Sort order; with `newest`, `from` is ignored"),
]
Cursor = Annotated[str | None, QueryParameter(description="`next_cursor` of the previous page")]
