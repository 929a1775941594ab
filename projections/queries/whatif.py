"""Answers what-if questions about the present state: which topics would go offline, or could not be created.

Method. Commands are decided and applied by the machine on a copy of the state, as if they were submitted: the change
itself, then `ReconcileTopics` for the topics that it may concern. A cluster that another controller leads is treated
as if this machine led it, because both follow the same rules.

Non-goals: nothing is written, and the rules for changes of topics and policies are not applied.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from controller.machine.apply import apply
from controller.machine.commands import Command, commands
from controller.machine.configs.topic_configs import MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from controller.machine.decide import decide
from controller.machine.decision import Decision
from controller.machine.partitions.blocks import is_one_block
from controller.machine.state import BROKERS, Broker, Cluster, DictTopics, State, Topic
from controller.store.store import TopicStore, parts_of
from controller.store.topic_indexes import Moves, Situations, Tallies, Unhealthy, add_move, situations
from events.catalog import BrokerDetails, Cause, ConfigOp, Recorded, Verdict
from events.names import BrokerId, Offset, RequestId, TopicId, TopicName, shard_key
from projections.queries.health import SEVERITY_ORDER, broker_issues, kind_of, partition_issues
from projections.queries.query import Queries
from projections.text.names import error_name
from projections.text.wording import event_text, many
from projections.views.brokers import fold_cluster
from projections.views.overviews import RefusedCreateView, TopicsWhatIfView, WhatIfView
from projections.views.view import AsOfView, IssueKind

OUTCOMES_MAX = 5_000
STEPS_MAX, NAMES_MAX, TOPICS_NAMED_MAX, FACTORS_MAX = 10, 20, 100, 10
FACTOR, PLACEHOLDERS = "default.replication.factor", "enable.under.replicated.topic.creation"
SETTINGS = (MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION, FACTOR, PLACEHOLDERS)
ALLOWED = f"lose-broker ID, lose-rack RACK, drain ID, add-broker, and NAME=VALUE of {', '.join(SETTINGS)}"
_REASON = "what if"
_REQUEST = RequestId("what-if")


class InvalidChange(ValueError):
    """The change of a what-if question is invalid; the message says what is allowed."""


_Likeness = tuple[object, ...]
_Outcome = tuple[Situations, Situations, IssueKind | None, IssueKind | None, int]
"""The situations before and after, the worst problems, and how many more partitions have the latter."""


class WhatIf:
    """A change of the present `cluster`, such as `lose-broker 3 min.insync.replicas=2`, and the topics that it
    concerns. Raises InvalidChange."""

    def __init__(self, queries: Queries, change: str, cluster: Cluster, tallies: Tallies, now_ms: int) -> None:
        settings = replace(cluster.settings, has_target_cluster=False)
        self._before = replace(cluster, settings=settings, rules=None)
        self._state = State(DictTopics(), self._before)
        self._row, self._tallies, self._now_ms = queries.cluster_at(queries.end()), tallies, now_ms
        self._stamp: dict[str, Any] = {"request_id": _REQUEST, "at_ms": now_ms}
        self._situation_moves: Moves = {}
        self._texts: list[str] = []
        self._factors = {settings.default_replication_factor}
        self._moves: dict[tuple[IssueKind | None, IssueKind | None], tuple[int, int, tuple[str, ...]]] = {}
        """By the worst problem before and after: the numbers of topics and partitions, and the first names."""
        self._outcomes: dict[_Likeness, _Outcome] = {}
        self._unhealthy: list[Unhealthy] = []
        self._lost: set[BrokerId] = set()
        self._topics_read = 0
        words = iter(change.split())
        for number, step in enumerate(words):
            if number == STEPS_MAX:
                raise InvalidChange(f"more than {STEPS_MAX} changes")
            for command in self._commands(step, words):
                self._decide(command, step)
        if not change.strip():
            raise InvalidChange(f"nothing to change; allowed: {ALLOWED}")

    def _commands(self, step: str, words: Iterator[str]) -> Iterator[Command]:
        """The commands of a step, whose argument is the next of the words."""
        name, equals, value = step.partition("=")
        brokers, stamp = self._state.cluster.brokers, self._stamp
        match step:
            case "lose-broker" | "drain" | "lose-rack":
                is_rack, text = step == "lose-rack", next(words, "")
                names = {one: broker.rack if is_rack else str(one) for one, broker in brokers.items()}
                lost = [one for one, name in names.items() if name == text]
                if not lost:
                    known = ", ".join(list(dict.fromkeys(filter(None, names.values())))[:NAMES_MAX]) or "none"
                    kind = "rack of a broker" if is_rack else "registered broker"
                    raise InvalidChange(f"{step}: {text!r} is not a {kind}; allowed: {known}")
                self._lost.update(lost)
                for one in lost:
                    if step == "drain":
                        yield commands.BeginShutdown(**stamp, broker_id=one)
                    else:
                        yield commands.FenceBroker(**stamp, broker_id=one, reason=_REASON)
            case "add-broker":
                yield from self._new_broker()
            case _ if equals and name in (FACTOR, PLACEHOLDERS):
                pairs = tuple(sorted({**dict(self._state.cluster.settings_pairs), name: value}.items()))
                yield commands.ChangeSettings(**stamp, settings=pairs, release=self._state.cluster.release)
            case _ if equals and name in SETTINGS:
                given = {**stamp, "topic": TopicName(""), "kind": BROKERS, "name": ""}
                ops, allowed = (ConfigOp(name, 0, value),), Verdict("allowed")
                yield commands.AlterResourceConfigs(**given, ops=ops, verdict=allowed)
            case _:
                raise InvalidChange(f"{step!r} is no change; allowed: {ALLOWED}")

    def _new_broker(self) -> Iterator[Command]:
        cluster = self._state.cluster
        like: Broker | None = next(iter(cluster.brokers.values()), None)
        endpoints, details = () if like is None else like.endpoints, None
        if like is not None and cluster.has_kraft_brokers:
            details = BrokerDetails(like.security_protocols, like.features, ())
        given = {**self._stamp, "broker_id": BrokerId(max(cluster.brokers, default=0) + 1)}
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

    def slices(self, store: TopicStore) -> Iterator[list[Topic]]:
        """The topics that the change concerns: those with a replica on a lost broker, and the unhealthy ones."""
        return store.durable_topics(self._lost, store.durable_keys_unhealthy())

    def add(self, topics: Sequence[Topic]) -> None:
        """Count the topics of a slice. Of topics that are alike, one is reconciled."""
        self._topics_read += len(topics)
        if len(self._outcomes) > OUTCOMES_MAX:
            self._outcomes.clear()
        alike = [(topic, _likeness(topic)) for topic in topics]
        new = {likeness: topic for topic, likeness in alike if likeness not in self._outcomes}
        if new:
            self._reconcile(new)
        for topic, likeness in alike:
            self._count(topic, self._outcomes[likeness])

    def _reconcile(self, new: dict[_Likeness, Topic]) -> None:
        topics = list(new.values())
        for topic in topics:
            key = shard_key(topic.name)
            self._state.topics.put(key, topic)
            if topic.ready_at_ms is None:
                self._state.waiting[key] = topic.created_offset
            if len(self._factors) < FACTORS_MAX:
                self._factors.add(topic.replication_factor)
        for part in parts_of([topics]):
            names = tuple(topic.name for topic in part.topics)
            command = commands.ReconcileTopics(**self._stamp, topics=names, partitions=part.partitions)
            self._apply(command, decide(self._state, command))
        for likeness, topic in new.items():
            key = shard_key(topic.name)
            after = self._state.topics.get(key) or topic
            self._state.topics.put(key, None)
            was, now = situations(topic), situations(after)
            now = was if now == was else now
            (before, had), (worst, count) = _worst(was, self._before), _worst(now, self._state.cluster)
            self._outcomes[likeness] = was, now, before, worst, count - had if worst == before else count
        self._state.waiting.clear()

    def _count(self, topic: Topic, outcome: _Outcome) -> None:
        was, now, before_kind, kind, more = outcome
        if was is not now:
            add_move(self._situation_moves, was, now)
        if now and len(self._unhealthy) < TOPICS_NAMED_MAX:
            self._unhealthy.append(Unhealthy(topic.name, now))
        if kind != before_kind or more > 0:
            topics, partitions, named = self._moves.get((before_kind, kind), (0, 0, ()))
            named = (*named, topic.name) if topics < TOPICS_NAMED_MAX else named
            self._moves[before_kind, kind] = topics + 1, partitions + more, named

    def view(self, as_of: AsOfView, *, is_complete: bool = True) -> WhatIfView:
        """The answer for the slices that were added."""
        cluster, brokers = self._state.cluster, self._row.brokers
        tallies = self._tallies.plus(Tallies({}, self._situation_moves))
        issues = tuple(partition_issues(tallies, self._unhealthy, brokers, cluster.settings))
        order = (*SEVERITY_ORDER, None)
        moves = sorted(self._moves.items(), key=lambda one: (order.index(one[0][1]), order.index(one[0][0])))
        topics, by_state = [], Counter[str]()
        for (before, after), (count, partitions, names) in moves:
            is_worse = order.index(after) <= order.index(before)
            topics.append(TopicsWhatIfView(is_worse, before, after, count, partitions, names))
            then = f"would be {after or 'healthy'}{'' if is_worse else f' instead of {before}'}"
            by_state[f"would have more partitions {after}" if before == after else then] += count
        parts = [f"{many(count, 'topic')} {then}" for then, count in by_state.items()]
        creates = tuple(self._refused_creates())
        if creates:
            factors = ", ".join(str(one.replication_factor) for one in creates)
            parts.append(f"topics with replication factor {factors} could not be created")
        summary = "; ".join(parts) or "no topic would have a worse problem than now, and topics could be created as now"
        if not self._texts:
            summary = "the change has no effect: this is the present state"
        if not is_complete:
            summary = f"so far, after {many(self._topics_read, 'topic')}: {summary}"
        return WhatIfView(
            summary=f"{summary[0].upper()}{summary[1:]}.",
            changes=tuple(self._texts),
            topics=tuple(topics),
            creates=creates,
            issues=(*issues, *broker_issues(brokers, issues)),
            topics_read=self._topics_read,
            is_complete=is_complete,
            as_of=as_of,
        )

    def _refused_creates(self) -> Iterator[RefusedCreateView]:
        """The factors with which a topic could be created now, but not after the change."""
        default = self._state.cluster.settings.default_replication_factor
        if default != self._before.settings.default_replication_factor:
            self._factors.add(-1)
        given = {**self._stamp, "topic": TopicName("what-if"), "topic_id": TopicId(bytes(16)), "num_partitions": 1}
        create = commands.CreateTopic(**given, replication_factor=1, validate_only=True, verdict=Verdict("allowed"))
        for factor in sorted(self._factors):
            create = replace(create, replication_factor=factor)
            (now,) = decide(State(DictTopics(), self._before), create).answers
            (then,) = decide(self._state, create).answers
            if then.code and not now.code:
                yield RefusedCreateView(default if factor == -1 else factor, error_name(then.code), then.message)


def _likeness(topic: Topic) -> _Likeness:
    """Topics with the same have the same outcome: all but the name, the times and the epochs. Large topics are only
    like themselves."""
    if not is_one_block(topic.partitions):
        return (topic.name,)
    parts = [(one.leader, one.replicas, one.isr, one.replica_metadata) for one in topic.partitions]
    return topic.configs, topic.ready_at_ms is None, topic.propagated, *parts


def _worst(some: Situations, cluster: Cluster) -> tuple[IssueKind | None, int]:
    """The worst problem of a topic, and the number of its partitions that have it."""
    counts: Counter[IssueKind] = Counter()
    for one, count in some.items():
        counts[kind_of(one, cluster.settings)] += count
    worst = min(counts, key=SEVERITY_ORDER.index, default=None)
    return worst, 0 if worst is None else counts[worst]
