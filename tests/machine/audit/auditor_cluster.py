"""The auditor's checks of the target cluster, and of ACLs, credentials and quotas."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from events.access import (
    Acl,
    AclsCreated,
    AclsDeleted,
    LoginSecretDrawn,
    QuotaEntity,
    QuotasChanged,
    RequestsRefused,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from events.catalog import (
    ChangeCarriedOut,
    CreationRefused,
    Partition,
    Recorded,
    TopicDiscovered,
    TopicVanished,
)


@dataclass
class Life:
    request: str
    deadline_ms: int
    partitions: list[dict[str, Any]]
    known_by: set[int] = field(default_factory=set)
    ready: bool = False
    configs: dict[str, str] = field(default_factory=dict)


class Lives(dict[str, Life]):
    """The topics that there are, by name, and without a search by what they would collide with."""

    def __init__(self) -> None:
        super().__init__()
        self._of_shard: dict[str, set[str]] = {}

    def __setitem__(self, name: str, life: Life) -> None:
        super().__setitem__(name, life)
        self._of_shard.setdefault(name.replace(".", "_"), set()).add(name)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._of_shard[name.replace(".", "_")].discard(name)

    def in_shard_of(self, name: str) -> list[str]:
        """The names that stand under the shard key of this one, itself among them if it is there."""
        return sorted(self._of_shard.get(name.replace(".", "_"), ()))


class ClusterWitness:
    """The auditor's checks of the target cluster; keeps `topics` and `settings`."""

    topics: Lives
    settings: dict[str, str]
    live: dict[int, bool]
    record: Recorded

    def _expect(self, check: str, holds: bool, seen: str, topic: str | None = None) -> None:
        raise NotImplementedError

    def _check_partition(self, index: int, partition: dict[str, Any]) -> None:
        raise NotImplementedError

    def _life(self, topic: str) -> Life | None:
        raise NotImplementedError

    def _on_topic_discovered(self, event: TopicDiscovered) -> None:
        self._check_behind()
        others = [name for name in self.topics.in_shard_of(event.topic) if name != event.topic]
        self._expect("one-creation-per-life", not others, f"{others} exist")
        life = self.topics.get(event.topic)
        for index, partition in enumerate(event.partitions):
            before = life.partitions[index] if life is not None and index < len(life.partitions) else None
            if before is not None:
                epochs = (partition.leader_epoch, partition.partition_epoch)
                known = (before["leader_epoch"], before["partition_epoch"])
                forward = all(new >= old for new, old in zip(epochs, known, strict=True))
                self._expect("epochs-never-go-back", forward, f"partition {index}: {epochs} after {known}")
            leads = partition.leader == -1 or self.live.get(partition.leader, False)
            same = before is not None and before == own(partition)
            self._expect("leaders-unfenced", leads or same, f"partition {index}: {partition.leader}")
            self._check_partition(index, own(partition))
        if life is None:
            life = self.topics[event.topic] = Life("", 0, [], ready=True)
        life.partitions = [own(partition) for partition in event.partitions]
        life.configs = dict(event.configs)

    def _on_topic_vanished(self, event: TopicVanished | CreationRefused) -> None:
        self._check_behind()
        life = self._life(event.topic)
        if life is not None:
            refused = isinstance(event, CreationRefused)
            self._expect("created-as-asked", not refused or not life.ready, "refused after it was ready")
            del self.topics[event.topic]

    _on_creation_refused = _on_topic_vanished

    def _on_change_carried_out(self, event: ChangeCarriedOut) -> None:
        self._check_behind()
        self._expect("cause-exists", self.record.cause.request_id == event.request_id, "of another request")

    def _check_behind(self) -> None:
        behind = self.settings.get("has.target.cluster") == "true"
        self._expect("cause-exists", behind, "no cluster carries decisions out")


def own(partition: Partition) -> dict[str, Any]:
    return {
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "leader": int(partition.leader),
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
    }


ACCESS_COMMANDS = frozenset(
    {"CreateAcls", "DeleteAcls", "AlterClientQuotas", "AlterUserScramCredentials", "DrawLoginSecret", "RecordRefusals"}
)


class AccessAudit:
    """ACLs, quotas and credentials according to the log, independent of the machine's state."""

    @cached_property
    def acls(self) -> set[Acl]:
        return set()

    @cached_property
    def quotas(self) -> dict[tuple[QuotaEntity, str], float]:
        """The value of each key of each entity."""
        return {}

    @cached_property
    def logins(self) -> set[tuple[str, str]]:
        return set()

    drew_secret = False
    """True once there is a login secret."""

    def _expect(self, check: str, holds: bool, seen: str, topic: str | None = None) -> None:
        raise NotImplementedError

    def _on_acls_created(self, event: AclsCreated) -> None:
        new = set(event.acls)
        self._expect("acl-life", bool(new) and len(new) == len(event.acls), "an entry twice, or none")
        self._expect("acl-life", not new & self.acls, f"held already: {new & self.acls}")
        self.acls |= new

    def _on_acls_deleted(self, event: AclsDeleted) -> None:
        gone = set(event.acls)
        self._expect("acl-life", bool(gone) and gone <= self.acls, f"did not hold: {gone - self.acls}")
        self.acls -= gone

    def _on_quotas_changed(self, event: QuotasChanged) -> None:
        for key in event.removed:
            self._expect("quota-life", (event.entity, key) in self.quotas, f"{event.entity} has no {key}")
            self.quotas.pop((event.entity, key), None)
        for key, value in event.values:
            self._expect("quota-life", self.quotas.get((event.entity, key)) != value > 0, f"{key} is {value} already")
            self.quotas[event.entity, key] = value

    def _on_requests_refused(self, event: RequestsRefused) -> None:
        self._expect("refusals-counted", event.count > 0 and event.error_code != 0, f"{event.count} of {event.rule}")

    def _on_scram_credential_set(self, event: ScramCredentialSet) -> None:
        self.logins.add((event.user, event.mechanism))

    def _on_scram_credential_removed(self, event: ScramCredentialRemoved) -> None:
        known = (event.user, event.mechanism) in self.logins
        self._expect("credential-life", known, f"{event.user} has no credential")
        self.logins.discard((event.user, event.mechanism))

    def _on_login_secret_drawn(self, event: LoginSecretDrawn) -> None:
        self._expect(
            "credential-life", bool(event.secret) and not self.drew_secret, "a second login secret, or an empty one"
        )
        self.drew_secret = True
