"""The views of topics in the HTTP API: in lists, in full, with configs, and as responses to changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import msgspec

from controller.machine.configs.topic_configs import labels_of
from controller.machine.decision import Answer
from controller.machine.state import Topic
from events.catalog import Partition, Verdict
from events.names import BrokerId, is_placeholder
from projections.text.names import TopicStatus, error_name, topic_id_text
from projections.views.rows import CreatedBy, TopicRow
from projections.views.view import AsOfView, ErrorView, IssueView, view_of

Live = Collection[BrokerId]
WELL_KNOWN = ("owner", "description", "contact")
"""The labels that pages and texts show first."""


def offline_replicas(partition: Partition, live: Live) -> tuple[BrokerId, ...]:
    """The replicas on brokers that are not live, and placeholders."""
    return tuple(replica for replica in partition.replicas if replica not in live)


class Health(NamedTuple):
    """The status of a topic, its counts of under-replicated and offline partitions, and of placeholders (KIP-409)."""

    status: TopicStatus
    under_replicated_partitions: int
    offline_partitions: int
    placeholders: int


def health(row: TopicRow, live: Live) -> Health:
    """The health of a topic. The status is `pending` until the topic was ready once, then `offline` if a partition has
    no live leader, `under-replicated` if a replica is out of sync, else `ready`."""
    under_replicated = offline = placeholders = 0
    for one in row.partitions:
        offline += one.leader not in live
        if len(one.isr) < len(one.replicas):
            under_replicated += 1
            placeholders += sum(map(is_placeholder, one.replicas))  # which are never in sync
    status: TopicStatus = "pending"
    if row.ready_at_ms is not None:
        status = "offline" if offline else "under-replicated" if under_replicated else "ready"
    return Health(status, under_replicated, offline, placeholders)


class ObservationView(msgspec.Struct, frozen=True):
    """A refusal that a policy reports without enforcing it."""

    rule: str
    message: str


class PolicyView(msgspec.Struct, frozen=True):
    """The verdict of the create-topic policies (KIP-108)."""

    outcome: str
    policy: str
    rule: str
    message: str
    observed: tuple[ObservationView, ...]


class PartitionView(msgspec.Struct, frozen=True):
    """A partition. `leader` is -1 if there is none. A negative replica is a placeholder (KIP-409). `offline` lists the
    replicas on brokers that are not live, and placeholders."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in a list. `configs` are the explicit ones, with labels as `label.NAME`."""

    name: str
    topic_id: str
    status: TopicStatus
    num_partitions: int
    replication_factor: int
    under_replicated_partitions: int
    offline_partitions: int
    placeholders: int
    configs: dict[str, str]
    created_at: str
    created_at_ms: int
    created_offset: int
    created_by: CreatedBy | None
    ready_at: str | None
    ready_at_ms: int | None

    @property
    def labels(self) -> dict[str, str]:
        """The labels by name: well-known ones first, then the others by name."""
        found = labels_of(self.configs.items())
        return {name: found[name] for name in (*(one for one in WELL_KNOWN if one in found), *sorted(found))}


class TopicView(TopicSummary, frozen=True, kw_only=True):
    """A topic with its partitions. `policy` is null if no policy was configured at its creation; `placed_on` lists the
    brokers that were live then. `issues` are its problems with their causes."""

    partitions: tuple[PartitionView, ...]
    policy: PolicyView | None
    placed_on: tuple[int, ...]
    issues: tuple[IssueView, ...]
    as_of: AsOfView


class TopicsView(msgspec.Struct, frozen=True):
    """A page of topics. `next_cursor` is the `cursor` of the next page, null on the last."""

    topics: tuple[TopicSummary, ...]
    as_of: AsOfView
    next_cursor: str | None


class ConfigView(msgspec.Struct, frozen=True, kw_only=True):
    """The effective value of a config. `source` is Kafka's (KIP-226), such as `DYNAMIC_TOPIC_CONFIG`. `default` is
    Kafka's own default; for a sensitive config `value` and `default` are null."""

    name: str
    value: str | None
    source: str
    default: str | None
    sensitive: bool


class TopicConfigsView(msgspec.Struct, frozen=True):
    """All configs of a topic ordered by name, as in DescribeConfigs."""

    configs: tuple[ConfigView, ...]
    as_of: AsOfView


class TopicAnswerView(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a change of a topic: the name and code of Kafka's error (`NONE`, 0), and its message."""

    request_id: str
    error: str
    code: int
    message: str
    name: str


class CreatedView(TopicAnswerView, frozen=True, kw_only=True):
    """A created topic; with `validate_only` the topic that would have been created, without an id.

    `status` is `pending` if the request timed out before the topic was ready; `waited_ms` is the time it waited.
    """

    topic_id: str | None
    validate_only: bool
    status: str
    num_partitions: int
    replication_factor: int
    configs: dict[str, str]
    partitions: tuple[PartitionView, ...]
    waited_ms: int


class AlteredView(TopicAnswerView, frozen=True, kw_only=True):
    """A changed topic, or with `validate_only` the topic as it would be; `configs` are the explicit ones."""

    topic_id: str
    validate_only: bool
    num_partitions: int
    configs: dict[str, str]


class DeletedView(TopicAnswerView, frozen=True, kw_only=True):
    topic_id: str


class ChangeView(TopicAnswerView, frozen=True, kw_only=True):
    """The outcome of one of many changes. A refused change has its `rule`. The other fields are those of CreatedView or
    AlteredView, as far as the change has them; `partitions` are the new ones."""

    request_id: str = ""
    error: str = "NONE"
    code: int = 0
    message: str = ""
    rule: str = ""
    status: str = ""
    num_partitions: int = 0
    configs: dict[str, str] = {}
    partitions: tuple[PartitionView, ...] = ()

    @classmethod
    def of(cls, view: CreatedView | AlteredView | DeletedView | ErrorView, **given: Any) -> ChangeView:
        """The outcome of a change that got this response, with the given fields that the response lacks."""
        return cls(**given, **{field: getattr(view, field) for field in cls.__struct_fields__ if hasattr(view, field)})

    @property
    def is_refused(self) -> bool:
        """True for an error; a topic that was created but is not ready yet is none."""
        return self.code != 0 and self.status != "pending"


class ChangesView(msgspec.Struct, frozen=True):
    """The outcomes of many changes, in the order of the request."""

    results: tuple[ChangeView, ...]


def partitions(of_topic: Iterable[Partition], live: Live, first: int = 0) -> tuple[PartitionView, ...]:
    """Partitions ordered by id, which begin with `first`."""
    return tuple(
        view_of(PartitionView, one, partition=number, offline=offline_replicas(one, live))
        for number, one in enumerate(of_topic, first)
    )


def topic_summary(row: TopicRow, live: Live) -> TopicSummary:
    return view_of(TopicSummary, row, **_of_topic(row, live))


def topic_view(row: TopicRow, live: Live, issues: tuple[IssueView, ...], as_of: AsOfView) -> TopicView:
    parts, policy = partitions(row.partitions, live), policy_view(row.verdict)
    return view_of(TopicView, row, **_of_topic(row, live), partitions=parts, policy=policy, issues=issues, as_of=as_of)


def _of_topic(row: TopicRow, live: Live) -> dict[str, Any]:
    """The fields of a topic's view that differ from its row's, or are derived."""
    return {**_of_state(row), **health(row, live)._asdict(), "replication_factor": row.replication_factor}


def _of_state(topic: Topic) -> dict[str, Any]:
    return {
        "topic_id": topic_id_text(topic.topic_id),
        "num_partitions": len(topic.partitions),
        "configs": dict(topic.configs),
    }


def policy_view(verdict: Verdict | None) -> PolicyView | None:
    """The verdict of the policies; None if none was configured."""
    if verdict is None:
        return None
    observed = tuple(view_of(ObservationView, one) for one in verdict.observed)
    return view_of(PolicyView, verdict, observed=observed)


def created(answer: Answer, live: Live, validate_only: bool) -> CreatedView:
    """The response to a create that succeeded, or would succeed."""
    made = answer.topic
    assert made is not None, "a create that was not refused shows its topic"
    given = {
        **_of_state(made),
        "error": error_name(answer.code),
        "name": made.name,
        "validate_only": validate_only,
        "status": "validated" if validate_only else "pending" if answer.code else "ready",
        "replication_factor": made.replication_factor,
        "partitions": partitions(made.partitions, live),
    }
    return view_of(CreatedView, answer, **{**given, **({"topic_id": None} if validate_only else {})})


def altered(answer: Answer, known: Topic | None, validate_only: bool) -> AlteredView:
    """The response to a change that succeeded, or would succeed. `known` is the current topic: an answer of the target
    cluster comes without it."""
    topic = answer.topic or known
    assert topic is not None, "a change that succeeded found its topic"
    error = error_name(answer.code)
    return view_of(AlteredView, answer, **_of_state(topic), error=error, name=topic.name, validate_only=validate_only)


def deleted(answer: Answer, known: Topic | None) -> DeletedView:
    """The response to a delete that succeeded. `known` is the topic at the time of the request: the target cluster
    answers when the topic is gone."""
    gone = answer.topic or known
    assert gone is not None, "a delete that succeeded found its topic"
    error, topic_id = error_name(answer.code), topic_id_text(gone.topic_id)
    return view_of(DeletedView, answer, error=error, name=answer.topic_name, topic_id=topic_id)


def refusal(answer: Answer) -> ErrorView:
    return view_of(ErrorView, answer, error=error_name(answer.code))
