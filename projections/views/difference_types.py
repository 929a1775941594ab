"""The JSON of what is different between two moments. `json_types` has the rest, and says what holds of all."""

from __future__ import annotations

import msgspec

from projections.queries.differences import Change
from projections.views.json_types import AsOfView, EventView


class ValueView(msgspec.Struct, frozen=True):
    """A value before and after; null where there is none."""

    name: str
    before: str | None
    after: str | None


class TopicDifferenceView(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that is different. `recreated` is another topic of the same name; null stands where there is no topic.

    Of partitions that are there at both moments, so many have other replicas, leaders, in-sync sets.
    """

    name: str
    change: Change
    partitions_before: int | None
    partitions_after: int | None
    configs: tuple[ValueView, ...]
    other_replicas: int
    other_leaders: int
    other_isr: int


class BrokerDifferenceView(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that is different: how it was and is (`live`, `fenced`, `live, cordoned`; null: not registered), and
    why it is so."""

    broker_id: int
    before: str | None
    after: str | None
    reason: str


class ClusterDifferenceView(msgspec.Struct, frozen=True, kw_only=True):
    """Brokers, settings, features and permissions. `acls_…` are in words; `changes` are the events between the moments
    that changed quotas, users, features and the configs of what is no topic. `more`: there are more than were looked
    at."""

    brokers: tuple[BrokerDifferenceView, ...]
    settings: tuple[ValueView, ...]
    release: ValueView | None
    acls_added: tuple[str, ...]
    acls_removed: tuple[str, ...]
    changes: tuple[EventView, ...]
    more: bool


class DifferenceView(msgspec.Struct, frozen=True):
    """What is different between two moments, a page of topics at a time. `cluster` is on the first page, for who may
    describe the cluster, else null."""

    topics: tuple[TopicDifferenceView, ...]
    cluster: ClusterDifferenceView | None
    next_cursor: str | None
    before: AsOfView
    after: AsOfView
