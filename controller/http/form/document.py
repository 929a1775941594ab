"""The OpenAPI document: what the framework makes of the handlers, with what it cannot know of them.

That is how an operation may end (every status, with the form of errors), how clients log in, what an answer's headers
say, and examples.
"""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus
from typing import Any, Final

import msgspec

from controller.http.changes import AT_WORK, KEY, KEY_CHARACTERS_MAX, OTHER_WISH
from controller.http.errors import PROBLEM
from controller.http.health import OPEN_PATHS
from projections.views.json_types import ProblemView

Operation = dict[str, Any]

_ALWAYS: Final = (400, 401, 403, 421, 500, 503)
_OF_WRITES: Final = (404, 409, 429, 504)
_ONCE: Final = ("create_topic", "alter_topic", "delete_topic")
_KEY: Final = {
    "name": KEY,
    "in": "header",
    "required": False,
    "description": "Send a change again under its key: it is made once, and answered as it was. The same key with "
    f"another wish is {OTHER_WISH}, and {AT_WORK} while the change is at work",
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS_MAX},
    "example": "7f3c9a52-0b1e-4c55-9d0e-5a2f1c3b8e11",
}
_PROBLEM_REF: Final = {"$ref": "#/components/schemas/ProblemView"}
_PROBLEM: Final = {
    "type": "urn:kafka:error:TOPIC_ALREADY_EXISTS",
    "title": "Topic already exists",
    "status": 409,
    "detail": "Topic 'orders' already exists. It was created at 2026-07-17T10:00:00.000Z and is ready.",
    "instance": "/v1/requests/3f2a9c-12-9c1d02f47a",
    "error": "TOPIC_ALREADY_EXISTS",
    "code": 36,
    "message": "Topic 'orders' already exists. It was created at 2026-07-17T10:00:00.000Z and is ready.",
    "request_id": "3f2a9c-12-9c1d02f47a",
    "rule": "validation:exists",
}
_LOGINS: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of a user"},
    "basic": {"type": "http", "scheme": "basic", "description": "A user's name and password, those of Kafka's wire"},
}
_BODIES: Final[dict[str, dict[str, object]]] = {
    "create_topic": {"name": "orders", "num_partitions": 3, "configs": {"retention.ms": 86400000}},
    "alter_topic": {"configs": {"retention.ms": 3600000, "cleanup.policy": None}},
}
_PARAMETERS: Final = {
    "at": "2026-07-17T10:00:00Z",
    "from": "2026-07-17",
    "name": "orders",
    "principal": "User:alice",
    "rule": "policy:rules/naming",
    "subject": "orders",
}
_CREATED: Final = {
    "200": "A dry run: what would be created",
    "201": "Created and complete; `Location` says where it is",
    "202": "Created, but the wait ended before it was complete; do not repeat it",
}


_KEEPING: Final = {"ETag": "Names this very answer", "Cache-Control": "Whether it may be kept"}


def completed(document: dict[str, Any], pages: Collection[str] = ()) -> dict[str, Any]:
    """The document with all that clients need; it is changed in place. `pages` are the paths that are pages too."""
    components = document["components"]
    components["securitySchemes"] = _LOGINS
    components["schemas"].update(_schemas(ProblemView))
    document["security"] = [{"bearer": []}, {"basic": []}, {}]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if isinstance(operation, dict) and "responses" in operation:
                _complete(path, method, operation)
        if path in pages and "get" in operations:
            operations["get"]["responses"]["200"]["content"]["text/html"] = {"schema": {"type": "string"}}
    return document


def _complete(path: str, method: str, operation: Operation) -> None:
    responses: dict[str, Any] = operation["responses"]
    is_open, is_read = path in OPEN_PATHS, method == "get"
    if is_open:
        operation["security"] = []
    for status in _statuses(path, is_open=is_open, is_read=is_read):
        responses[str(status)] = _problem(status)
    if is_read and path.startswith("/v1") and not path.endswith("/follow"):
        responses["304"] = {"description": "What the client has, by its If-None-Match, is what there is"}
        responses["200"]["headers"] = {name: _header(text) for name, text in _KEEPING.items()}
    name = operation["operationId"]
    if name == "follow":
        responses["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    if name in _BODIES:
        operation["requestBody"]["content"]["application/json"]["example"] = _BODIES[name]
    if name in _ONCE:
        operation.setdefault("parameters", []).append(_KEY)
        responses[str(OTHER_WISH)] = _problem(OTHER_WISH)
    if name == "create_topic":
        content = responses["201"]["content"]
        for status_text, description in _CREATED.items():
            responses[status_text] = {"description": description, "content": content}
        responses["201"]["headers"] = {"Location": _header("Where the topic is")}
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        is_text = "string" in str(schema.get("type", schema.get("oneOf", schema.get("anyOf"))))
        if parameter["name"] in _PARAMETERS and is_text and "enum" not in schema:
            parameter["example"] = _PARAMETERS[parameter["name"]]


def _statuses(path: str, *, is_open: bool, is_read: bool) -> tuple[int, ...]:
    if is_open:
        return (503,) if path.endswith("ready") else ()
    if is_read:
        return (*_ALWAYS, 404) if path.startswith("/v1") else _ALWAYS
    return (*_ALWAYS, *_OF_WRITES)


def _problem(status: int) -> dict[str, Any]:
    content = {PROBLEM: {"schema": _PROBLEM_REF, "example": _PROBLEM}}
    return {"description": HTTPStatus(status).phrase, "content": content}


def _header(description: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "string"}}


def _schemas(kind: type[msgspec.Struct]) -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components((kind,), ref_template="#/components/schemas/{name}")
    return schemas
