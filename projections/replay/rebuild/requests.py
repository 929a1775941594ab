"""Folds the events of shards into requests with their outcomes. Runs in Spark's workers.

The events of a request for one topic are all in that topic's shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from events import catalog
from events.codec import decode_event
from events.external_decision import FOLLOW
from events.names import TopicName
from projections.replay.shards import Row, Shard, Stored
from projections.views.requests import RequestTopicView, fold_request_topic

REQUESTS = pa.schema(
    [
        ("log_partition", pa.int32()),
        ("request_id", pa.string()),
        ("topic", pa.string()),
        ("status", pa.string()),
        ("error_code", pa.int32()),
        ("message", pa.string()),
        ("rule", pa.string()),
        ("principal", pa.string()),
        ("client_id", pa.string()),
        ("api", pa.string()),
        ("requested_at_ms", pa.int64()),
        ("requested_offset", pa.int64()),
        ("waited_ms", pa.int64()),
        ("last_offset", pa.int64()),
    ]
)
"""One row for each topic of a request; `projections.views.requests` has the values of `status`."""
_REQUEST_ENDS = catalog.CreateAnswered | catalog.ChangeRejected | catalog.ChangeCarriedOut
_CHANGES = catalog.PartitionsAdded | catalog.TopicDeleted | catalog.TopicConfigsChanged
"""These events end their request unless a target cluster carries out decisions; then ChangeCarriedOut ends it."""


class _Open(msgspec.Struct):
    """A request for a topic that is not answered yet, with its client and time."""

    row: RequestTopicView
    principal: str
    client_id: str | None
    api: str
    at_ms: int
    offset: int


def request_rows(shards: Iterable[Shard]) -> Iterator[Row]:
    """The requests of each shard, as rows of REQUESTS."""
    for log_partition, _, events in shards:
        for row in requests_of_shard(events):
            yield (log_partition, *row)


def requests_of_shard(events: Iterable[Stored]) -> Iterator[Row]:
    """The requests in a shard's events, as rows of REQUESTS without the log partition. Each is returned when it is
    answered, so only open ones are in memory."""
    waiting: dict[tuple[str, TopicName], _Open] = {}
    carried_out = False
    for offset, value in events:
        record = decode_event(offset, value)
        event: Any = record.event
        request_id: str | None = getattr(event, "request_id", None)
        if record.cause.command == FOLLOW and not isinstance(event, catalog.CreateAnswered):
            continue  # decided by another controller, so requested there
        carried_out = carried_out or isinstance(event, catalog.TopicDiscovered)
        if request_id is None:
            continue
        key = (request_id, event.topic)
        known = waiting.get(key)
        if known is None and (isinstance(event, catalog.ChangeCarriedOut) or _is_adopted(event)):
            continue  # answered before the topic was discovered in the cluster; or adopted without a request
        row = fold_request_topic(None if known is None else known.row, record)
        if known is None:
            api = event.api if hasattr(event, "api") else event.request.api
            known = waiting[key] = _Open(row, event.principal, event.client_id, api, record.at_ms, offset)
        known.row = row
        if isinstance(event, _REQUEST_ENDS) or (isinstance(event, _CHANGES) and not carried_out):
            yield _request_row(request_id, waiting.pop(key))
    for (request_id, _topic), open_one in waiting.items():
        yield _request_row(request_id, open_one)


def _is_adopted(event: Any) -> bool:
    """True if a topic already existed when its cluster was adopted."""
    return isinstance(event, catalog.TopicCreated) and event.is_adopted


def _request_row(request_id: str, open_: _Open) -> Row:
    row = open_.row
    return (
        request_id,
        row.topic,
        row.status,
        row.code,
        row.message,
        row.rule,
        open_.principal,
        open_.client_id,
        open_.api,
        open_.at_ms,
        open_.offset,
        row.waited_ms,
        row.offset,
    )
