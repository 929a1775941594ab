"""Each subscriber of the change feed explicitly handles or ignores each type of event.

A subscriber gets only the types in its `handles`. Add a new type of event there, or to `IGNORED` below.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from controller.brokers.port import EventTypes, publish
from controller.brokers.simulated import SimulatedBrokers
from events import catalog
from events.catalog import EVENT_TYPES, Cause, Event, Recorded
from events.names import BrokerId, Offset, RequestId, TopicId, TopicName

ROOT = Path(__file__).parents[2]

_ANSWERS = "CreateRequested CreateRejected CreateAnswered ChangeRejected RulesObserved RequestsRefused"
_TOPICS = "TopicCreated PartitionsAdded TopicDeleted"
_PARTITIONS = "PartitionChanged MetadataPropagated TopicReady"
_OBSERVED = "TopicDiscovered TopicVanished CreationRefused ChangeCarriedOut"
_CONFIGS = "TopicConfigsChanged ResourceConfigsChanged"
_MEMBERSHIP = "BrokerRegistered BrokerFenced BrokerUnfenced BrokerUnregistered"
_OF_KRAFT = "BrokerLeaving LogDirsChanged QuorumEpochBegun ProducerIdsAllocated FeaturesChanged"
_HISTORY = "MetadataAdopted MetadataHandedBack HistorySkipped HeadSigned SettingsChanged RulesApplied"
_ACCESS = "ScramCredentialSet ScramCredentialRemoved LoginSecretDrawn AclsCreated AclsDeleted QuotasChanged"
_APPROVAL = "ApprovalRequested ApprovalDecided"

IGNORED = {
    "ApprovalExpiry": f"{_ANSWERS} {_TOPICS} {_PARTITIONS} {_OBSERVED} {_CONFIGS} {_MEMBERSHIP} {_OF_KRAFT} {_HISTORY}"
    f" {_ACCESS}",
    "Deadlines": f"CreateRequested CreateRejected ChangeRejected RulesObserved RequestsRefused PartitionsAdded"
    " TopicDeleted"
    f" {_PARTITIONS} {_OBSERVED} {_CONFIGS} {_MEMBERSHIP} {_OF_KRAFT} {_HISTORY} {_APPROVAL} {_ACCESS}",
    "KraftBrokers": f"{_ANSWERS} PartitionsAdded {_PARTITIONS} CreationRefused ChangeCarriedOut {_OF_KRAFT} {_HISTORY}"
    f" {_APPROVAL} {_ACCESS}",
    "Reconciler": f"{_ANSWERS} {_TOPICS} {_PARTITIONS} {_OBSERVED} QuorumEpochBegun ProducerIdsAllocated {_HISTORY}"
    f" {_APPROVAL} {_ACCESS}",
    "Reports": f"{_APPROVAL} CreateRequested TopicCreated {_PARTITIONS} ResourceConfigsChanged"
    f" ProducerIdsAllocated {_HISTORY} LoginSecretDrawn AclsCreated AclsDeleted QuotasChanged",
    "SimulatedBrokers": f"{_ANSWERS} {_TOPICS} MetadataPropagated TopicReady {_OBSERVED} {_CONFIGS}"
    f" {_MEMBERSHIP} {_OF_KRAFT} {_HISTORY} {_APPROVAL} {_ACCESS}",
    "TargetCluster": f"{_ANSWERS} MetadataPropagated TopicReady {_OBSERVED}"
    f" ResourceConfigsChanged {_MEMBERSHIP} {_OF_KRAFT} {_HISTORY} {_APPROVAL} {_ACCESS}",
}


def _subscribers() -> dict[str, Any]:
    """The product's classes with `on_events`, except the ports."""
    found: dict[str, Any] = {}
    for path in sorted((ROOT / "controller").rglob("*.py")):
        text = path.read_text()
        if "def on_events" not in text or path.name == "port.py":
            continue
        module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for node in ast.parse(text).body:
            methods = {each.name for each in getattr(node, "body", ()) if isinstance(each, ast.FunctionDef)}
            if isinstance(node, ast.ClassDef) and "on_events" in methods:
                found[node.name] = getattr(module, node.name)
    return found


SUBSCRIBERS = _subscribers()


def _handled_event_types(subscriber: Any) -> EventTypes:
    found: EventTypes = subscriber.__new__(subscriber).handles
    return found


def test_every_change_feed_subscriber_is_listed() -> None:
    assert SUBSCRIBERS.keys() == IGNORED.keys()


@pytest.mark.parametrize("name", IGNORED)
def test_subscribers_handle_or_ignore_every_event_type(name: str) -> None:
    handled = [each.__name__ for each in _handled_event_types(SUBSCRIBERS[name])]
    assert sorted([*handled, *IGNORED[name].split()]) == sorted(each.__name__ for each in EVENT_TYPES)


def test_subscribers_receive_their_events_and_the_end_of_the_commit() -> None:
    events: tuple[Event, ...] = (
        catalog.TopicVanished(TopicName("t"), TopicId(b""), "gone"),
        catalog.BrokerFenced(BrokerId(1), 1, "stopped"),
        catalog.TopicVanished(TopicName("u"), TopicId(b""), "gone"),
    )
    records = [Recorded(Offset(n), 0, Cause("test", RequestId("r")), event) for n, event in enumerate(events, 7)]
    got: list[tuple[list[Recorded], int]] = []

    class Brokers(SimulatedBrokers):
        handles: EventTypes = frozenset({catalog.BrokerFenced})

        def on_events(self, records: Any, end: Offset) -> None:
            got.append((list(records), end))

    publish(records, Brokers(1))
    assert got == [(records[1:2], 9)]
