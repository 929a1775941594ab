"""What is read of a request before anything is done: who sent it, its query parameters, its JSON body.

All of it strictly. A misspelled parameter that is ignored gives a wrong answer that looks right (`?att=5` would show
the present), so it is an error that names what is allowed. The framework's own reading of bodies is lenient (`"1e3"`
given for a config would become `1000.0`), so bodies are read here, and described here for the OpenAPI document.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints
from urllib.parse import parse_qsl, urlsplit

import msgspec
from litestar.handlers import BaseRouteHandler
from litestar.openapi.spec import Operation
from litestar.params import QueryParameter

from controller.http.errors import Connection, HttpRequest, refused
from controller.kafka.session import ANONYMOUS, Session
from controller.machine.errors import ErrorCode

API: Final = "HTTP"
CLIENT_ID_CHARACTERS_MAX: Final = 200
"""Of the User-Agent header, which is the client id in events: enough for any name of a program and its version."""
KEY_CHARACTERS_MAX: Final = 100
"""Of a JSON key that an error names."""
SCOPE_KEY: Final = "topicwright.session"
"""Where `controller.http.gate` leaves the session in the scope, before a request is routed."""

_T = TypeVar("_T", bound=msgspec.Struct)


class Caller(msgspec.Struct, frozen=True):
    """Who sent a request, for authorization, quotas and events. `client_id` is null where a client names none."""

    principal: str = ANONYMOUS
    host: str = ""
    client_id: str | None = None
    api: str = API


def caller_of(connection: Connection) -> Caller:
    """Who sent a request; anonymous where nobody had to say."""
    session: Session | None = connection.scope.get(SCOPE_KEY)  # type: ignore[assignment]
    agent: str | None = connection.headers.get("user-agent")
    client_id = None if agent is None else agent[:CLIENT_ID_CHARACTERS_MAX]
    if session is None:
        client = connection.client
        return Caller(host="" if client is None else client.host, client_id=client_id)
    return Caller(session.principal, session.host, client_id)


async def refuse_other_sites(connection: Connection, _: BaseRouteHandler) -> None:
    """Raise Refused where a browser says that a page of another site makes it change something here."""
    if connection.scope.get("method") in {"GET", "HEAD"}:
        return
    for origin in connection.headers.getall("origin", []):
        if _site_of(origin) != connection.headers.get("host"):
            message = f"pages of {origin} may not change anything here"
            raise refused(403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)


def _site_of(origin: str) -> str:
    """The host, and its port, that an Origin header names; empty where it names none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:  # `http://[`
        return ""


async def refuse_unknown_parameters(connection: Connection, handler: BaseRouteHandler) -> None:
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


async def read_body(request: HttpRequest, kind: type[_T]) -> _T:
    """The body of a request. Raises Refused, naming the field that is wrong and what it may be."""
    body = await request.body()
    if not body.strip():
        raise refused(400, ErrorCode.INVALID_REQUEST, "body: missing; it has to be JSON")
    try:
        read = msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = _what_is_wrong(str(error), kind)
        field, place, why = message.partition("[...]")
        if place:
            message = f"{field}[{_wrong_key(body, kind, field)}]{why}"
        raise refused(400, ErrorCode.INVALID_REQUEST, message) from None
    json.loads(body, object_pairs_hook=_refuse_repeated_keys, parse_int=str, parse_float=str)
    return read


def _refuse_repeated_keys(pairs: list[tuple[str, object]]) -> None:
    """Raise Refused: of a key given twice, msgspec takes the last value."""
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            raise refused(400, ErrorCode.INVALID_REQUEST, f"{key[:KEY_CHARACTERS_MAX]}: given more than once")
        keys.add(key)


def _wrong_key(body: bytes, kind: type[_T], field: str) -> str:
    """The first key of an object whose value is wrong: msgspec names only the object."""
    wanted = get_type_hints(kind).get(field)
    if wanted is None:
        return "..."
    values = msgspec.json.decode(body, type=dict[str, msgspec.Raw])[field]
    for key, value in msgspec.json.decode(values, type=dict[str, msgspec.Raw]).items():
        try:
            msgspec.json.decode(msgspec.json.encode({key: value}), type=wanted)
        except msgspec.ValidationError:
            return key[:KEY_CHARACTERS_MAX]
    return "..."


FORM_FIELDS_MAX: Final = 20
FORM_BYTES_MAX: Final = 64 << 10
"""Of a body that is read on the event loop, in Python: some 20 ms."""


async def read_form(request: HttpRequest) -> dict[str, str]:
    """The fields of a form that a browser sends, each once. Raises Refused."""
    body = await request.body()
    if len(body) > FORM_BYTES_MAX:
        raise refused(413, ErrorCode.INVALID_REQUEST, f"body: a form has at most {FORM_BYTES_MAX} bytes")
    try:
        text = body.decode()
        pairs = parse_qsl(
            text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=FORM_FIELDS_MAX
        )
    except ValueError:  # not UTF-8, no pairs, or too many
        message = f"body: it has to be a form of at most {FORM_FIELDS_MAX} fields, in UTF-8"
        raise refused(400, ErrorCode.INVALID_REQUEST, message) from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise refused(400, ErrorCode.INVALID_REQUEST, "body: a field is given more than once")
    return fields


def body_of(fields: dict[str, object], kind: type[_T]) -> _T:
    """The body that fields of a form stand for. Raises Refused as `read_body`."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise refused(400, ErrorCode.INVALID_REQUEST, _what_is_wrong(str(error), kind)) from None


def _what_is_wrong(message: str, kind: type[msgspec.Struct]) -> str:
    what, _, path = message.partition(" - at `")
    if what.startswith("Object contains unknown field"):
        return f"{what.split('`')[1]}: unknown field; allowed are {', '.join(kind.__struct_fields__)}"
    field = path.rstrip("`").replace("key` in `", "key of ").replace("$.", "")
    return f"{field or 'body'}: {what}"


def described(kind: type[msgspec.Struct], *, required: bool = True) -> type[Operation]:
    """What the OpenAPI document says of an operation that takes such a body."""
    _, components = msgspec.json.schema_components((kind,), ref_template="#/components/schemas/{name}")
    body = {"required": required, "content": {"application/json": {"schema": components[kind.__name__]}}}

    class WithBody(Operation):
        def to_schema(self) -> dict[str, Any]:
            return {**super().to_schema(), "requestBody": body}

    return WithBody
