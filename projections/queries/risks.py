"""The report of risky topics: what would lose records or stop producers, or belongs to nobody.

One pass over the present topics, in slices. It has the topics with the most risks, and the number of topics with each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import nsmallest
from typing import Final

import msgspec

from controller.machine.configs.topic_configs import labels_of, min_insync_replicas, topic_config
from controller.machine.rules.reading import read_rules
from controller.machine.rules.rule import ALL, Exemption, RulesError
from controller.machine.state import Cluster, Topic
from projections.views.view import AsOfView

RISKS: Final = {
    "no-owner": "it has no label owner",
    "one-replica": "a partition has one replica: its records are lost with a disk",
    "no-spare-replica": "min.insync.replicas equals the replication factor: without any one broker, producers with "
    "acks=all stop",
    "unlimited-retention": "it deletes no records, and no rule has an exception for it",
    "no-preferred-leader": "no partition is led by its preferred leader",
}
"""Each risk and its meaning."""
_RETENTION: Final = ("retention.ms", "retention.bytes")


class RiskyTopicView(msgspec.Struct, frozen=True):
    """A topic with risks. `created_by` is empty if the principal is unknown, `owner` without such a label."""

    name: str
    risks: tuple[str, ...]
    owner: str
    created_by: str


class RisksView(msgspec.Struct, frozen=True):
    """The number of topics with each risk, and the topics with the most of them; `more` are not listed."""

    counts: dict[str, int]
    topics: tuple[RiskyTopicView, ...]
    more: int
    as_of: AsOfView


class Risks:
    """Collects the risks of topics, of which it lists at most `limit`."""

    def __init__(self, cluster: Cluster, now_ms: int, limit: int) -> None:
        self._settings, self._limit, self._risky = cluster.settings, limit, 0
        self._excepted, self._counts = _exceptions(cluster, now_ms), Counter[str]()
        self._found: list[RiskyTopicView] = []

    def add(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            if risks := self._of(topic):
                self._counts.update(risks)
                self._risky += 1
                owner = labels_of(topic.configs).get("owner", "")
                self._found.append(RiskyTopicView(topic.name, risks, owner, topic.principal))
        self._found = nsmallest(self._limit, self._found, key=lambda one: (-len(one.risks), one.name))

    def view(self, as_of: AsOfView) -> RisksView:
        counts = {name: self._counts[name] for name in RISKS}
        return RisksView(counts, tuple(self._found), self._risky - len(self._found), as_of)

    def _of(self, topic: Topic) -> tuple[str, ...]:
        configs, defaults = topic.configs, self._settings.effective_defaults
        factor = min(len(partition.replicas) for partition in topic.partitions)
        policy, *limits = (topic_config(name, configs, defaults) for name in ("cleanup.policy", *_RETENTION))
        deletes = isinstance(policy, tuple) and "delete" in policy
        found = {
            "no-owner": "owner" not in labels_of(configs),
            "one-replica": factor == 1,
            "no-spare-replica": factor > 1 and min_insync_replicas(configs, self._settings) >= factor,
            "unlimited-retention": deletes
            and limits == [-1, -1]
            and not any(topic.name in one.topics for one in self._excepted),
            "no-preferred-leader": all(one.leader != one.replicas[0] for one in topic.partitions),
        }
        return tuple(name for name, is_true in found.items() if is_true)


def _exceptions(cluster: Cluster, now_ms: int) -> list[Exemption]:
    """The exceptions that rules about retention have for topics now; none if a newer release wrote the rules."""
    try:
        rules = read_rules(cluster.rules.text).rules if cluster.rules is not None and cluster.rules.text else ()
    except RulesError:
        return []
    of_retention = (rule for rule in rules if any(one.name in _RETENTION for one in rule.configs))
    return [one for rule in of_retention for one in rule.exceptions if one.topics is not ALL and now_ms < one.until_ms]
