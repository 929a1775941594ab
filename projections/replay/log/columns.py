"""Converts events to Arrow batches for SQL, exports and archives: a row for each event, the same columns for all types.

A column is null if the event has no such field. So a query needs no knowledge of how events are encoded. `value` has
the canonical bytes of the event.

Method. A field of an event fills the column of its name; FIELDS has these columns and the exceptions. Fields without a
column are in `value`, except secrets. `Columns` fills the columns.

Non-goal: derived values. The one exception is `shard`, the shard key of the topic ("" for events that concern every
topic).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import pyarrow as pa
from msgspec.structs import astuple

from events import access, catalog
from events.catalog import Event, Recorded
from events.codec import configs_without_secrets, value_without_secrets
from events.names import CLUSTER_SHARD, BrokerId, ShardKey, shard_key
from projections.replay.outcome import ReplayError
from projections.text.names import topic_id_text
from projections.text.wording import DEFAULT_ENTITY, acl_text

INTS = pa.list_(pa.int32())
TEXTS = pa.map_(pa.string(), pa.string())
PARTITION = pa.struct(
    [
        ("replicas", INTS),
        ("isr", INTS),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("partition_epoch", pa.int32()),
    ]
)
_ASSIGNMENT = pa.struct([("partition", pa.int32()), ("replicas", INTS)])

COLUMNS: dict[str, pa.DataType] = {
    "log_partition": pa.int32(),
    "offset": pa.int64(),
    "at_ms": pa.int64(),
    "shard": pa.string(),
    "topic": pa.string(),
    "type": pa.string(),
    "cause_command": pa.string(),
    "cause_id": pa.string(),
    "request_id": pa.string(),
    "error_code": pa.int32(),
    "message": pa.string(),
    "rule": pa.string(),
    "waited_ms": pa.int64(),
    "deadline_ms": pa.int64(),
    "timeout_ms": pa.int32(),
    "principal": pa.string(),
    "client_id": pa.string(),
    "api": pa.string(),
    "num_partitions": pa.int32(),
    "replication_factor": pa.int32(),
    "partition": pa.int32(),
    "leader": pa.int32(),
    "isr": INTS,
    "leader_epoch": pa.int32(),
    "partition_epoch": pa.int32(),
    "before": PARTITION,
    "broker_id": pa.int32(),
    "broker_epoch": pa.int64(),
    "brokers": INTS,
    "reason": pa.string(),
    "rack": pa.string(),
    "partitions": pa.list_(PARTITION),
    "first": pa.int64(),
    "configs": TEXTS,
    "settings": TEXTS,
    "topic_id": pa.string(),
    "value": pa.binary(),
    "assignments": pa.list_(_ASSIGNMENT),
    "verdict": pa.string(),
    "denied": pa.int32(),
    "duplicate": pa.bool_(),
    "api_version": pa.int32(),
    "release": pa.string(),
    "acls": pa.list_(pa.string()),
    "entity": TEXTS,
    "quotas": pa.map_(pa.string(), pa.float64()),
    "removed": pa.list_(pa.string()),
    "operation": pa.string(),
    "resource": pa.string(),
    "host": pa.string(),
    "count": pa.int64(),
    "since_ms": pa.int64(),
    "user": pa.string(),
    "mechanism": pa.string(),
    "replicas": INTS,
    "elr": INTS,
    "features": pa.map_(pa.string(), pa.int32()),
    "cordoned": pa.bool_(),
}
"""The columns in order, with their Arrow types.

`brokers` are those that applied a creation, or that placement chose from. `num_partitions` and `replication_factor` are
as requested (-1 for the cluster's default); only TopicCreated has the resolved factor. `assignments` are the requested
ones. `acls` are ACLs as text, `entity` is the entity of quotas. `verdict` is the outcome of the policies (KIP-108).
`topic_id` is base64url. `leader`, `isr`, `replicas`, `elr` (eligible leader replicas, KIP-966; null without KRaft
brokers) and the epochs are those of a partition after a change, `before` is the partition before it.
`features` are feature levels (KIP-584). `cordoned` is true if all log directories of a broker are cordoned (KIP-1066).
"""

_RESOURCES = {4: "Broker", 16: "ClientMetrics", 32: "Group"}
"""Kafka's types of resources with dynamic configs, without topics."""

Getter = Callable[[Any], Any]
_PARTITION_FIELDS = PARTITION.num_fields
"""The number of a partition's fields that have a column; `replica_metadata`, for Kafka brokers only, has none."""


def _partitions(event: Any) -> list[tuple[Any, ...]]:
    return [astuple(one)[:_PARTITION_FIELDS] for one in event.partitions]


def _wanted_count(event: Any) -> int | None:
    wanted = event.request.change
    return wanted.count if isinstance(wanted, catalog.RequestedPartitions) else None


def _wanted_assignments(event: catalog.PartitionsAdded) -> list[tuple[Any, ...]] | None:
    wanted = event.request.change
    if not isinstance(wanted, catalog.RequestedPartitions) or wanted.assignments is None:
        return None
    return [astuple(catalog.Assignment(event.first + n, replicas)) for n, replicas in enumerate(wanted.assignments)]


def _filled(name: str, event: catalog.RulesObserved) -> int | None:
    """The partition count or replication factor (`name`) that a default of the rules set, or None."""
    return next((int(one.value) for one in event.defaults if one.name == name), None)


def _elr(event: catalog.PartitionChanged) -> tuple[BrokerId, ...] | None:
    metadata = event.after.replica_metadata
    return None if metadata is None else metadata.elr


_OF_REQUEST: dict[str, Getter] = {
    name: attrgetter(f"request.{name}") for name in ("api", "api_version", "duplicate", "denied", "host")
}
"""The columns that the field `request` of a change fills."""

_CONVERTED: Mapping[str, Getter] = {
    "topic_id": lambda event: topic_id_text(event.topic_id),
    "partitions": _partitions,
    "assignments": lambda event: [astuple(one) for one in event.assignments] or None,
    "verdict": lambda event: None if event.verdict is None else event.verdict.outcome,
    "acls": lambda event: [acl_text(acl) for acl in event.acls],
    "entity": lambda event: [(kind, DEFAULT_ENTITY if name is None else name) for kind, name in event.entity],
    "features": lambda event: dict(event.features),
}
"""Columns of fields with the same name, whose values are converted."""

_OTHERWISE: Mapping[type, Mapping[str, Getter]] = {
    catalog.TopicCreated: {"brokers": attrgetter("live_brokers")},
    catalog.PartitionsAdded: {
        "brokers": attrgetter("live_brokers"),
        "num_partitions": _wanted_count,
        "assignments": _wanted_assignments,
    },
    catalog.ChangeRejected: {"num_partitions": _wanted_count},
    catalog.RulesObserved: {
        "num_partitions": partial(_filled, "partitions"),
        "replication_factor": partial(_filled, "replication_factor"),
    },
    catalog.PartitionChanged: {
        **{
            name: attrgetter(f"after.{name}")
            for name in ("leader", "isr", "leader_epoch", "partition_epoch", "replicas")
        },
        "elr": _elr,
        "before": lambda event: astuple(event.before)[:_PARTITION_FIELDS],
    },
    catalog.LogDirsChanged: {"cordoned": attrgetter("is_cordoned")},
    catalog.ResourceConfigsChanged: {
        "configs": lambda event: configs_without_secrets(event.configs),
        "resource": lambda event: f"{_RESOURCES.get(event.kind, event.kind)}:{event.name}",
    },
    catalog.ProducerIdsAllocated: {"count": lambda event: event.next_producer_id - event.first},
    access.QuotasChanged: {"quotas": attrgetter("values")},
}
"""Columns by event type whose value is not simply the field of the same name."""

_OTHER_MEANING: Mapping[str, tuple[type, ...]] = {
    "before": (catalog.ResourceConfigsChanged, catalog.SettingsChanged, catalog.TopicConfigsChanged),
    "host": (catalog.QuorumEpochBegun,),
}
"""Fields that are not what the column of their name has, with their types of events."""


def _fields_of(kind: type[catalog.Fact]) -> dict[str, Getter]:
    fields = [one for one in kind.__struct_fields__ if one in COLUMNS and kind not in _OTHER_MEANING.get(one, ())]
    of_request = _OF_REQUEST if "request" in kind.__struct_fields__ else {}
    same = {name: _CONVERTED.get(name, attrgetter(name)) for name in fields}
    return {**same, **of_request, **_OTHERWISE.get(kind, {})}


FIELDS: Mapping[type, Mapping[str, Getter]] = {kind: _fields_of(kind) for kind in catalog.EVENT_TYPES}
"""For each type of event: the columns, each with the function of the event that fills it."""


def column_names(text: str | None) -> tuple[str, ...]:
    """The columns in a comma-separated list, in the order of COLUMNS; all for None or an empty text.

    Raises ReplayError for an unknown column.
    """
    wanted = {name.strip() for name in (text or "").split(",") if name.strip()}
    unknown = sorted(wanted - COLUMNS.keys())
    if unknown:
        raise ReplayError(f"unknown column {', '.join(unknown)}; allowed: {', '.join(COLUMNS)}")
    return tuple(name for name in COLUMNS if name in wanted or not wanted)


def arrow_schema(names: Sequence[str], **more: pa.DataType) -> pa.Schema:
    """The Arrow schema of some columns; `more` has the types of those that are not in COLUMNS."""
    types = {**COLUMNS, **more}
    return pa.schema([(name, types[name]) for name in names])


_Rows = Sequence[tuple[Recorded, bytes]]


class Columns:
    """Collects events, and makes batches of them with some of the columns."""

    def __init__(self, names: Sequence[str], log_partition: int = 0) -> None:
        self._log_partition = log_partition
        self.schema = arrow_schema(names)
        self._getters = {
            kind: [(name, getter) for name, getter in fields.items() if name in names and name not in _ENVELOPE]
            for kind, fields in FIELDS.items()
        }
        self._rows: list[tuple[Recorded, bytes]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, recorded: Recorded, value: bytes) -> None:
        """Add an event, with its canonical bytes."""
        self._rows.append((recorded, value))

    def batch(self) -> pa.RecordBatch:
        """The events added since the last batch."""
        rows, self._rows = self._rows, []
        columns, arrays = self._columns(rows), []
        for field in self.schema:
            if field.name == "log_partition":
                arrays.append(pa.repeat(pa.scalar(self._log_partition, field.type), len(rows)))
                continue
            envelope = _ENVELOPE.get(field.name)
            column = columns.get(field.name) if envelope is None else envelope(rows)
            arrays.append(pa.nulls(len(rows), field.type) if column is None else pa.array(column, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _columns(self, rows: _Rows) -> dict[str, list[Any]]:
        """The values of the events, by column; without the columns of the envelope and those that no event has."""
        columns: dict[str, list[Any]] = {}
        if not any(self._getters.values()):
            return columns
        by_kind: dict[type, list[tuple[int, Any]]] = {kind: [] for kind in self._getters}
        for row, (recorded, _) in enumerate(rows):
            by_kind[type(recorded.event)].append((row, recorded.event))
        for kind, events in by_kind.items():
            for name, getter in self._getters[kind] if events else ():
                column = columns.get(name)
                if column is None:
                    column = columns[name] = [None] * len(rows)
                for row, event in events:
                    column[row] = getter(event)
        return columns


def shard_of(event: Event) -> ShardKey:
    """The shard key of the topic that an event concerns; CLUSTER_SHARD if it concerns every topic."""
    topic: str | None = getattr(event, "topic", None)
    return CLUSTER_SHARD if topic is None else shard_key(topic)


_ENVELOPE: dict[str, Callable[[_Rows], list[Any]]] = {
    "offset": lambda rows: [recorded.offset for recorded, _ in rows],
    "at_ms": lambda rows: [recorded.at_ms for recorded, _ in rows],
    "shard": lambda rows: [shard_of(recorded.event) for recorded, _ in rows],
    "topic": lambda rows: [getattr(recorded.event, "topic", None) for recorded, _ in rows],
    "type": lambda rows: [type(recorded.event).__name__ for recorded, _ in rows],
    "cause_command": lambda rows: [recorded.cause.command for recorded, _ in rows],
    "cause_id": lambda rows: [recorded.cause.request_id for recorded, _ in rows],
    "value": lambda rows: [value_without_secrets(recorded, value) for recorded, value in rows],
}
