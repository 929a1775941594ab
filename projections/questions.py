"""What can be asked of an event log, be it one log or the partitions of an events topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from controller.machine.state import Topic
from events.names import BrokerId
from projections.brokers import ClusterRow
from projections.query import AsOf, Query, TopicPage
from projections.requests import RequestRow
from projections.topics import TopicRow


@runtime_checkable
class Questions(Protocol):
    """`projections.query.Query` says what each part promises.

    An `end` is a moment of this very log, which nobody else looks into. `parts` are the logs behind it, each with
    offsets of its own: one, or one for each partition.
    """

    @property
    def parts(self) -> tuple[Query, ...]: ...

    def of_topic(self, name: str) -> Query:
        """The part in which all events of a name are."""
        ...

    def end(self, at: str | None = None) -> Any: ...
    def as_of(self, end: Any) -> AsOf: ...
    def newest(self, after: str | None, limit: int) -> list[Topic]: ...
    def rows(self, topics: Iterable[Topic]) -> tuple[TopicRow, ...]: ...
    def topics_at(self, end: Any, after: str | None, limit: int) -> TopicPage: ...
    def cluster_at(self, end: Any) -> ClusterRow: ...
    def live_at(self, end: Any) -> frozenset[BrokerId]: ...
    def request(self, request_id: str) -> RequestRow: ...
    def close(self) -> None: ...
