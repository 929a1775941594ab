"""Changes of a topic that is there: its configs, or how many partitions it has."""

from __future__ import annotations

from itertools import starmap
from typing import Annotated, Any

import msgspec
from litestar import patch
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from controller.controller_api import CHANGE_TIMEOUT_MS, ControllerApi
from controller.http.changes import Changes
from controller.http.errors import HttpRequest, Refused, refused, status_of
from controller.http.paths.writes import ConfigValues, Count, InOrder, Timeout, config_text
from controller.http.requests import caller_of, described, read_body
from controller.machine.commands.commands import AlterTopicConfigs, CreatePartitions
from controller.machine.configs.changes import OpType
from controller.machine.errors import ErrorCode
from events.catalog import ConfigOp
from events.names import BrokerId, TopicName
from projections.views import to_json
from projections.views.json_types import AlteredView


class AlterBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be different of a topic: `configs`, or `num_partitions`; each change is a request of its own."""

    configs: ConfigValues = {}
    """New values by name; null goes back to the default."""
    num_partitions: Count = -1
    """How many there are to be, more than there are."""
    assignments: InOrder = ()
    """With `num_partitions`: the replicas of each new partition; without, they are placed."""
    timeout_ms: Timeout = CHANGE_TIMEOUT_MS
    """How long to wait where a cluster carries the change out."""


@patch("/topics/{name:str}", operation_class=described(AlterBody))
async def alter_topic(
    name: FromPath[str],
    request: HttpRequest,
    api: NamedDependency[ControllerApi],
    changes: NamedDependency[Changes],
    validate_only: Annotated[bool, QueryParameter(description="Check everything, change nothing")] = False,
) -> AlteredView:
    """Change the configs of a topic, or add partitions to it."""
    return await alter(api, changes, request, name, await read_body(request, AlterBody), validate_only)


async def alter(
    api: ControllerApi, changes: Changes, request: HttpRequest, name: str, body: AlterBody, validate_only: bool = False
) -> AlteredView:
    """The answer to a change. Raises Refused."""
    stamps = changes.stamps(request, is_dry_run=validate_only)
    command = _command(api, request, body, topic=TopicName(name), validate_only=validate_only, **stamps)
    answer = await changes.answer(command, lambda put: api.submit_change([put], body.timeout_ms))
    if answer.code:
        raise Refused(status_of(answer.code), to_json.refusal(answer))
    return to_json.altered(answer, api.topic(name), validate_only)


def _command(
    api: ControllerApi, request: HttpRequest, body: AlterBody, *, topic: TopicName, **given: Any
) -> AlterTopicConfigs | CreatePartitions:
    if bool(body.configs) == (body.num_partitions >= 0):
        raise refused(400, ErrorCode.INVALID_REQUEST, "body: one of configs and num_partitions, and not both")
    if body.assignments and body.configs:
        raise refused(400, ErrorCode.INVALID_REQUEST, "assignments: they go with num_partitions")
    caller = caller_of(request)
    if body.configs:
        denied, ops = api.denial(caller, "AlterConfigs", topic), tuple(starmap(_op, body.configs.items()))
        return AlterTopicConfigs(topic=topic, denied=denied, ops=ops, **given)
    assignments = tuple(tuple(map(BrokerId, replicas)) for replicas in body.assignments) or None
    denied, count = api.denial(caller, "Alter", topic), body.num_partitions
    return CreatePartitions(topic=topic, denied=denied, count=count, assignments=assignments, **given)


def _op(name: str, value: str | float | bool | None) -> ConfigOp:
    text = config_text(value)
    return ConfigOp(name, OpType.DELETE if text is None else OpType.SET, text)
