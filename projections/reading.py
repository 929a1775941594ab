"""What readers see of topics, brokers and settings: of one log, or of all the partitions of an events topic."""

from __future__ import annotations

from typing import Protocol

from controller.machine.state import Cluster, Topic
from events.names import TopicName
from projections.store import Counts


class TopicReader(Protocol):
    """The durable view; `projections.store.TopicStore` says what each part promises."""

    @property
    def durable_counts(self) -> Counts: ...

    @property
    def durable_cluster(self) -> Cluster: ...

    def durable_named(self, name: str) -> Topic | None: ...
    def durable_name_of(self, topic_id: bytes) -> TopicName | None: ...
    def durable_slice(self, after: str | None, limit: int, partitions_max: int | None = None) -> list[Topic]: ...
