"""JSON bodies, read strictly: a number in quotes is no number, and a field that is not known is an error.

The framework's own reading is lenient (`"1e3"` given for a config would become `1000.0`), so bodies are read here, and
described here for the OpenAPI document.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.openapi.spec import Operation

from controller.http.errors import refused
from controller.machine.errors import ErrorCode

_T = TypeVar("_T", bound=msgspec.Struct)


async def read_body(request: Request[Any, Any, Any], kind: type[_T]) -> _T:
    """The body of a request. Raises Refused, naming the field that is wrong and what it may be."""
    body = await request.body()
    if not body.strip():
        raise refused(400, ErrorCode.INVALID_REQUEST, "body: missing; it is to be JSON")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
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
