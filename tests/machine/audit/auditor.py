"""An independent oracle of logs: of simulated brokers, a target cluster and KRaft brokers.

The auditor has a small model of plain values and imports nothing of `controller`, so it finds mistakes that `decide`
and `apply` share. Each check has the name of an invariant (docs/invariants.md). A planted fault must be found here and
by the SQL of `projections/replay/checks`. The auditor takes milliseconds, so most tests check their logs with it.

It checks a log from its first event. `audit(records, settled=True)` requires that topics were reconciled after the last
broker event. Decisions of other controllers get fewer checks, because their rules differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from events import access, catalog
from events.external_decision import FOLLOW
from tests.machine.audit.cluster import ClusterAudit, Violation

TIMED_OUT = 7
COMMANDS = {
    "CreateTopic", "CreatePartitions", "DeleteTopic", "AlterTopicConfigs", "ReconcileTopics", "AlterPartition",
    "ConfirmMetadata", "ExpireRequest", "ChangeSettings", "RecordHead", "DiscoverTopic", "DiscoverDeletion",
    "RefuseCreation", "FinishChange", "BeginQuorumEpoch", "ChangeFeatures", "BeginShutdown", "AssignDirectories",
    "AllocateProducerIds", "ElectLeaders", "BalanceLeaders", "ReassignPartitions", "AlterResourceConfigs",
    "AdoptMetadata", "HandMetadataBack", FOLLOW, "CreateAcls", "DeleteAcls", "AlterClientQuotas",
    "AlterUserScramCredentials", "DrawLoginSecret", "RecordRefusals", "ApplyRules", "CopyClusterState",
    "EndApprovals",
}  # fmt: skip
BROKER_COMMANDS = {"RegisterBroker", "UnregisterBroker", "FenceBroker", "UnfenceBroker", "ChangeLogDirs"}
"""Commands that cause no topic events."""
DECISIONS = (
    catalog.CreateRequested
    | catalog.CreateRejected
    | catalog.TopicCreated
    | catalog.PartitionsAdded
    | catalog.TopicDeleted
    | catalog.TopicConfigsChanged
    | catalog.ChangeRejected
)
"""Events that a client request causes directly."""
OF_REQUESTS = (
    catalog.RulesObserved
    | catalog.CreateRequested
    | catalog.CreateRejected
    | catalog.ChangeRejected
    | catalog.CreateAnswered
    | catalog.ChangeCarriedOut
)


@dataclass
class Request:
    """A create request for one topic."""

    event: catalog.CreateRequested
    rejected: catalog.CreateRejected | None = None
    created: bool = False
    answered: bool = False
    ready: bool = False
    made: catalog.TopicCreated | None = None


NOTHING: Mapping[str, str] = {}


@dataclass
class Life:
    """A topic from its creation to its deletion; `request` is the id of the request that created it."""

    name: str
    request: str
    partitions: list[catalog.Partition]
    configs: dict[str, str]
    known_by: set[int] = field(default_factory=set)
    ready: bool = False


def audit(records: Iterable[catalog.Recorded], settled: bool = False) -> list[Violation]:
    auditor = Auditor()
    for record in records:
        auditor.see(record)
    auditor.finish(settled)
    return auditor.violations


class Auditor(ClusterAudit):
    def __init__(self) -> None:
        super().__init__()
        self.next_offset = 0
        self.topics: dict[str, Life] = {}
        """By shard key."""
        self.requests: dict[tuple[str, str], Request] = {}
        self.request_ids: set[str] = set()

    def see(self, record: catalog.Recorded) -> None:
        """Check one record against all before it, and apply it."""
        self.record, event = record, record.event
        self._expect("offsets-contiguous", record.offset == self.next_offset, f"expected {self.next_offset}")
        is_first = self.next_offset == 0
        self._expect("settings-first", not is_first or isinstance(event, catalog.SettingsChanged), type(event).__name__)
        self.next_offset = record.offset + 1
        self._check_cause(event)
        if type(event).__module__ == access.__name__:
            self._see_access(event)
        elif isinstance(event, OF_REQUESTS):
            self._see_request(event)
        elif hasattr(event, "topic"):
            self._see_topic(event)
        elif hasattr(event, "broker_id"):
            self._see_broker(event)
        else:
            self._see_cluster(event)

    def finish(self, settled: bool) -> None:
        """Check what is known only at the end of the log."""
        for (_, topic), request in self.requests.items():
            life = self._named(topic)
            waits = request.created and life is not None and not life.ready and life.request == request.event.request_id
            is_open = waits and request.event.timeout_ms > 0
            self._expect("one-answer", request.answered or is_open, "never answered", topic)
        elects = self.settings.get("has.target.cluster") != "true"
        for life in self.topics.values() if settled and elects else ():
            for index, partition in enumerate(life.partitions):
                self._check_settled(life.name, index, partition)

    def _check_settled(self, name: str, index: int, partition: catalog.Partition) -> None:
        live, replicas, leader = self._live(), partition.replicas, partition.leader
        could = [broker for broker in live if broker not in replicas]
        filled = not could or min(replicas, default=0) >= 0
        self._expect("placeholders-filled", filled, f"{index}: {could} could fill", name)
        in_sync = [member for member in partition.isr if member in live]
        led = leader in live if in_sync else leader == -1 or leader in live
        self._expect("led-when-possible", led, f"partition {index}: leader {leader}, live in sync {in_sync}", name)

    def _named(self, topic: str) -> Life | None:
        life = self.topics.get(_shard(topic))
        return life if life is not None and life.name == topic else None

    def _check_cause(self, event: Any) -> None:
        cause = self.record.cause
        allowed = COMMANDS if hasattr(event, "topic") else COMMANDS | BROKER_COMMANDS
        self._expect("cause-exists", cause.command in allowed, f"by {cause.command}")
        if isinstance(event, DECISIONS):
            self._expect("cause-exists", cause.request_id == event.request_id, f"by {cause.request_id}")
        if cause.command in {"CreateTopic", "ExpireRequest"}:
            requested = isinstance(event, catalog.CreateRequested) or cause.request_id in self.request_ids
            self._expect("cause-exists", requested, f"no request {cause.request_id}")

    # --- requests

    def _see_request(self, event: Any) -> None:
        request = self.requests.get((event.request_id, event.topic))
        match event:
            case catalog.CreateRequested():
                self._expect("one-answer", request is None, "requested twice")
                self.requests[event.request_id, event.topic] = Request(event)
                self.request_ids.add(event.request_id)
            case catalog.CreateRejected() | catalog.ChangeRejected():
                self._expect("rejected-with-rule", bool(event.rule) and event.error_code != 0, f"{event.rule!r}")
                if isinstance(event, catalog.CreateRejected):
                    is_open = request is not None and not request.created
                    self._expect("created-as-asked", is_open, "rejected after it was created")
                    if request is not None:
                        request.rejected = event
            case catalog.RulesObserved():
                self._see_filled(event, request)
            case catalog.CreateAnswered():
                is_open = request is not None and not request.answered
                self._expect("one-answer", is_open, "answered, but not waiting")
                if request is not None:
                    self._check_answer(event, request)
            case catalog.ChangeCarriedOut():
                self._check_target_cluster()
                self._expect("cause-exists", self.record.cause.request_id == event.request_id, "of another request")

    def _check_answer(self, event: catalog.CreateAnswered, request: Request) -> None:
        request.answered = True
        if request.rejected is not None:
            same = (event.error_code, event.message) == (request.rejected.error_code, request.rejected.message)
            self._expect("answer-as-decided", same, f"{event.error_code}, rejected with {request.rejected.error_code}")
        if event.error_code == 0:
            self._expect("none-after-ready", request.ready, "not ready")
        elif event.error_code == TIMED_OUT:
            early_ms = request.event.deadline_ms - self.record.at_ms
            self._expect("timeout-when-due", early_ms <= 0, f"{early_ms} ms early")

    # --- topics

    def _see_topic(self, event: Any) -> None:
        if isinstance(event, catalog.TopicCreated):
            self._see_created(event)
            return
        if isinstance(event, catalog.TopicDiscovered):
            self._see_discovered(event)
            return
        life = self._named(event.topic)
        self._expect("topic-exists", life is not None, type(event).__name__)
        if life is None:
            return
        match event:
            case catalog.PartitionsAdded():
                self._see_added(life, event)
            case catalog.PartitionChanged():
                self._see_changed(life, event)
            case catalog.TopicConfigsChanged():
                life.configs = dict(event.configs)
            case catalog.MetadataPropagated():
                life.known_by |= set(event.brokers)
            case catalog.TopicReady():
                self._see_ready(life)
            case catalog.TopicDeleted() | catalog.TopicVanished() | catalog.CreationRefused():
                del self.topics[_shard(event.topic)]
                if not isinstance(event, catalog.TopicDeleted):
                    self._check_target_cluster()
                    is_refused = isinstance(event, catalog.CreationRefused) and life.ready
                    self._expect("created-as-asked", not is_refused, "refused after it was ready")

    def _see_created(self, event: catalog.TopicCreated) -> None:
        self._expect("one-creation-per-life", _shard(event.topic) not in self.topics, "a topic exists")
        self.topics[_shard(event.topic)] = Life(
            event.topic, event.request_id, list(event.partitions), dict(event.configs)
        )
        request = self.requests.get((event.request_id, event.topic))
        is_open = request is not None and request.rejected is None and not request.created
        same_id = request is not None and request.event.topic_id == event.topic_id
        self._expect("created-as-asked", is_open and same_id, "no open request for it")
        if request is not None:
            request.created, request.made = True, event
            self._check_counts(event, request.event)
            manual = {one.partition: one.replicas for one in request.event.assignments}
            self._check_new(event, 0, manual, dict(event.configs))

    def _see_filled(self, event: catalog.RulesObserved, request: Request | None) -> None:
        """Check the counts of a created topic again, with the values that rule defaults filled."""
        if event.defaults and request is not None and request.made is not None:
            self.violations = [one for one in self.violations if (one.check, one.topic) != ("as-asked", event.topic)]
            self._check_counts(request.made, request.event, {one.name: one.value for one in event.defaults})

    def _check_counts(
        self, event: catalog.TopicCreated, wanted: catalog.CreateRequested, filled: Mapping[str, str] = NOTHING
    ) -> None:
        count, factor = len(wanted.assignments), len(wanted.assignments[0].replicas) if wanted.assignments else 0
        if not wanted.assignments:
            by_default = filled.get("partitions", self.settings.get("num.partitions", 1))
            count = wanted.num_partitions if wanted.num_partitions > 0 else int(by_default)
            by_default = filled.get("replication_factor", self.settings.get("default.replication.factor", 1))
            factor = wanted.replication_factor if wanted.replication_factor > 0 else int(by_default)
        seen = (len(event.partitions), event.replication_factor, {len(p.replicas) for p in event.partitions})
        self._expect("as-asked", seen == (count, factor, {factor}), f"{seen} for {count} and {factor}")

    def _check_new(
        self,
        event: catalog.TopicCreated | catalog.PartitionsAdded,
        first: int,
        manual: Mapping[int, tuple[int, ...]],
        configs: Mapping[str, str],
    ) -> None:
        live = self._live()
        for index, partition in enumerate(event.partitions, first):
            self._check_partition(index, partition)
            if self._is_external:
                continue
            self._expect("replicas-live", set(event.live_brokers) == live, f"placement saw {event.live_brokers}")
            wanted, replicas = manual.get(index), partition.replicas
            self._expect("as-asked", wanted in (None, replicas), f"{replicas} for {wanted}")
            may = set(self.unfenced) if wanted else self._usable()
            on_brokers = {replica for replica in replicas if replica >= 0}
            self._expect("replicas-live", on_brokers <= may, f"partition {index}: {replicas} of {sorted(may)}")
            self._expect("leaders-unfenced", partition.leader in live, f"partition {index}: {partition.leader}")
            epochs = partition.leader_epoch, partition.partition_epoch
            self._expect("epochs-never-go-back", epochs == (0, 0), f"new, with epochs {epochs}")
            self._check_placeholders(index, replicas, configs)

    def _check_placeholders(self, index: int, replicas: tuple[int, ...], configs: Mapping[str, str]) -> None:
        missing = [replica for replica in replicas if replica < 0]
        if not missing:
            return
        allowed = self.settings.get("enable.under.replicated.topic.creation") == "true"
        min_isr = {"min.insync.replicas": "1", **self.settings, **configs}["min.insync.replicas"]
        enough = len(self._usable()) >= max(1, min(int(min_isr), len(replicas)))
        numbered = list(replicas[-len(missing) :]) == [-n for n in range(1, len(missing) + 1)]
        needed = len(self._usable()) + len(missing) == len(replicas)
        holds = allowed and enough and numbered and needed
        self._expect("placeholders-allowed", holds, f"partition {index}: {replicas}")

    def _check_partition(self, index: int, partition: catalog.Partition) -> None:
        """With ELR the ISR may be empty; then there is no leader."""
        replicas, isr, leader = partition.replicas, partition.isr, partition.leader
        self._check_distinct(index, partition)
        within = (
            bool(isr or self.elr) and set(isr) <= {one for one in replicas if one >= 0} and len(set(isr)) == len(isr)
        )
        self._expect("leader-in-isr", within and leader in (-1, *isr), f"partition {index}: {leader} of {isr}")

    def _check_distinct(self, index: int, partition: catalog.Partition) -> None:
        replicas = partition.replicas
        self._expect("replicas-distinct", len(set(replicas)) == len(replicas), f"partition {index}: {replicas}")

    def _see_added(self, life: Life, event: catalog.PartitionsAdded) -> None:
        more = event.first == len(life.partitions) and len(event.partitions) > 0
        self._expect("partitions-never-fall", more, f"{event.first} after {len(life.partitions)}")
        wanted = event.request.change
        manual: Mapping[int, tuple[int, ...]] = {}
        if isinstance(wanted, catalog.RequestedPartitions):
            manual = dict(enumerate(wanted.assignments or (), event.first))
            self._expect("as-asked", wanted.count == event.first + len(event.partitions), f"for {wanted.count}")
        factor = len(life.partitions[0].replicas)
        alike = all(len(partition.replicas) == factor for partition in event.partitions)
        self._expect("as-asked", alike, f"the factor is {factor}")
        self._check_new(event, event.first, manual, life.configs)
        life.partitions += event.partitions

    def _see_changed(self, life: Life, event: catalog.PartitionChanged) -> None:
        index, after = event.partition, event.after
        self._expect("topic-exists", 0 <= index < len(life.partitions), f"no partition {index}")
        if not 0 <= index < len(life.partitions):
            return
        known, life.partitions[index] = life.partitions[index], after
        self._expect("epochs-never-go-back", event.before == known, f"partition {index}: not {event.before}")
        self._check_epochs(index, known, after)
        is_same = after.leader in (-1, known.leader) and after.isr == known.isr
        live = after.leader == -1 or is_same or self.unfenced.get(after.leader, False)
        self._expect("leaders-unfenced", live, f"partition {index}: {after.leader}")
        self._check_filled(index, known, after)
        self._check_partition(index, after)
        self._check_metadata(index, after)

    def _check_epochs(self, index: int, known: catalog.Partition, after: catalog.Partition) -> None:
        """The leader epoch also rises when a replica is removed. Kafka's controller may raise it at any time."""
        may_rise = {one for one in known.replicas if one >= 0} - set(after.replicas) or self._is_external
        rise = after.leader_epoch - known.leader_epoch
        due = rise == 1 if after.leader != known.leader else rise == 0 or (rise == 1 and bool(may_rise))
        seen = f"partition {index}: {after.leader_epoch}, {after.partition_epoch} after {known}"
        self._expect("epochs-never-go-back", due and after.partition_epoch == known.partition_epoch + 1, seen)

    def _check_filled(self, index: int, known: catalog.Partition, after: catalog.Partition) -> None:
        """Only brokers replace placeholders. With KRaft brokers, only a reconcile is checked; others may reassign."""
        is_reconciled = self.record.cause.command == "ReconcileTopics"
        if after.replica_metadata is not None and not (is_reconciled and min(known.replicas, default=0) < 0):
            return
        replicas, usable = after.replicas, self._usable()
        filled = [(place, broker) for place, broker in zip(known.replicas, replicas, strict=False) if place != broker]
        could = all(place < 0 and broker in usable for place, broker in filled)
        holds = could and len(known.replicas) == len(replicas)
        waits = is_reconciled and min(replicas, default=0) < 0 and usable - set(replicas)
        self._expect("placeholders-filled", holds and not waits, f"partition {index}: {known.replicas} to {replicas}")

    def _check_metadata(self, index: int, partition: catalog.Partition) -> None:
        metadata, replicas = partition.replica_metadata, set(partition.replicas)
        if metadata is None:
            return
        eligible, moving = set(metadata.elr), {*metadata.adding, *metadata.removing}
        apart = eligible <= replicas and not eligible & set(partition.isr)
        self._expect("leader-in-isr", apart, f"partition {index}: eligible {eligible}, in sync {partition.isr}")
        known = len(metadata.directories) == len(partition.replicas)
        self._expect("leader-in-isr", known, f"partition {index}: directories of {partition.replicas}")
        self._expect("replicas-distinct", moving <= replicas, f"partition {index}: {moving} of {replicas}")

    def _see_ready(self, life: Life) -> None:
        live, leaders = self._live(), {partition.leader for partition in life.partitions}
        holds = leaders <= live <= life.known_by and not life.ready
        self._expect("ready-is-true", holds, f"leaders {leaders}, known by {life.known_by}, live {live}")
        life.ready = True
        request = self.requests.get((life.request, life.name))
        if request is not None:
            request.ready = True

    def _check_target_cluster(self) -> None:
        is_external = self._is_external or self.record.cause.command == "AdoptMetadata"
        has_cluster = is_external or self.settings.get("has.target.cluster") == "true"
        self._expect("cause-exists", has_cluster, "there is no target cluster")

    def _see_discovered(self, event: catalog.TopicDiscovered) -> None:
        self._check_target_cluster()
        life = self.topics.get(_shard(event.topic))
        if life is None or life.name != event.topic:
            self._expect("one-creation-per-life", life is None, f"{life} exists")
            life = self.topics[_shard(event.topic)] = Life(event.topic, "", [], {}, ready=True)
        for index, partition in enumerate(event.partitions):
            before = life.partitions[index] if index < len(life.partitions) else None
            if before is not None:
                is_later = partition.leader_epoch >= before.leader_epoch
                is_later = is_later and partition.partition_epoch >= before.partition_epoch
                self._expect("epochs-never-go-back", is_later, f"partition {index}: {partition} after {before}")
            leads = partition.leader == -1 or self.unfenced.get(partition.leader, False)
            self._expect("leaders-unfenced", leads or before == partition, f"partition {index}: {partition.leader}")
            self._check_partition(index, partition)
        life.partitions, life.configs = list(event.partitions), dict(event.configs)


def _shard(topic: str) -> str:
    return topic.replace(".", "_")
