"""Changes over HTTP: the very commands that come over Kafka's wire, through the same port, into the same log."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from litestar import Response, delete, post
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from controller.controller_api import ControllerApi, new_topic_ids
from controller.http.changes import Changes
from controller.http.errors import HttpRequest, Refused, status_of
from controller.http.requests import caller_of, described, read_body
from controller.machine.commands.commands import CreateTopic, DeleteTopic
from controller.machine.errors import ErrorCode
from events.catalog import Assignment
from events.names import BrokerId, TopicId, TopicName
from projections.shown import to_json
from projections.shown.json_types import CreatedShape, DeletedShape

INT32_MAX, INT16_MAX = 2**31 - 1, 2**15 - 1

Count = Annotated[int, msgspec.Meta(ge=-1, le=INT32_MAX)]
_Factor = Annotated[int, msgspec.Meta(ge=-1, le=INT16_MAX)]
_Id = Annotated[int, msgspec.Meta(ge=-INT32_MAX, le=INT32_MAX)]
Timeout = Annotated[int, msgspec.Meta(ge=-INT32_MAX, le=INT32_MAX)]
_Api = NamedDependency[ControllerApi]
_Changes = NamedDependency[Changes]
_Replicas = tuple[_Id, ...]
PARTITIONS_MAX, CONFIGS_MAX = 10_000, 1000
"""What one topic may be created with: Kafka's bound on one request, and many more configs than there are."""
InOrder = Annotated[tuple[_Replicas, ...], msgspec.Meta(max_length=PARTITIONS_MAX)]
_ById = Annotated[dict[_Id, _Replicas], msgspec.Meta(max_length=PARTITIONS_MAX)]
ConfigValues = Annotated[dict[str, str | int | float | bool | None], msgspec.Meta(max_length=CONFIGS_MAX)]


class CreateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic to create. Counts of -1 stand for the cluster's defaults, or go with `assignments`."""

    name: str
    num_partitions: Count = -1
    replication_factor: _Factor = -1
    assignments: _ById | InOrder = ()
    """The replicas of each partition, by its id or in order; the first one is the preferred leader."""
    configs: ConfigValues = {}
    timeout_ms: Timeout = 30_000
    """How long to wait for the topic to be complete; 0 or less: not at all."""


@post("/topics", status_code=201, operation_class=described(CreateBody))
async def create_topic(
    request: HttpRequest,
    controller_api: _Api,
    changes: _Changes,
    validate_only: Annotated[
        bool, QueryParameter(description="Check everything and show the replicas, create nothing")
    ] = False,
) -> Response[CreatedShape]:
    """Create a topic, or with `validate_only` show the one that would be created.

    201 when it is complete, 200 for a dry run, 202 when it is created but the wait ended before it was complete.
    """
    return await create(controller_api, changes, request, await read_body(request, CreateBody), validate_only)


async def create(
    controller_api: ControllerApi, changes: Changes, request: HttpRequest, body: CreateBody, validate_only: bool
) -> Response[CreatedShape]:
    """The answer to a create. Raises Refused."""
    command = create_command(
        body,
        new_topic_ids(1)[0],
        validate_only=validate_only,
        denied=controller_api.denial_of_create(caller_of(request), body.name),
        **changes.stamps(request, is_dry_run=validate_only),
    )
    answer = await changes.answer(
        command, lambda put: controller_api.submit([put], 0 if validate_only else body.timeout_ms)
    )
    if answer.topic is None or answer.code not in {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}:
        raise Refused(status_of(answer.code), to_json.refusal(answer))
    status = 202 if answer.code else 200 if validate_only else 201
    shown = to_json.created(answer, controller_api.cluster.live, validate_only)
    return Response(shown, status_code=status, headers={} if validate_only else located(body.name))


@delete("/topics/{name:str}", status_code=200)
async def delete_topic(
    name: FromPath[str],
    request: HttpRequest,
    controller_api: _Api,
    changes: _Changes,
) -> DeletedShape:
    """Delete a topic. Its history stays."""
    denied = controller_api.denial_of_delete(caller_of(request), name)
    command = DeleteTopic(topic=TopicName(name), denied=denied, **changes.stamps(request))
    known = controller_api.topic(name)
    answer = await changes.answer(command, lambda put: controller_api.submit_change([put]))
    if answer.code:
        raise Refused(status_of(answer.code), to_json.refusal(answer))
    return to_json.deleted(answer, known)


def create_command(body: CreateBody, topic_id: TopicId, **stamps: Any) -> CreateTopic:
    """The command that a body stands for, with what else is stamped on it."""
    return CreateTopic(
        topic=TopicName(body.name),
        topic_id=topic_id,
        num_partitions=body.num_partitions,
        replication_factor=body.replication_factor,
        assignments=_assignments(body.assignments),
        configs=tuple((name, config_text(value)) for name, value in body.configs.items()),
        timeout_ms=body.timeout_ms,
        **stamps,
    )


def located(name: str) -> dict[str, str]:
    """The header that says where a topic is."""
    return {"location": f"/v1/topics/{quote(name, safe='')}"}


def _assignments(given: dict[int, _Replicas] | tuple[_Replicas, ...]) -> tuple[Assignment, ...]:
    by_id = given.items() if isinstance(given, dict) else enumerate(given)
    return tuple(Assignment(partition, tuple(map(BrokerId, replicas))) for partition, replicas in by_id)


def config_text(value: str | float | bool | None) -> str | None:
    """A config's value as Kafka takes it: text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)
