"""The report of risky topics: what would lose records or stop producers, or belongs to nobody."""

from collections import Counter
from collections.abc import Sequence
from heapq import nsmallest
from typing import Any, Final

import msgspec

from controller.machine.configs.topic_configs import has_label, labels_of, min_insync_replicas, topic_config
from controller.machine.rules.judging import rules_of
from controller.machine.rules.rule import ALL, Exemption
from controller.machine.state import Cluster, Topic
from controller.store.store import TopicStore
from projections.views.view import AsOfView

RISKS: Final = {
    "no-owner": "it has no label owner",
    "one-replica": "one failed disk loses the records of a partition",
    "no-spare-replica": "the loss of any broker stops producers with acks=all",
    "unlimited-retention": "it deletes no records, and has no exception",
    "no-preferred-leader": "no partition is led by its preferred leader",
}
"""Each risk and its meaning."""
_RETENTION: Final = ("retention.ms", "retention.bytes", "cleanup.policy")


class RiskyTopicView(msgspec.Struct, frozen=True):
    """A topic with risks. `owner` is its label, `created_by` the principal; each is empty if it is unknown."""

    name: str
    risks: tuple[str, ...]
    owner: str
    created_by: str


class RisksView(msgspec.Struct, frozen=True):
    """The number of topics with each risk, and the topics with the most of them; `more` are not listed. If not
    `is_complete`, only `topics_read` topics are counted so far."""

    counts: dict[str, int]
    topics: tuple[RiskyTopicView, ...]
    more: int
    as_of: AsOfView
    topics_read: int
    is_complete: bool = True


class Risks:
    """Collects the risks of the topics with a label in slices; lists at most `limit` topics."""

    def __init__(self, cluster: Cluster, now_ms: int, limit: int, label: str | None = None) -> None:
        self._settings, self._limit, self._label = cluster.settings, limit, label
        self._risky = self._topics_read = 0
        self._excepted, self._counts = _exceptions(cluster, now_ms), Counter[str]()
        self._found: list[RiskyTopicView] = []

    slices = staticmethod(TopicStore.durable_topics)

    def add(self, topics: Sequence[Topic]) -> None:
        self._topics_read += len(topics)
        for topic in topics:
            if (self._label is None or has_label(topic.configs, self._label)) and (risks := self._of(topic)):
                self._counts.update(risks)
                self._risky += 1
                owner = labels_of(topic.configs).get("owner", "")
                self._found.append(RiskyTopicView(topic.name, risks, owner, topic.principal))
        self._found = nsmallest(self._limit, self._found, key=lambda one: (-len(one.risks), one.name))

    def view(self, as_of: AsOfView, *, is_complete: bool = True) -> RisksView:
        counts, more = {name: self._counts[name] for name in RISKS}, self._risky - len(self._found)
        return RisksView(counts, tuple(self._found), more, as_of, self._topics_read, is_complete)

    def _of(self, topic: Topic) -> tuple[str, ...]:
        configs, defaults = topic.configs, self._settings.effective_defaults
        factor = min(len(partition.replicas) for partition in topic.partitions)
        values: list[Any] = [topic_config(name, configs, defaults) for name in _RETENTION]
        endless = values[:2] == [-1, -1] and "delete" in (values[2] or ())
        found = (
            "owner" not in labels_of(configs),
            factor == 1,
            factor > 1 and min_insync_replicas(configs, self._settings) >= factor,
            endless and not any(topic.name in one.topics for one in self._excepted),
            all(one.leader != one.replicas[0] for one in topic.partitions),
        )
        return tuple(name for name, is_true in zip(RISKS, found, strict=True) if is_true)


def _exceptions(cluster: Cluster, now_ms: int) -> list[Exemption]:
    """The exceptions that rules about retention have for topics now."""
    rules = rules_of(cluster).rules
    found = (one for rule in rules if any(each.name in _RETENTION for each in rule.configs) for one in rule.exceptions)
    return [one for one in found if one.topics is not ALL and now_ms < one.until_ms]
