"""Answers what-if questions about the present state: which topics would go offline, or could not be created.

Method. Commands are decided and applied by the machine on a copy of the state, as if they were submitted: the change
itself, then `ReconcileTopics` for the topics that it may concern. A cluster that another controller leads is treated
as if this machine led it, because both follow the same rules.

Non-goals: nothing is written, and the rules for changes of topics and policies are not applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from controller.machine.apply import apply
from controller.machine.commands import Command, commands
from controller.machine.configs.topic_configs import MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from controller.machine.decide import decide
from controller.machine.decision import Decision
from controller.machine.state import BROKERS, Broker, Cluster, DictTopics, State, Topic
from controller.store.store import parts_of
from controller.store.topic_indexes import Moves, Situations, Tallies, Unhealthy, add_move, situations
from events.catalog import BrokerDetails, Cause, ConfigOp, Recorded, Verdict
from events.names import BrokerId, Offset, RequestId, TopicId, TopicName, shard_key
from projections.queries.health import SEVERITY_ORDER, broker_issues, kind_of, partition_issues
from projections.text.names import error_name
from projections.text.wording import event_text, many
from projections.views.brokers import ClusterRow, fold_cluster
from projections.views.issues import IssueKind
from projections.views.overviews import RefusedCreateView, TopicsWhatIfView, WhatIfView
from projections.views.view import AsOfView

STEPS_MAX, TOPICS_NAMED_MAX, FACTORS_MAX = 10, 100, 10
FACTOR, PLACEHOLDERS = "default.replication.factor", "enable.under.replicated.topic.creation"
SETTINGS = (MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION, FACTOR, PLACEHOLDERS)
ALLOWED = f"lose-broker ID, lose-rack RACK, drain ID, add-broker, and NAME=VALUE of {', '.join(SETTINGS)}"
_REASON = "what if"
_REQUEST = RequestId("what-if")


class InvalidChange(ValueError):
    """The change of a what-if question is invalid; the message says what is allowed."""


class WhatIf:
    """A change of the present cluster, such as `lose-broker 3 min.insync.replicas=2`, and the topics that it concerns.
    Raises InvalidChange."""

    def __init__(self, change: str, cluster: Cluster, row: ClusterRow, tallies: Tallies, now_ms: int) -> None:
        settings = replace(cluster.settings, has_target_cluster=False)
        self._before = replace(cluster, settings=settings, rules=None)
        self._state = State(DictTopics(), self._before)
        self._row, self._tallies, self._now_ms = row, tallies, now_ms
        self._situation_moves: Moves = {}
        self._texts: list[str] = []
        self._factors = {settings.default_replication_factor}
        self._moves: dict[tuple[IssueKind | None, IssueKind | None], tuple[int, int, tuple[str, ...]]] = {}
        """By the worst problem before and after: the numbers of topics and partitions, and the first names."""
        self._unhealthy: list[Unhealthy] = []
        self.lost: set[BrokerId] = set()
        """The brokers whose topics the change concerns, besides the unhealthy topics."""
        words = change.split()
        if not words:
            raise InvalidChange(f"nothing to change; allowed: {ALLOWED}")
        steps = 0
        while words:
            steps += 1
            if steps > STEPS_MAX:
                raise InvalidChange(f"more than {STEPS_MAX} changes")
            step = words[0]
            for command in self._commands(words):
                self._decide(command, step)

    def _commands(self, words: list[str]) -> Iterator[Command]:
        """The commands of the next step; removes its words."""
        verb = words.pop(0)
        stamp: dict[str, Any] = {"request_id": _REQUEST, "at_ms": self._now_ms}
        name, equals, value = verb.partition("=")
        brokers = self._state.cluster.brokers
        match verb:
            case "lose-broker" | "drain":
                broker_id = _broker(verb, words, brokers)
                self.lost.add(broker_id)
                if verb == "drain":
                    yield commands.BeginShutdown(**stamp, broker_id=broker_id)
                else:
                    yield commands.FenceBroker(**stamp, broker_id=broker_id, reason=_REASON)
            case "lose-rack":
                rack = words.pop(0) if words else ""
                lost = [one for one, broker in brokers.items() if broker.rack == rack]
                if not lost:
                    racks = ", ".join(sorted({broker.rack for broker in brokers.values() if broker.rack}))
                    raise InvalidChange(f"lose-rack: no broker is in rack {rack!r}; racks: {racks or 'none'}")
                self.lost.update(lost)
                yield from (commands.FenceBroker(**stamp, broker_id=one, reason=_REASON) for one in lost)
            case "add-broker":
                yield from self._new_broker(stamp)
            case _ if equals and name in (FACTOR, PLACEHOLDERS):
                pairs = tuple(sorted({**dict(self._state.cluster.settings_pairs), name: value}.items()))
                yield commands.ChangeSettings(**stamp, settings=pairs, release=self._state.cluster.release)
            case _ if equals and name in SETTINGS:
                ops = (ConfigOp(name, 0, value),)
                allowed = Verdict("allowed")
                yield commands.AlterResourceConfigs(
                    **stamp, topic=TopicName(""), kind=BROKERS, name="", ops=ops, verdict=allowed
                )
            case _:
                raise InvalidChange(f"{verb!r} is no change; allowed: {ALLOWED}")

    def _new_broker(self, stamp: dict[str, Any]) -> Iterator[Command]:
        brokers = self._state.cluster.brokers
        like: Broker | None = next(iter(brokers.values()), None)
        broker_id = BrokerId(max(brokers, default=0) + 1)
        details = None
        if like is not None and self._state.cluster.has_kraft_brokers:
            details = BrokerDetails(like.security_protocols, like.features, ())
        given = {**stamp, "broker_id": broker_id}
        endpoints = () if like is None else like.endpoints
        yield commands.RegisterBroker(**given, incarnation=_REASON, rack=None, endpoints=endpoints, details=details)
        yield commands.UnfenceBroker(**given, reason=_REASON)

    def _decide(self, command: Command, step: str) -> None:
        try:
            decision = decide(self._state, command)
        except ValueError as error:  # of a setting
            raise InvalidChange(f"{step}: {str(error).partition(' - at')[0]}") from None
        for answer in decision.answers:
            if answer.code:
                raise InvalidChange(answer.message or error_name(answer.code))
        for record in self._apply(command, decision):
            self._row = fold_cluster(self._row, record)
            self._texts.append(step if "=" in step else event_text(record.event))

    def _apply(self, command: Command, decision: Decision) -> list[Recorded]:
        cause = Cause(type(command).__name__, _REQUEST)
        records = [Recorded(Offset(0), self._now_ms, cause, event) for event in decision.events]
        for record in records:
            apply(self._state, record)
        if records and self._state.cluster.settings.has_target_cluster:  # as in the recorded settings
            settings = replace(self._state.cluster.settings, has_target_cluster=False)
            self._state.cluster = replace(self._state.cluster, settings=settings)
        return records

    def add(self, topics: Sequence[Topic]) -> None:
        """Reconcile the topics of a slice."""
        for topic in topics:
            key = shard_key(topic.name)
            self._state.topics.put(key, topic)
            if topic.ready_at_ms is None:
                self._state.waiting[key] = topic.created_offset
            if len(self._factors) < FACTORS_MAX:
                self._factors.add(topic.replication_factor)
        for part in parts_of([topics]):
            given: dict[str, Any] = {
                "topics": tuple(topic.name for topic in part.topics),
                "partitions": part.partitions,
            }
            command = commands.ReconcileTopics(request_id=_REQUEST, at_ms=self._now_ms, **given)
            self._apply(command, decide(self._state, command))
        for topic in topics:
            key = shard_key(topic.name)
            after = self._state.topics.get(key)
            self._state.topics.put(key, None)
            if after is not None:
                self._count(topic, after)
        self._state.waiting.clear()

    def _count(self, topic: Topic, after: Topic) -> None:
        was, now = situations(topic), situations(after)
        add_move(self._situation_moves, was, now)
        if now and len(self._unhealthy) < TOPICS_NAMED_MAX:
            self._unhealthy.append(Unhealthy(topic.name, now))
        before_kind, _ = _worst(was, self._before)
        kind, count = _worst(now, self._state.cluster)
        if kind != before_kind:
            topics, partitions, named = self._moves.get((before_kind, kind), (0, 0, ()))
            named = (*named, topic.name) if topics < TOPICS_NAMED_MAX else named
            self._moves[before_kind, kind] = topics + 1, partitions + count, named

    def view(self, as_of: AsOfView) -> WhatIfView:
        """The answer, once all slices were added."""
        cluster, brokers = self._state.cluster, self._row.brokers
        issues = partition_issues(
            self._tallies.changed({}, self._situation_moves), self._unhealthy, brokers, cluster.settings
        )
        issues += broker_issues(brokers, {one for issue in issues for one in issue.waits_for})
        order = (*SEVERITY_ORDER, None)
        moves = sorted(self._moves.items(), key=lambda one: (order.index(one[0][1]), order.index(one[0][0])))
        topics = tuple(
            TopicsWhatIfView(
                is_worse=order.index(after) < order.index(before),
                before=before,
                after=after,
                topics=count,
                partitions=partitions,
                examples=names,
            )
            for (before, after), (count, partitions, names) in moves
        )
        creates = tuple(self._refused_creates())
        parts = [
            f"{many(one.topics, 'topic')} would be {one.after}"
            if one.is_worse
            else f"{many(one.topics, 'topic')} would be {one.after or 'healthy'} instead of {one.before}"
            for one in topics
        ]
        if creates:
            factors = ", ".join(str(one.replication_factor) for one in creates)
            parts.append(f"topics with replication factor {factors} could not be created")
        summary = "; ".join(parts) or "no topic would change its health, and topics could be created as now"
        return WhatIfView(
            summary=f"{summary[0].upper()}{summary[1:]}.",
            changes=tuple(self._texts),
            topics=topics,
            creates=creates,
            issues=issues,
            as_of=as_of,
        )

    def _refused_creates(self) -> Iterator[RefusedCreateView]:
        """The factors with which a topic could be created now, but not after the change."""
        default = self._state.cluster.settings.default_replication_factor
        if default != self._before.settings.default_replication_factor:
            self._factors.add(-1)
        for factor in sorted(self._factors):
            create = commands.CreateTopic(
                request_id=_REQUEST,
                at_ms=self._now_ms,
                topic=TopicName("what-if"),
                topic_id=TopicId(bytes(16)),
                num_partitions=1,
                replication_factor=factor,
                validate_only=True,
                verdict=Verdict("allowed"),
            )
            (now,) = decide(State(DictTopics(), self._before), create).answers
            (then,) = decide(self._state, create).answers
            if then.code and not now.code:
                shown = default if factor == -1 else factor
                yield RefusedCreateView(replication_factor=shown, error=error_name(then.code), message=then.message)


def _broker(verb: str, words: list[str], brokers: Mapping[BrokerId, Broker]) -> BrokerId:
    text = words.pop(0) if words else ""
    known = {str(one): one for one in brokers}
    if text not in known:
        ids = ", ".join(list(known)[:20]) or "none"
        raise InvalidChange(f"{verb}: {text!r} is not a registered broker; registered are: {ids}")
    return known[text]


def _worst(some: Situations, cluster: Cluster) -> tuple[IssueKind | None, int]:
    """The worst problem of a topic, and the number of its partitions that have it."""
    counts: dict[IssueKind, int] = {}
    for one, count in some.items():
        kind = kind_of(one, cluster.settings)
        counts[kind] = counts.get(kind, 0) + count
    if not counts:
        return None, 0
    worst = min(counts, key=SEVERITY_ORDER.index)
    return worst, counts[worst]
