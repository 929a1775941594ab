"""Every event of a log led through the life-cycle tables that concern it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from events.catalog import (
    BrokerFenced,
    BrokerLeaving,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    ChangeCarriedOut,
    ChangeRejected,
    CreateAnswered,
    CreateRejected,
    CreateRequested,
    CreationRefused,
    FeaturesChanged,
    HeadSigned,
    HistorySkipped,
    IsrChanged,
    LeaderElected,
    LogDirsChanged,
    PartitionChanged,
    PartitionsAdded,
    PlaceholderFilled,
    ProducerIdsAllocated,
    QuorumEpochBegun,
    Recorded,
    ResourceConfigsChanged,
    SettingsChanged,
    TopicCreated,
    TopicDeleted,
    TopicDiscovered,
    TopicReady,
    TopicVanished,
)
from tests.machine.audit.lifecycle import BROKER, CREATE_REQUEST, PARTITION, TOPIC, Lifecycle, advance

REQUEST_EVENTS = CreateRequested | CreateRejected | TopicCreated | CreateAnswered
ENDS = TopicReady | TopicDeleted | TopicVanished | CreationRefused
BROKER_EVENTS = BrokerRegistered | BrokerFenced | BrokerUnfenced | BrokerUnregistered | BrokerLeaving | LogDirsChanged
NO_LIFE = (
    SettingsChanged
    | ChangeRejected
    | ChangeCarriedOut
    | FeaturesChanged
    | HeadSigned
    | HistorySkipped
    | ProducerIdsAllocated
    | QuorumEpochBegun
    | ResourceConfigsChanged
)


class Lives:
    """The state of every request, topic, partition and broker, by the tables alone."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str], str] = {}
        self.topics: dict[str, str] = {}
        self.partitions: dict[tuple[str, int], str] = {}
        self.brokers: dict[int, str] = {}
        self._waiting: dict[str, tuple[str, str]] = {}

    def see_all(self, records: Iterable[Recorded]) -> Lives:
        """Take in records; raises OutOfLifecycle for an event that a table does not have."""
        for record in records:
            self.see(record.event)
        return self

    def see(self, event: Any) -> None:
        """Take in one event."""
        if isinstance(event, NO_LIFE) or type(event).__module__ == "events.access":
            return
        if isinstance(event, BROKER_EVENTS):
            _move(BROKER, self.brokers, event.broker_id, event)
            return
        self._see_request(event)
        if not isinstance(event, CreateRequested | CreateRejected | CreateAnswered):
            self._see_partitions(event)
            _move(TOPIC, self.topics, event.topic, event)

    def _see_request(self, event: Any) -> None:
        if isinstance(event, REQUEST_EVENTS):
            key = (event.request_id, event.topic)
            _move(CREATE_REQUEST, self.requests, key, event)
            if isinstance(event, TopicCreated):
                self._waiting[event.topic] = key
            elif isinstance(event, CreateAnswered) and self._waiting.get(event.topic) == key:
                del self._waiting[event.topic]
        elif isinstance(event, ENDS) and event.topic in self._waiting:
            _move(CREATE_REQUEST, self.requests, self._waiting[event.topic], event)

    def _see_partitions(self, event: Any) -> None:
        if isinstance(event, TopicCreated | PartitionsAdded):
            first = event.first if isinstance(event, PartitionsAdded) else 0
            indices = list(range(first, first + len(event.partitions)))
        elif isinstance(event, LeaderElected | IsrChanged | PartitionChanged | PlaceholderFilled):
            indices = [event.partition]
        elif isinstance(event, TopicDiscovered):
            self._see_anew(event)
            return
        elif isinstance(event, TopicDeleted | TopicVanished | CreationRefused):
            indices = [index for topic, index in self.partitions if topic == event.topic]
        else:
            return
        for index in indices:
            _move(PARTITION, self.partitions, (event.topic, index), event)

    def _see_anew(self, event: TopicDiscovered) -> None:
        """All partitions are as the cluster has them; the table of partitions does not speak of that."""
        for key in [key for key in self.partitions if key[0] == event.topic]:
            del self.partitions[key]
        for index, partition in enumerate(event.partitions):
            self.partitions[event.topic, index] = "led" if partition.leader >= 0 else "leaderless"


def _move(lifecycle: Lifecycle, states: dict[Any, str], key: Any, event: Any) -> None:
    after = advance(lifecycle, states.get(key, lifecycle.start), event)
    if after == lifecycle.start:
        states.pop(key, None)
    else:
        states[key] = after
