"""Changes over HTTP: create, alter and delete topics, one or many in a request, with the same commands as the Kafka
protocol; and control simulated brokers. A path of a simulated broker returns the broker's new settings before the
controller reacts.
"""

import asyncio
from itertools import starmap
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from litestar import Response, delete, patch, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from controller.brokers.simulated import SIMULATED_BROKERS_MAX, SimulatedBrokers
from controller.controller_api import CHANGE_TIMEOUT_MS, ControllerApi
from controller.http.changes import KEY, Changes
from controller.http.errors import HttpRequest, Refused, invalid, refusal_of
from controller.http.permissions import Reader
from controller.http.requests import caller_of, takes
from controller.machine.commands.commands import AlterTopicConfigs, CreatePartitions, CreateTopic, DeleteTopic
from controller.machine.configs.changes import OpType
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from events.catalog import Assignment, ConfigOp
from events.names import BrokerId, TopicName
from projections.views.brokers import SimulatedBrokerView
from projections.views.topics import (
    AlteredView,
    ChangesView,
    ChangeView,
    CreatedView,
    DeletedView,
    altered,
    created,
    deleted,
    partitions,
)
from projections.views.view import view_of

INT32_MAX, INT16_MAX = 2**31 - 1, 2**15 - 1

Count = Annotated[int, msgspec.Meta(ge=-1, le=INT32_MAX)]
_Factor = Annotated[int, msgspec.Meta(ge=-1, le=INT16_MAX)]
_Id = Annotated[int, msgspec.Meta(ge=-INT32_MAX, le=INT32_MAX)]
_BrokerId = Annotated[BrokerId, msgspec.Meta(ge=-INT32_MAX, le=INT32_MAX)]
Timeout = Annotated[int, msgspec.Meta(ge=-INT32_MAX, le=INT32_MAX)]
_DryRun = Annotated[bool, QueryParameter(description="Dry run: validate, and change nothing")]
_Reader = NamedDependency[Reader]
_Changes = NamedDependency[Changes]
_Replicas = tuple[_BrokerId, ...]
PARTITIONS_MAX, CONFIGS_MAX = 10_000, 1000
"""Limits of one request: Kafka's limit on partitions, and far more configs than exist."""
CHANGES_MAX = 100
InOrder = Annotated[tuple[_Replicas, ...], msgspec.Meta(max_length=PARTITIONS_MAX)]
_ById = Annotated[dict[_Id, _Replicas], msgspec.Meta(max_length=PARTITIONS_MAX)]
ConfigValues = Annotated[dict[str, str | int | float | bool | None], msgspec.Meta(max_length=CONFIGS_MAX)]


class CreateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic to create. A count of -1 means the cluster's default, or is given by `assignments`."""

    name: str
    num_partitions: Count = -1
    replication_factor: _Factor = -1
    assignments: _ById | InOrder = ()
    """The replicas of each partition, by id or in order; the first is the preferred leader."""
    configs: ConfigValues = {}
    timeout_ms: Timeout = 30_000
    """The maximum time to wait until the topic is complete; 0 or less: do not wait."""


@post("/topics", status_code=201, **takes(CreateBody))
async def create_topic(
    request: HttpRequest,
    changes: _Changes,
    content: NamedDependency[CreateBody],
    validate_only: Annotated[
        bool, QueryParameter(description="Dry run: validate, and show the replicas that the topic would get")
    ] = False,
) -> Response[CreatedView]:
    """Create a topic, or with `validate_only` show the topic that would be created.

    201 if it is complete, 200 for a dry run, 202 if it was created but was not complete within the timeout.
    """
    api, replicas = changes.api, content.assignments
    by_id = replicas.items() if isinstance(replicas, dict) else enumerate(replicas)
    command = CreateTopic(
        topic=TopicName(content.name),
        topic_id=api.new_topic_ids(1)[0],
        num_partitions=content.num_partitions,
        replication_factor=content.replication_factor,
        assignments=tuple(starmap(Assignment, by_id)),
        configs=tuple((name, config_text(value)) for name, value in content.configs.items()),
        timeout_ms=content.timeout_ms,
        validate_only=validate_only,
        denied=api.denial_of_create(caller_of(request), content.name),
        **changes.stamps(request, is_dry_run=validate_only),
    )
    answer = await changes.answer(
        command, lambda submitted: api.submit([submitted], 0 if validate_only else content.timeout_ms)
    )
    if answer.topic is None or answer.code not in {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}:
        raise refusal_of(answer)
    status = 202 if answer.code else 200 if validate_only else 201
    view = created(answer, api.cluster.live, validate_only)
    location = {} if validate_only else {"location": f"/v1/topics/{quote(content.name, safe='')}"}
    return Response(view, status_code=status, headers=location)


@delete("/topics/{name:str}", status_code=200)
async def delete_topic(
    name: FromPath[str], request: HttpRequest, changes: _Changes, validate_only: _DryRun = False
) -> DeletedView:
    """Delete a topic. Its history remains in the log."""
    api = changes.api
    denied, stamps = api.denial_of_delete(caller_of(request), name), changes.stamps(request, is_dry_run=validate_only)
    command = DeleteTopic(topic=TopicName(name), denied=denied, validate_only=validate_only, **stamps)
    known = api.topic(name)
    answer = await changes.answer(command, lambda submitted: api.submit_change([submitted]))
    if answer.code:
        raise refusal_of(answer)
    return deleted(answer, known)


def config_text(value: str | float | bool | None) -> str | None:
    """A config value as text, as Kafka stores it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


class AlterBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of a topic: either `configs` or `num_partitions`."""

    configs: ConfigValues = {}
    """New values by name; null resets a config to its default."""
    num_partitions: Count = -1
    """The new number of partitions, above the current one."""
    assignments: InOrder = ()
    """Only with `num_partitions`: the replicas of each new partition; default: chosen by the controller."""
    timeout_ms: Timeout = CHANGE_TIMEOUT_MS
    """The maximum time to wait until a target cluster has applied the change."""


@patch("/topics/{name:str}", **takes(AlterBody))
async def alter_topic(
    name: FromPath[str],
    request: HttpRequest,
    changes: _Changes,
    content: NamedDependency[AlterBody],
    validate_only: _DryRun = False,
) -> AlteredView:
    """Change the configs of a topic, or add partitions to it."""
    answer = await _alter(changes, request, name, content, validate_only)
    return altered(answer, changes.api.topic(name), validate_only)


async def _alter(changes: Changes, request: HttpRequest, name: str, body: AlterBody, validate_only: bool) -> Answer:
    api = changes.api
    stamps = changes.stamps(request, is_dry_run=validate_only)
    command = _command(api, request, body, topic=TopicName(name), validate_only=validate_only, **stamps)
    answer = await changes.answer(command, lambda submitted: api.submit_change([submitted], body.timeout_ms))
    if answer.code:
        raise refusal_of(answer)
    return answer


def _command(
    controller_api: ControllerApi, request: HttpRequest, body: AlterBody, *, topic: TopicName, **given: Any
) -> AlterTopicConfigs | CreatePartitions:
    if bool(body.configs) == (body.num_partitions >= 0):
        raise invalid("body: give either configs or num_partitions")
    if body.assignments and body.configs:
        raise invalid("assignments: only allowed with num_partitions")
    caller = caller_of(request)
    if body.configs:
        texts = {name: config_text(value) for name, value in body.configs.items()}
        ops = tuple(ConfigOp(name, OpType.DELETE if text is None else OpType.SET, text) for name, text in texts.items())
        return AlterTopicConfigs(
            topic=topic, denied=controller_api.denial(caller, "AlterConfigs", topic), ops=ops, **given
        )
    denied, count = controller_api.denial(caller, "Alter", topic), body.num_partitions
    return CreatePartitions(topic=topic, denied=denied, count=count, assignments=body.assignments or None, **given)


class Creation(CreateBody, frozen=True, forbid_unknown_fields=True, tag="create"):
    """A topic to create, among other changes."""


class Alteration(AlterBody, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="alter"):
    """A change of a topic, among other changes."""

    name: str


class Deletion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="delete"):
    """A topic to delete, among other changes."""

    name: str


class ChangesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of topics, each decided by itself and in this order."""

    changes: Annotated[tuple[Creation | Alteration | Deletion, ...], msgspec.Meta(min_length=1, max_length=CHANGES_MAX)]


@post("/changes", status_code=200, **takes(ChangesBody))
async def change_topics(
    request: HttpRequest, changes: _Changes, content: NamedDependency[ChangesBody], validate_only: _DryRun = False
) -> ChangesView:
    """Create, alter and delete many topics. The status is 200 also if some of the changes are refused."""
    if KEY in request.headers:
        raise invalid(f"{KEY}: not allowed with many changes")
    of_all = content.changes
    sizes = [0 if isinstance(one, Deletion) else max(one.num_partitions, len(one.assignments)) for one in of_all]
    if len(of_all) > 1 and sum(sizes) > PARTITIONS_MAX:
        raise invalid(f"changes: {sum(sizes)} partitions; all changes of a request may have {PARTITIONS_MAX}")
    made = (_made(changes, request, one, validate_only) for one in of_all)
    return ChangesView(tuple(await asyncio.gather(*made)))


async def _made(
    changes: Changes, request: HttpRequest, change: Creation | Alteration | Deletion, validate_only: bool
) -> ChangeView:
    api, name = changes.api, change.name
    try:
        match change:
            case Creation():
                return ChangeView.of((await create_topic.fn(request, changes, change, validate_only)).content)
            case Alteration():
                before = api.topic(name)
                answer = await _alter(changes, request, name, change, validate_only)
                first = 0 if before is None else len(before.partitions)
                new = () if answer.topic is None else answer.topic.partitions[first:]
                view = altered(answer, api.topic(name), validate_only)
                return ChangeView.of(view, partitions=partitions(new, api.cluster.live, first))
            case Deletion():
                return ChangeView.of(await delete_topic.fn(name, request, changes, validate_only))
    except Refused as refusal:
        return ChangeView.of(refusal.error, name=name)


DELAY_MS_MAX = 3_600_000  # an hour: more is a mistake
RACK_CHARACTERS_MAX = 249


_Brokers = NamedDependency[SimulatedBrokers]


class BrokerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A broker to add. The default rack is one of three in turn."""

    rack: Annotated[str, msgspec.Meta(min_length=1, max_length=RACK_CHARACTERS_MAX)] | None = None


class DelayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The delay between an event's durability and its being applied by the broker."""

    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=DELAY_MS_MAX)]


@post("/simulated/brokers", status_code=201, **takes(BrokerBody, required=False))
async def add(brokers: _Brokers, reader: _Reader, content: NamedDependency[BrokerBody]) -> SimulatedBrokerView:
    """Add a broker, with the next free id."""
    reader.require(operation="Alter")
    if len(brokers.by_id) >= SIMULATED_BROKERS_MAX:
        raise invalid(f"{SIMULATED_BROKERS_MAX} simulated brokers are the maximum")
    return view_of(SimulatedBrokerView, brokers.add(content.rack))


@post("/simulated/brokers/{broker_id:int}/stop", status_code=200)
async def stop(broker_id: FromPath[int], brokers: _Brokers, reader: _Reader) -> SimulatedBrokerView:
    """Stop a broker: it is fenced, and its partitions elect other leaders."""
    reader.require(operation="Alter")
    brokers.stop_broker(broker_id)
    return view_of(SimulatedBrokerView, brokers.by_id[BrokerId(broker_id)])


@post("/simulated/brokers/{broker_id:int}/start", status_code=200)
async def start(broker_id: FromPath[int], brokers: _Brokers, reader: _Reader) -> SimulatedBrokerView:
    """Start a broker: it catches up and rejoins the ISRs."""
    reader.require(operation="Alter")
    brokers.start_broker(broker_id)
    return view_of(SimulatedBrokerView, brokers.by_id[BrokerId(broker_id)])


@put("/simulated/brokers/{broker_id:int}/delay", status_code=200, **takes(DelayBody))
async def delay(
    broker_id: FromPath[int], brokers: _Brokers, reader: _Reader, content: NamedDependency[DelayBody]
) -> SimulatedBrokerView:
    """Delay when a broker applies events."""
    reader.require(operation="Alter")
    brokers.set_delay(broker_id, content.delay_ms)
    return view_of(SimulatedBrokerView, brokers.by_id[BrokerId(broker_id)])


OF_SIMULATED_BROKERS = (add, stop, start, delay)
