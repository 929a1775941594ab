"""An independent checker of logs.

The auditor has a small model of plain dicts and lists, and imports nothing of `controller`, so that it finds mistakes
that `decide` and `apply` share. Each check has a name; a broken check is a `Violation`.

It checks a log from its first event. `audit(records, settled=True)` states that topics were reconciled after the last
broker event, so that the results must be there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from events.catalog import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    ChangeRejected,
    CreateAnswered,
    CreateRejected,
    CreateRequested,
    HeadSigned,
    LogDirsChanged,
    MetadataPropagated,
    PartitionChanged,
    PartitionsAdded,
    Recorded,
    RequestedPartitions,
    SettingsChanged,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
    TopicReady,
)
from tests.machine.audit.auditor_cluster import AccessAudit, ClusterWitness, Life, Lives, own
from tests.machine.audit.rules import BROKER_COMMANDS, COMMANDS, DECISIONS

TIMED_OUT = 7


class Violation(NamedTuple):
    """One broken check: where, about which topic, and what was seen."""

    check: str
    offset: int
    topic: str
    seen: str


@dataclass
class TopicCommand:
    """A create request for one topic as the auditor knows it."""

    event: CreateRequested
    rejected: CreateRejected | None = None
    created: bool = False
    answered: bool = False
    ready: bool = False


def audit(records: Iterable[Recorded], settled: bool = False, of: type[Auditor] | None = None) -> list[Violation]:
    auditor = (of or Auditor)()
    for record in records:
        auditor.see(record)
    auditor.finish(settled)
    return auditor.violations


class Auditor(ClusterWitness, AccessAudit):
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.settings: dict[str, str] = {}
        self.live: dict[int, bool] = {}
        self.cordoned: set[int] = set()
        self.topics = Lives()
        self.requests: dict[tuple[str, str], TopicCommand] = {}
        self.request_ids: set[str] = set()
        self.broker_epoch = 0
        self.next_offset = 0
        self.record: Recorded

    def see(self, record: Recorded) -> None:
        """Check one record against all before it, and take it in."""
        self.record = record
        self._expect("offsets-contiguous", record.offset == self.next_offset, f"expected {self.next_offset}")
        is_settings = isinstance(record.event, SettingsChanged)
        self._expect("settings-first", self.next_offset > 0 or is_settings, type(record.event).__name__)
        self.next_offset = record.offset + 1
        self._check_cause(record)
        self._handler(type(record.event).__name__)(record.event)

    def _handler(self, event_type: str) -> Callable[[Any], None]:
        handler: Callable[[Any], None] = getattr(self, "_on" + re.sub("([A-Z])", r"_\1", event_type).lower())
        return handler

    def finish(self, settled: bool) -> None:
        """Check what is only known at the end of a log."""
        for (_, topic), request in self.requests.items():
            life = self.topics.get(topic)
            waits = request.created and life is not None and not life.ready and life.request == request.event.request_id
            self._expect(
                "one-answer", request.answered or (waits and request.event.timeout_ms > 0), "never answered", topic
            )
        elects = self.settings.get("has.target.cluster") != "true"
        for name, life in self.topics.items() if settled and elects else ():
            for index, partition in enumerate(life.partitions):
                self._check_settled(name, index, partition)

    def _expect(self, check: str, holds: bool, seen: str, topic: str | None = None) -> None:
        if not holds:
            name = topic if topic is not None else str(getattr(self.record.event, "topic", ""))
            self.violations.append(Violation(check, self.record.offset, name, seen))

    def _check_settled(self, name: str, index: int, partition: dict[str, Any]) -> None:
        live = self._live()
        could = [broker for broker in live if broker not in partition["replicas"]]
        waits = [replica for replica in partition["replicas"] if replica < 0]
        self._expect("placeholders-filled", not (could and waits), f"partition {index}: {could} could fill", name)
        in_sync = [member for member in partition["isr"] if member in live]
        leader = partition["leader"]
        led = leader in live if in_sync else leader == -1 or leader in live
        self._expect("led-when-possible", led, f"partition {index}: leader {leader}, live in sync {in_sync}", name)

    def _live(self) -> set[int]:
        return {broker for broker, live in self.live.items() if live}

    def _usable(self) -> set[int]:
        return self._live() - self.cordoned

    def _check_cause(self, record: Recorded) -> None:
        cause = record.cause
        of_topic = hasattr(record.event, "topic")
        led = cause.command in COMMANDS and not (of_topic and cause.command in BROKER_COMMANDS)
        self._expect("cause-exists", led, f"by {cause.command}")
        if isinstance(record.event, DECISIONS):
            self._expect("cause-exists", cause.request_id == record.event.request_id, f"by {cause.request_id}")
        if cause.command in {"CreateTopic", "ExpireRequest"}:
            requested = isinstance(record.event, CreateRequested) or cause.request_id in self.request_ids
            self._expect("cause-exists", requested, f"no request {cause.request_id}")

    # --- create requests

    def _on_create_requested(self, event: CreateRequested) -> None:
        key = (event.request_id, event.topic)
        self._expect("one-answer", key not in self.requests, "requested twice")
        self.requests[key] = TopicCommand(event)
        self.request_ids.add(event.request_id)

    def _on_create_rejected(self, event: CreateRejected) -> None:
        self._expect("rejected-with-rule", bool(event.rule) and event.error_code != 0, f"{event.rule!r}")
        request = self.requests.get((event.request_id, event.topic))
        self._expect("created-as-asked", request is not None and not request.created, "rejected after it was created")
        if request is not None:
            request.rejected = event

    def _on_create_answered(self, event: CreateAnswered) -> None:
        request = self.requests.get((event.request_id, event.topic))
        self._expect("one-answer", request is not None and not request.answered, "answered, but not waiting")
        if request is None:
            return
        request.answered = True
        if request.rejected is not None:
            same = (event.error_code, event.message) == (request.rejected.error_code, request.rejected.message)
            self._expect("answer-as-decided", same, f"{event.error_code}, rejected with {request.rejected.error_code}")
        if event.error_code == 0:
            self._expect("none-after-ready", request.ready, "not ready")
        elif event.error_code == TIMED_OUT:
            due = self.record.at_ms >= request.event.deadline_ms
            self._expect("timeout-when-due", due, f"{request.event.deadline_ms - self.record.at_ms} ms early")

    # --- topics

    def _on_topic_created(self, event: TopicCreated) -> None:
        others = self.topics.in_shard_of(event.topic)
        self._expect("one-creation-per-life", not others, f"{others} exist")
        request = self.requests.get((event.request_id, event.topic))
        allowed = (
            request is not None
            and request.rejected is None
            and not request.created
            and request.event.topic_id == event.topic_id
        )
        self._expect("created-as-asked", allowed, "no open request for it")
        self._expect("created-as-asked", not event.is_adopted, "no deadline")
        if request is not None:
            request.created = True
            self._check_counts(event, request.event)
            by_hand = {one.partition: one.replicas for one in request.event.assignments}
            minisr = dict(event.configs).get("min.insync.replicas")
            self._check_new(event, 0, by_hand, minisr)
        life = Life(
            event.request_id, event.deadline_ms, [own(p) for p in event.partitions], configs=dict(event.configs)
        )
        self.topics[event.topic] = life

    def _check_counts(self, event: TopicCreated, wanted: CreateRequested) -> None:
        count, factor = len(wanted.assignments), len(wanted.assignments[0].replicas) if wanted.assignments else 0
        if not wanted.assignments:
            count = wanted.num_partitions if wanted.num_partitions > 0 else int(self.settings.get("num.partitions", 1))
            factor = wanted.replication_factor
            factor = factor if factor > 0 else int(self.settings.get("default.replication.factor", 1))
        seen = (len(event.partitions), event.replication_factor, {len(p.replicas) for p in event.partitions})
        self._expect("as-asked", seen == (count, factor, {factor}), f"{seen} for {count} and {factor}")

    def _check_new(
        self,
        event: TopicCreated | PartitionsAdded,
        first: int,
        by_hand: Mapping[int, tuple[int, ...]],
        minisr: str | None,
    ) -> None:
        live = self._live()
        self._expect("replicas-live", set(event.live_brokers) == live, f"placement saw {event.live_brokers}")
        for index, partition in enumerate(event.partitions, first):
            self._check_partition(index, own(partition))
            wanted = by_hand.get(index)
            self._expect("as-asked", wanted in (None, partition.replicas), f"{partition.replicas} for {wanted}")
            brokers = {replica for replica in partition.replicas if replica >= 0}
            may = set(self.live) if wanted else self._usable()
            self._expect("replicas-live", brokers <= may, f"partition {index}: {partition.replicas} of {sorted(may)}")
            self._expect("leaders-unfenced", partition.leader in live, f"partition {index}: {partition.leader}")
            begins = (partition.leader_epoch, partition.partition_epoch) == (0, 0)
            self._expect("epochs-never-go-back", begins, "new, but not 0")
            self._check_placeholders(index, partition.replicas, minisr)

    def _check_placeholders(self, index: int, replicas: tuple[int, ...], minisr: str | None) -> None:
        missing = [replica for replica in replicas if replica < 0]
        if not missing:
            return
        allowed = self.settings.get("enable.under.replicated.topic.creation") == "true"
        floor = min(int(minisr or self.settings.get("min.insync.replicas", "1")), len(replicas))
        enough = len(self._usable()) >= max(1, floor)
        numbered = list(replicas[-len(missing) :]) == [-n for n in range(1, len(missing) + 1)]
        needed = len(self._usable()) + len(missing) == len(replicas)
        self._expect(
            "placeholders-allowed", allowed and enough and numbered and needed, f"partition {index}: {replicas}"
        )

    def _check_partition(self, index: int, partition: dict[str, Any]) -> None:
        replicas, isr, leader = partition["replicas"], partition["isr"], partition["leader"]
        self._expect("replicas-distinct", len(set(replicas)) == len(replicas), f"partition {index}: {replicas}")
        brokers = {replica for replica in replicas if replica >= 0}
        within = bool(isr) and set(isr) <= brokers and len(set(isr)) == len(isr)
        self._expect(
            "leader-in-isr", within and (leader == -1 or leader in isr), f"partition {index}: {leader} of {isr}"
        )

    def _life(self, topic: str) -> Life | None:
        life = self.topics.get(topic)
        self._expect("topic-exists", life is not None, type(self.record.event).__name__)
        return life

    def _on_partitions_added(self, event: PartitionsAdded) -> None:
        life = self._life(event.topic)
        if life is None:
            return
        more = event.first == len(life.partitions) and len(event.partitions) > 0
        self._expect("partitions-never-fall", more, f"{event.first} after {len(life.partitions)}")
        wanted = event.request.change
        by_hand: Mapping[int, tuple[int, ...]] = {}
        if isinstance(wanted, RequestedPartitions):
            by_hand = dict(enumerate(wanted.assignments or (), event.first))
            self._expect("as-asked", wanted.count == event.first + len(event.partitions), f"for {wanted.count}")
        factor = len(life.partitions[0]["replicas"])
        alike = all(len(partition.replicas) == factor for partition in event.partitions)
        self._expect("as-asked", alike, f"the factor is {factor}")
        self._check_new(event, event.first, by_hand, life.configs.get("min.insync.replicas"))
        life.partitions += [own(partition) for partition in event.partitions]

    def _on_topic_deleted(self, event: TopicDeleted) -> None:
        if self._life(event.topic) is not None:
            del self.topics[event.topic]

    def _on_topic_configs_changed(self, event: TopicConfigsChanged) -> None:
        life = self._life(event.topic)
        if life is not None:
            life.configs = dict(event.configs)

    def _on_change_rejected(self, event: ChangeRejected) -> None:
        self._expect("rejected-with-rule", bool(event.rule) and event.error_code != 0, f"{event.rule!r}")

    def _on_partition_changed(self, event: PartitionChanged) -> None:
        life, index, after = self._life(event.topic), event.partition, own(event.after)
        if life is None or not 0 <= index < len(life.partitions):
            self._expect("topic-exists", life is None, f"no partition {index}")
            return
        known = life.partitions[index]
        life.partitions[index] = after
        self._expect("epochs-never-go-back", own(event.before) == known, f"partition {index}: not {event.before}")
        self._check_epochs(index, known, after)
        moved = after["leader"] != known["leader"] or after["isr"] != known["isr"]
        live = after["leader"] == -1 or not moved or self.live.get(after["leader"], False)
        self._expect("leaders-unfenced", live, f"partition {index}: {after['leader']}")
        self._check_replicas(index, known["replicas"], after["replicas"])
        self._check_partition(index, after)

    def _check_epochs(self, index: int, known: dict[str, Any], after: dict[str, Any]) -> None:
        expected = known["leader_epoch"] + (after["leader"] != known["leader"]), known["partition_epoch"] + 1
        seen = after["leader_epoch"], after["partition_epoch"]
        self._expect("epochs-never-go-back", seen == expected, f"partition {index}: {seen}, expected {expected}")

    def _check_replicas(self, index: int, known: list[int], replicas: list[int]) -> None:
        """Brokers may take the places of placeholders, and no others."""
        filled = [(place, broker) for place, broker in zip(known, replicas, strict=False) if place != broker]
        could = all(place < 0 and broker in self._usable() for place, broker in filled)
        seen = f"partition {index}: {known} to {replicas}"
        self._expect("placeholders-filled", could and len(known) == len(replicas), seen)
        waits = min(replicas) < 0 and set(self._usable()) - set(replicas)
        self._expect("placeholders-filled", not waits or self.record.cause.command != "ReconcileTopics", seen)

    def _on_metadata_propagated(self, event: MetadataPropagated) -> None:
        life = self._life(event.topic)
        if life is not None:
            life.known_by |= set(event.brokers)

    def _on_topic_ready(self, event: TopicReady) -> None:
        life = self._life(event.topic)
        if life is None:
            return
        live = self._live()
        led = all(partition["leader"] in live for partition in life.partitions)
        seen = f"leaders {[p['leader'] for p in life.partitions]}, known by {life.known_by}, live {live}"
        self._expect("ready-is-true", led and live <= life.known_by and not life.ready, seen)
        life.ready = True
        request = self.requests.get((life.request, event.topic))
        if request is not None:
            request.ready = True

    # --- brokers and settings

    def _on_broker_registered(self, event: BrokerRegistered) -> None:
        rises = event.broker_epoch > self.broker_epoch and not self.live.get(event.broker_id, False)
        self._expect("broker-life", rises, f"{event.broker_id} registered with epoch {event.broker_epoch}")
        self.broker_epoch = event.broker_epoch
        self.live[event.broker_id] = False
        self.cordoned.discard(event.broker_id)

    def _on_broker_fenced(self, event: BrokerFenced | BrokerUnfenced) -> None:
        becomes = isinstance(event, BrokerUnfenced)
        self._expect("broker-life", self.live.get(event.broker_id) is (not becomes), f"{event.broker_id}")
        self.live[event.broker_id] = becomes

    _on_broker_unfenced = _on_broker_fenced

    def _on_log_dirs_changed(self, event: LogDirsChanged) -> None:
        self._expect("broker-life", event.broker_id in self.live, f"{event.broker_id} is not registered")
        every = bool(event.log_dirs) and not set(event.log_dirs) - set(event.cordoned)
        (self.cordoned.add if every else self.cordoned.discard)(event.broker_id)

    def _on_broker_unregistered(self, event: BrokerUnregistered) -> None:
        self._expect("broker-life", event.broker_id in self.live, f"{event.broker_id} is not registered")
        self.live.pop(event.broker_id, None)

    def _on_head_signed(self, event: HeadSigned) -> None:
        self._expect("cause-exists", event.size <= self.record.offset, f"a head of {event.size} events")

    def _on_settings_changed(self, event: SettingsChanged) -> None:
        self.settings = dict(event.settings)
