"""The second witness for logs of real brokers: what their partitions may be like, judged without the machine.

Beside what the auditor checks of all logs: a partition changes by steps that name what changes, epochs follow the
steps, nobody leads or is eligible who is not a replica, and a directory is known for each replica.
"""

from __future__ import annotations

from typing import Any

from events.catalog import (
    BrokerLeaving,
    FeaturesChanged,
    LogDirsChanged,
    PartitionChanged,
    ProducerIdsAllocated,
    QuorumEpochBegun,
    ResourceConfigsChanged,
)
from tests.machine.auditor import COMMANDS, Auditor

COMMANDS |= {
    "BeginQuorumEpoch", "ChangeFeatures", "BeginShutdown", "ChangeLogDirs", "AssignDirectories",
    "AllocateProducerIds", "ElectLeaders", "BalanceLeaders", "ReassignPartitions", "AlterResourceConfigs",
}  # fmt: skip


class RealAuditor(Auditor):
    """Takes a log of real brokers, record by record; one of simulated brokers it takes as the auditor does."""

    def __init__(self) -> None:
        super().__init__()
        self.leader_epoch = 0
        self.next_producer_id = 0
        self.elr = False

    def _check_partition(self, index: int, partition: dict[str, Any]) -> None:
        """With eligible replicas the in-sync set may be empty; then nobody leads."""
        if not (self.elr and not partition["isr"]):
            super()._check_partition(index, partition)
            return
        self._expect("in-sync", partition["leader"] == -1, f"partition {index}: led, but nobody is in sync")

    def _on_partition_changed(self, event: PartitionChanged) -> None:
        life = self._life(event.topic)
        if life is None or not 0 <= event.partition < len(life.partitions):
            self._expect("topic-exists", life is None, f"no partition {event.partition}")
            return
        partition = life.partitions[event.partition]
        epochs = partition["leader_epoch"] + (event.leader is not None), partition["partition_epoch"] + 1
        seen = event.leader_epoch, event.partition_epoch
        self._expect("epochs", seen == epochs, f"partition {event.partition}: {seen}, expected {epochs}")
        elected = event.leader not in (None, -1, partition["leader"])
        live = not elected or self.live.get(int(event.leader or 0), False)
        self._expect("leaders-live", live, f"partition {event.partition}: {event.leader}")
        partition |= {"leader_epoch": seen[0], "partition_epoch": seen[1]}
        for name in ("leader", "isr", "replicas", "elr", "directories", "adding", "removing"):
            value = getattr(event, name)
            if value is not None:
                partition[name] = list(value) if isinstance(value, tuple) else value
        self._check_partition(event.partition, partition)
        self._check_upkeep(event.partition, partition)

    def _check_upkeep(self, index: int, partition: dict[str, Any]) -> None:
        replicas, eligible = partition["replicas"], set(partition.get("elr", ()))
        apart = eligible <= set(replicas) and not eligible & set(partition["isr"])
        self._expect("in-sync", apart, f"partition {index}: eligible {eligible}, in sync {partition['isr']}")
        known = len(partition.get("directories", replicas)) == len(replicas)
        self._expect("in-sync", known, f"partition {index}: directories of {replicas}")
        moving = {*partition.get("adding", ()), *partition.get("removing", ())}
        self._expect("replicas-distinct", moving <= set(replicas), f"partition {index}: {moving} of {replicas}")

    def _on_broker_leaving(self, event: BrokerLeaving) -> None:
        self._expect("broker-life", self.live.get(event.broker_id, False), f"{event.broker_id} leaves, but is not live")

    def _on_log_dirs_changed(self, event: LogDirsChanged) -> None:
        self._expect("broker-life", event.broker_id in self.live, f"{event.broker_id} is not registered")

    def _on_quorum_epoch_begun(self, event: QuorumEpochBegun) -> None:
        self._expect(
            "epochs", event.leader_epoch > self.leader_epoch, f"{event.leader_epoch} after {self.leader_epoch}"
        )
        self.leader_epoch = event.leader_epoch

    def _on_features_changed(self, event: FeaturesChanged) -> None:
        self.elr = dict(event.features).get("eligible.leader.replicas.version", 0) > 0

    def _on_resource_configs_changed(self, event: ResourceConfigsChanged) -> None:
        self._expect("as-asked", event.kind in (4, 16, 32), f"configs of {event.kind}")

    def _on_producer_ids_allocated(self, event: ProducerIdsAllocated) -> None:
        follows = self.next_producer_id <= event.first < event.next_producer_id
        self._expect("as-asked", follows, f"ids from {event.first} after {self.next_producer_id}")
        self.next_producer_id = event.next_producer_id
