"""Complete the OpenAPI document, which `app` serves at `/openapi.json`.

Litestar generates the document from the handlers. This module adds the parts that their signatures lack: all
statuses with the error format, logins, response headers, idempotency keys, and examples.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from controller.http.changes import IN_PROGRESS, KEY, KEY_CHARACTERS_MAX, KEY_REUSED
from controller.http.errors import PROBLEM
from controller.http.metrics import OPEN_PATHS
from controller.http.requests import schemas_of
from projections.views.view import ProblemView

Operation = dict[str, Any]

_ALWAYS: Final = (400, 401, 403, 421, 500, 503)
_OF_WRITES: Final = (404, 409, 429, 504)
_ONCE: Final = ("create_topic", "alter_topic", "delete_topic")
_KEY: Final = {
    "name": KEY,
    "in": "header",
    "required": False,
    "description": "Retry a change with its key: it is made only once, and gets the same answer. The status is "
    f"{KEY_REUSED} if the key was used for a different change, and {IN_PROGRESS} while the change is in progress",
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
    "basic": {"type": "http", "scheme": "basic", "description": "User name and password, the same as for SASL"},
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
    "200": "Dry run: the topic that would be created",
    "201": "Created and complete; `Location` is its path",
    "202": "Created, but not complete within the timeout; do not retry",
}
_CACHING: Final = {"ETag": "Version of the response", "Cache-Control": "Whether it may be cached"}


def completed(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the generated OpenAPI document, completed in place."""
    components = document["components"]
    components["securitySchemes"] = _LOGINS
    components["schemas"].update(schemas_of(ProblemView))
    document["security"] = [{"bearer": []}, {"basic": []}, {}]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if isinstance(operation, dict) and "responses" in operation:
                _complete(path, method, operation)
    return document


def _complete(path: str, method: str, operation: Operation) -> None:
    responses: dict[str, Any] = operation["responses"]
    is_open, is_read = path in OPEN_PATHS, method == "get"
    if is_open:
        operation["security"] = []
    for status in _statuses(path, is_open=is_open, is_read=is_read):
        responses[str(status)] = _problem(status)
    if is_read and path.startswith("/v1") and not path.endswith("/follow"):
        responses["304"] = {"description": "Not modified: the client has this version (If-None-Match)"}
        responses["200"]["headers"] = {name: _header(text) for name, text in _CACHING.items()}
    name = operation["operationId"]
    if name == "follow":
        responses["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    if name in _BODIES:
        operation["requestBody"]["content"]["application/json"]["example"] = _BODIES[name]
    if name in _ONCE:
        operation.setdefault("parameters", []).append(_KEY)
        responses[str(KEY_REUSED)] = _problem(KEY_REUSED)
    if name == "create_topic":
        content = responses["201"]["content"]
        for status_text, description in _CREATED.items():
            responses[status_text] = {"description": description, "content": content}
        responses["201"]["headers"] = {"Location": _header("Path of the topic")}
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
