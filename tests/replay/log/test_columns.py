"""Columns of events: every field of the catalog has a column with its value."""

from typing import Any

import pytest

from events import access, catalog
from events.access import LoginSecretDrawn, ScramCredentialSet
from events.codec import decode_event, encode_event
from projections.replay.log.columns import COLUMNS, FIELDS, Columns, arrow_schema, column_names
from projections.replay.log.log_ref import LogRef
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import ReplayError
from tests.events import golden

NAMED_OTHERWISE = {
    "after": {"leader", "isr", "leader_epoch", "partition_epoch", "replicas", "elr"},
    "live_brokers": {"brokers"},
    "request": {"api", "api_version", "duplicate", "denied"},
    "values": {"quotas"},
    "kind": {"resource"},
    "name": {"resource"},
    "next_producer_id": {"count"},
}
"""Fields whose columns have other names."""
LEFT_OUT: dict[type, tuple[str, ...]] = {
    catalog.BrokerRegistered: ("incarnation", "endpoints", "details"),
    access.ScramCredentialSet: ("iterations", "salt", "stored_key", "server_key"),
    access.LoginSecretDrawn: ("secret",),
    catalog.CreateRequested: ("elsewhere",),
    catalog.TopicCreated: ("cordoned_brokers",),
    catalog.PartitionsAdded: ("cordoned_brokers",),
    catalog.LogDirsChanged: ("log_dirs",),
    catalog.QuorumEpochBegun: ("node_id", "kraft_version", "host", "port", "directory_id", "priority"),
    catalog.MetadataAdopted: ("source", "end_offset"),
    catalog.MetadataHandedBack: ("folder", "end_offset"),
    catalog.HeadSigned: ("size", "root", "signed_at_ms", "public_key", "signature"),
    catalog.HistorySkipped: ("start_offset", "end_offset"),
    catalog.ResourceConfigsChanged: ("before",),
    catalog.TopicConfigsChanged: ("before",),
    catalog.SettingsChanged: ("before",),
    catalog.RulesApplied: ("number", "text", "sha256", "is_file"),
    catalog.ApprovalRequested: ("name", "rules", "expires_at_ms"),
    catalog.ApprovalDecided: ("name", "outcome"),
    catalog.RulesObserved: ("change", "warned", "observed", "defaults"),
}
"""Fields without a column, on purpose."""
ENVELOPE = ("log_partition", "offset", "at_ms", "shard", "type", "cause_command", "cause_id")
CAUSE = catalog.Cause("CreateTopic", "r1")  # type: ignore[arg-type]


def recorded(event: Any) -> catalog.Recorded:
    """An event as recorded in a log."""
    return catalog.Recorded(7, 5, CAUSE, event)  # type: ignore[arg-type]


def columns_of(record: catalog.Recorded) -> dict[str, Any]:
    """The non-null columns of an event."""
    columns = Columns(tuple(COLUMNS))
    columns.add(record, encode_event(record.at_ms, record.cause, record.event))
    (row,) = columns.batch().to_pylist(maps_as_pydicts="strict")
    return {name: value for name, value in row.items() if value is not None}


def requested(**fields: Any) -> catalog.CreateRequested:
    given: dict[str, Any] = {
        "request_id": "r1",
        "topic": "a.b",
        "topic_id": bytes(15) + b"\x01",
        "num_partitions": -1,
        "replication_factor": 3,
        "assignments": (),
        "configs": (("a", "1"), ("b", None)),
        "timeout_ms": 9,
        "deadline_ms": 14,
        "principal": "User:ann",
        "client_id": None,
        "api": "Metadata",
        "api_version": 4,
    }
    return catalog.CreateRequested(**(given | fields))


@pytest.mark.parametrize("kind", catalog.EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_every_event_field_has_a_column_or_is_left_out_on_purpose(kind: type[Any]) -> None:
    columns = FIELDS[kind].keys()
    assert columns <= COLUMNS.keys()
    for field in kind.__struct_fields__:
        placed = NAMED_OTHERWISE.get(field, {field}) <= columns
        assert placed != (field in LEFT_OUT.get(kind, ())), f"{kind.__name__}.{field} is in no column, or is in both"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            catalog.PartitionChanged(
                "a",  # type: ignore[arg-type]
                2,
                catalog.Partition((1, 3), (1, 3), 1, 3, 4),  # type: ignore[arg-type]
                catalog.Partition((1, 3), (3,), 3, 4, 5, catalog.ReplicaMetadata(elr=(1,))),  # type: ignore[arg-type]
                "gone",
            ),
            {
                "partition": 2,
                "leader": 3,
                "isr": [3],
                "leader_epoch": 4,
                "partition_epoch": 5,
                "replicas": [1, 3],
                "elr": [1],
                "before": {"replicas": [1, 3], "isr": [1, 3], "leader": 1, "leader_epoch": 3, "partition_epoch": 4},
                "reason": "gone",
            },
        ),
        (
            catalog.CreateRejected("r", "a", 44, "no", "policy:x", catalog.Verdict("refused")),  # type: ignore[arg-type]
            {"error_code": 44, "message": "no", "rule": "policy:x", "verdict": "refused"},
        ),
        (
            catalog.PartitionsAdded(
                "r",  # type: ignore[arg-type]
                "a",  # type: ignore[arg-type]
                3,
                (catalog.Partition((1, 2), (1,), 1, 0, 6),),  # type: ignore[arg-type]
                "User:bob",
                "cli",
                (1, 2),  # type: ignore[arg-type]
                catalog.RequestedChange("CreatePartitions", 3, catalog.RequestedPartitions(4, ((1, 2),))),  # type: ignore[arg-type]
            ),
            {
                "first": 3,
                "partitions": [{"replicas": [1, 2], "isr": [1], "leader": 1, "leader_epoch": 0, "partition_epoch": 6}],
                "brokers": [1, 2],
                "num_partitions": 4,
                "assignments": [{"partition": 3, "replicas": [1, 2]}],
                "api": "CreatePartitions",
                "api_version": 3,
                "client_id": "cli",
            },
        ),
        (
            requested(assignments=(catalog.Assignment(0, (2, 1)),), duplicate=True, denied=29),  # type: ignore[arg-type]
            {
                "shard": "a_b",
                "cause_command": "CreateTopic",
                "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
                "assignments": [{"partition": 0, "replicas": [2, 1]}],
                "configs": {"a": "1", "b": None},
                "duplicate": True,
                "denied": 29,
            },
        ),
        (catalog.BrokerRegistered(1, 9, "i", None, ()), {"broker_id": 1, "broker_epoch": 9, "shard": ""}),  # type: ignore[arg-type]
        (
            catalog.SettingsChanged((("num.partitions", "4"),), "2.0"),
            {"settings": {"num.partitions": "4"}, "release": "2.0"},
        ),
    ],
    ids=lambda given: type(given).__name__,
)
def test_columns_have_the_values_of_the_event(event: catalog.Event, expected: dict[str, Any]) -> None:
    found = columns_of(recorded(event))
    assert {name: found.get(name) for name in expected} == expected


def test_a_column_batch_equals_the_decoded_events(history: LogRef) -> None:
    with frozen_log(history.path) as log:
        events = [(decode_event(offset, value), value) for offset, value in log.read()]
    events += [(one, encode_event(one.at_ms, one.cause, one.event)) for one in golden.history("real")]
    columns = Columns(tuple(COLUMNS))
    for event, value in events:
        columns.add(event, value)
    rows = columns.batch().to_pylist()
    assert len(rows) == len(events)
    for row, (event, value) in zip(rows, events, strict=True):
        is_secret = isinstance(event.event, ScramCredentialSet | LoginSecretDrawn)
        assert (row.pop("value") == value) is not is_secret, "the original bytes, except secrets"
        getters = FIELDS[type(event.event)]
        names = {name for name, getter in getters.items() if getter(event.event) is not None}
        assert {name for name, cell in row.items() if cell is not None} == {*names, *ENVELOPE}
        assert row["offset"] == event.offset
        assert row["isr"] == (list(getters["isr"](event.event)) if "isr" in names else None)
    seen = {name for row in rows for name, cell in row.items() if cell is not None}
    assert seen == COLUMNS.keys() - {"value"}, "the history has a value in every column"
    assert len(columns.batch()) == len(columns) == 0


def test_a_batch_has_the_requested_columns_in_their_order() -> None:
    value = encode_event(5, CAUSE, requested())
    columns = Columns(("offset", "configs", "value"))
    columns.add(recorded(requested()), value)
    batch = columns.batch()
    assert batch.schema == arrow_schema(("offset", "configs", "value"))
    assert batch.to_pylist() == [{"offset": 7, "configs": [("a", "1"), ("b", None)], "value": value}]


def test_column_names_are_accepted_in_any_order() -> None:
    assert column_names("value, offset,type") == ("offset", "type", "value")
    assert column_names(None) == column_names(" ") == tuple(COLUMNS)
    with pytest.raises(ReplayError, match="unknown column nonsense, sense; allowed: log_partition, offset"):
        column_names("sense,offset,nonsense")
