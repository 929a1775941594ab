"""A topic as a row: the topic that the machine's `apply` folds from its events, and fields that only the events of its
creation have. Nothing in a row depends on the state of brokers.
"""

import msgspec
from msgspec.structs import replace

from controller.machine.apply import CannotApply, apply_topic
from controller.machine.state import Topic
from events import catalog
from events.catalog import Recorded, Verdict
from events.external_decision import external_decision
from events.names import BrokerId, Offset, RequestId


class CreatedBy(msgspec.Struct, frozen=True, gc=False):
    """The request that created a topic. `api` is `CreateTopics`, `Metadata` (an auto-creation) or `HTTP`."""

    request_id: RequestId
    principal: str
    client_id: str | None
    api: str
    api_version: int


class TopicRow(Topic, frozen=True, array_like=True, gc=False):
    """A topic at one offset, without `propagated` and `pending_create`.

    `created_by` is None only if the log does not hold the request. `verdict` is None if no policy was configured.
    `placed_on` lists the brokers that were live at the creation.
    """

    created_by: CreatedBy | None = None
    verdict: Verdict | None = None
    placed_on: tuple[BrokerId, ...] = ()


class TopicPast(msgspec.Struct, frozen=True, gc=False):
    """The result of all events of one topic name: the current topic, if any, and the last deletion."""

    row: TopicRow | None = None
    deletion: Recorded | None = None
    request: CreatedBy | None = None
    """The newest create request for the name; its TopicCreated, if any, is the next event."""


NO_PAST = TopicPast()

THE_CLUSTER = "the cluster"
"""The principal of a deletion that was observed at the target cluster."""

_WITHOUT_EFFECT = (
    catalog.CreateRejected,
    catalog.CreateAnswered,
    catalog.ChangeRejected,
    catalog.ChangeCarriedOut,
    catalog.MetadataPropagated,
)
"""Events of a topic that change no row."""


def fold_topic(past: TopicPast, record: Recorded) -> TopicPast:
    """The past of a name after one more of its events. Raises CannotApply."""
    event = record.event
    if isinstance(event, catalog.CreateRequested):
        return replace(past, request=created_by(event))
    if isinstance(event, _WITHOUT_EFFECT):
        return past
    topic = apply_topic(past.row, record)
    if topic is None:
        return replace(past, row=None, deletion=record)
    if isinstance(topic, TopicRow):
        return replace(past, row=topic)
    return replace(past, row=row_of(topic, creation_of(record, past.request)))


class Creation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The fields of a row that come from the events of its creation."""

    created_offset: Offset
    created_by: CreatedBy | None
    verdict: Verdict | None
    placed_on: tuple[BrokerId, ...]


def row_of(topic: Topic, creation: Creation) -> TopicRow:
    created = topic.created_at_ms, topic.created_offset, topic.ready_at_ms
    own = topic.name, topic.topic_id, topic.partitions, topic.configs, *created
    by, verdict, placed_on = creation.created_by, creation.verdict, creation.placed_on
    return TopicRow(*own, created_by=by, verdict=verdict, placed_on=placed_on)


def creation_of(created: Recorded, newest: CreatedBy | None) -> Creation:
    """The creation in an event. `newest` is the newest request for its name, perhaps that of an older topic. Raises
    CannotApply."""
    match created.event:
        case catalog.TopicCreated() as event:
            is_its_own = newest is not None and newest.request_id == event.request_id
            return Creation(created.offset, newest if is_its_own else None, event.verdict, event.live_brokers)
        case catalog.TopicDiscovered():
            return Creation(created.offset, None, None, ())
        case _:
            raise CannotApply(created, "it creates no topic")


def created_by(request: catalog.CreateRequested) -> CreatedBy:
    return CreatedBy(request.request_id, request.principal, request.client_id, request.api, request.api_version)


def deleted_by(record: Recorded) -> str:
    """The principal of a deletion."""
    if isinstance(record.event, catalog.TopicDeleted):
        return record.event.principal
    decided = external_decision(record.cause)
    return THE_CLUSTER if decided is None else decided.leader
