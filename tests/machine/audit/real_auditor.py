"""The independent checker for logs of KRaft brokers.

In addition to the auditor's checks: only replicas lead or are eligible, and each replica has a directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from events.catalog import (
    BrokerFenced,
    BrokerLeaving,
    BrokerUnfenced,
    FeaturesChanged,
    HistorySkipped,
    MetadataAdopted,
    MetadataHandedBack,
    Partition,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    QuorumEpochBegun,
    ResourceConfigsChanged,
    TopicCreated,
)
from events.external_decision import FOLLOW
from tests.machine.audit.auditor import Auditor
from tests.machine.audit.auditor_cluster import Life, own
from tests.machine.audit.rules import COMMANDS

COMMANDS |= {
    "BeginQuorumEpoch", "ChangeFeatures", "BeginShutdown", "AssignDirectories",
    "AllocateProducerIds", "ElectLeaders", "BalanceLeaders", "ReassignPartitions", "AlterResourceConfigs",
    "AdoptMetadata", "HandMetadataBack", FOLLOW,
}  # fmt: skip


class RealAuditor(Auditor):
    """Takes a log of real brokers, record by record; one of simulated brokers it takes as the auditor does."""

    def __init__(self) -> None:
        super().__init__()
        self.leader_epoch = 0
        self.next_producer_id = 0
        self.leaving: set[int] = set()
        self.elr = False

    @property
    def _is_followed(self) -> bool:
        """True if another controller decided, by rules that are not checked here."""
        return self.record.cause.command == FOLLOW

    def _check_behind(self) -> None:
        if not self._is_followed:
            super()._check_behind()

    def _check_new(
        self,
        event: TopicCreated | PartitionsAdded,
        first: int,
        by_hand: Mapping[int, tuple[int, ...]],
        minisr: str | None,
    ) -> None:
        if not self._is_followed:
            super()._check_new(event, first, by_hand, minisr)
            return
        for index, partition in enumerate(event.partitions, first):
            self._check_partition(index, own(partition))

    def _on_history_skipped(self, event: HistorySkipped) -> None:
        self._expect("cause-exists", self._is_followed, self.record.cause.command)
        self._expect("offsets-contiguous", event.start_offset < event.end_offset, f"up to {event.end_offset}")

    def _on_topic_created(self, event: TopicCreated) -> None:
        """A topic that was there when a cluster was taken over has no deadline; nobody placed it here."""
        if self.record.cause.command != "AdoptMetadata":
            super()._on_topic_created(event)
            return
        self._expect("one-creation-per-life", not self.topics.in_shard_of(event.topic), "exists")
        self._expect("created-as-asked", event.is_adopted, f"deadline {event.deadline_ms}")
        partitions = [own(partition) for partition in event.partitions]
        for index, partition in enumerate(partitions):
            distinct = len(set(partition["replicas"])) == len(partition["replicas"])
            self._expect("replicas-distinct", distinct, f"partition {index}: {partition['replicas']}")
        self.topics[event.topic] = Life(event.request_id, 0, partitions, configs=dict(event.configs))

    def _on_metadata_adopted(self, event: MetadataAdopted) -> None:
        self._expect("cause-exists", self.record.cause.command == "AdoptMetadata", self.record.cause.command)

    def _on_metadata_handed_back(self, event: MetadataHandedBack) -> None:
        self._expect("cause-exists", self.record.cause.command == "HandMetadataBack", self.record.cause.command)

    def _check_partition(self, index: int, partition: dict[str, Any]) -> None:
        """With eligible replicas the in-sync set may be empty; then nobody leads."""
        if not (self.elr and not partition["isr"]):
            super()._check_partition(index, partition)
            return
        self._expect("leader-in-isr", partition["leader"] == -1, f"partition {index}: led, but nobody is in sync")

    def _on_partition_changed(self, event: PartitionChanged) -> None:
        super()._on_partition_changed(event)
        self._check_upkeep(event.partition, event.after)

    def _check_epochs(self, index: int, known: dict[str, Any], after: dict[str, Any]) -> None:
        """The leader epoch also rises where a replica is removed, and Kafka's controller may raise it at any time."""
        is_led_anew = after["leader"] == known["leader"] and after["leader_epoch"] == known["leader_epoch"] + 1
        is_removed = {one for one in known["replicas"] if one >= 0} - set(after["replicas"])
        if is_led_anew and (is_removed or self._is_followed):
            known = {**known, "leader_epoch": after["leader_epoch"]}
        super()._check_epochs(index, known, after)

    def _check_replicas(self, index: int, known: list[int], replicas: list[int]) -> None:
        """Other commands reassign partitions, or complete that."""
        if self.record.cause.command == "ReconcileTopics" and min(known) < 0:
            super()._check_replicas(index, known, replicas)

    def _check_upkeep(self, index: int, partition: Partition) -> None:
        metadata, replicas = partition.replica_metadata, set(partition.replicas)
        if metadata is None:
            return
        eligible = set(metadata.elr)
        apart = eligible <= replicas and not eligible & set(partition.isr)
        self._expect("leader-in-isr", apart, f"partition {index}: eligible {eligible}, in sync {partition.isr}")
        known = len(metadata.directories) == len(partition.replicas)
        self._expect("leader-in-isr", known, f"partition {index}: directories of {partition.replicas}")
        moving = {*metadata.adding, *metadata.removing}
        self._expect("replicas-distinct", moving <= replicas, f"partition {index}: {moving} of {replicas}")

    def _on_broker_leaving(self, event: BrokerLeaving) -> None:
        may = self.live.get(event.broker_id, False)
        self._expect("broker-life", may or self._is_followed, f"{event.broker_id} leaves, but is not live")
        self.leaving.add(event.broker_id)

    def _on_broker_fenced(self, event: BrokerFenced | BrokerUnfenced) -> None:
        super()._on_broker_fenced(event)
        self.leaving.discard(event.broker_id)

    _on_broker_unfenced = _on_broker_fenced

    def _live(self) -> set[int]:
        return super()._live() - self.leaving

    def _on_quorum_epoch_begun(self, event: QuorumEpochBegun) -> None:
        self._expect(
            "epochs-never-go-back",
            event.leader_epoch > self.leader_epoch,
            f"{event.leader_epoch} after {self.leader_epoch}",
        )
        self.leader_epoch = event.leader_epoch

    def _on_features_changed(self, event: FeaturesChanged) -> None:
        self.elr = dict(event.features).get("eligible.leader.replicas.version", 0) > 0

    def _on_resource_configs_changed(self, event: ResourceConfigsChanged) -> None:
        self._expect("configs-of-resources", event.kind in (4, 16, 32), f"configs of {event.kind}")

    def _on_producer_ids_allocated(self, event: ProducerIdsAllocated) -> None:
        follows = self.next_producer_id <= event.first < event.next_producer_id
        self._expect("producer-ids-rise", follows, f"ids from {event.first} after {self.next_producer_id}")
        self.next_producer_id = event.next_producer_id
