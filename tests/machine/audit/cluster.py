"""The auditor's checks of brokers, settings, the quorum and access, which concern no single topic."""

from __future__ import annotations

from typing import Any, NamedTuple

from events import access, catalog
from events.access import Acl, QuotaEntity
from events.external_decision import FOLLOW


class Violation(NamedTuple):
    """A violated check: offset, topic, and the value that was found."""

    check: str
    offset: int
    topic: str
    seen: str


class ClusterAudit:
    """The model of the cluster, and the violations found."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.record: catalog.Recorded
        self.settings: dict[str, str] = {}
        self.unfenced: dict[int, bool] = {}
        """The registered brokers."""
        self.cordoned: set[int] = set()
        self.leaving: set[int] = set()
        self.broker_epoch = self.leader_epoch = self.next_producer_id = 0
        self.elr = False
        self.acls: set[Acl] = set()
        self.quotas: dict[tuple[QuotaEntity, str], float] = {}
        self.logins: set[tuple[str, str]] = set()
        self.drew_secret = False
        self.held: set[tuple[str, str]] = set()

    def _expect(self, check: str, holds: bool, seen: str, topic: str | None = None) -> None:
        if not holds:
            name = topic if topic is not None else str(getattr(self.record.event, "topic", ""))
            self.violations.append(Violation(check, self.record.offset, name, seen))

    def _live(self) -> set[int]:
        return {broker for broker, unfenced in self.unfenced.items() if unfenced} - self.leaving

    def _usable(self) -> set[int]:
        return self._live() - self.cordoned

    @property
    def _is_external(self) -> bool:
        """True if another controller made the decision."""
        return self.record.cause.command == FOLLOW

    def _see_broker(self, event: Any) -> None:
        broker_id, was_unfenced = event.broker_id, self.unfenced.get(event.broker_id)
        holds = was_unfenced is not None
        match event:
            case catalog.BrokerRegistered():
                holds = event.broker_epoch > self.broker_epoch and not was_unfenced
                self.broker_epoch = event.broker_epoch
                self.unfenced[broker_id] = False
                self.cordoned.discard(broker_id)
            case catalog.BrokerFenced() | catalog.BrokerUnfenced():
                is_unfenced = isinstance(event, catalog.BrokerUnfenced)
                holds = was_unfenced is (not is_unfenced)
                self.unfenced[broker_id] = is_unfenced
                self.leaving.discard(broker_id)
            case catalog.BrokerLeaving():
                holds = bool(was_unfenced) or self._is_external
                self.leaving.add(broker_id)
            case catalog.LogDirsChanged():
                every = bool(event.log_dirs) and not set(event.log_dirs) - set(event.cordoned)
                (self.cordoned.add if every else self.cordoned.discard)(broker_id)
            case catalog.BrokerUnregistered():
                self.unfenced.pop(broker_id, None)
            case catalog.ProducerIdsAllocated():
                holds = True
                follows = self.next_producer_id <= event.first < event.next_producer_id
                self._expect("producer-ids-rise", follows, f"ids from {event.first} after {self.next_producer_id}")
                self.next_producer_id = event.next_producer_id
        self._expect("broker-life", holds, f"{event} of a broker that is unfenced: {was_unfenced}")

    def _see_cluster(self, event: Any) -> None:
        by = self.record.cause.command
        match event:
            case catalog.SettingsChanged():
                self.settings = dict(event.settings)
            case catalog.RulesApplied():
                self._expect("cause-exists", by in ("ApplyRules", "CopyClusterState"), by)
            case catalog.ApprovalRequested():
                key = event.request_id, event.name
                self._expect("cause-exists", key not in self.held, f"{key} is held twice")
                self.held.add(key)
            case catalog.ApprovalDecided():
                key = event.request_id, event.name
                self._expect("cause-exists", key in self.held, f"{key} is decided, but not held")
                self.held.discard(key)
            case catalog.FeaturesChanged():
                self.elr = dict(event.features).get("eligible.leader.replicas.version", 0) > 0
            case catalog.QuorumEpochBegun():
                rises = event.leader_epoch > self.leader_epoch
                self._expect("epochs-never-go-back", rises, f"{event.leader_epoch} after {self.leader_epoch}")
                self.leader_epoch = event.leader_epoch
            case catalog.ResourceConfigsChanged():
                self._expect("configs-of-resources", event.kind in (4, 16, 32), f"configs of {event.kind}")
            case catalog.HeadSigned():
                self._expect("cause-exists", event.size <= self.record.offset, f"a head of {event.size} events")
            case catalog.MetadataAdopted():
                self._expect("cause-exists", by == "AdoptMetadata", by)
            case catalog.MetadataHandedBack():
                self._expect("cause-exists", by == "HandMetadataBack", by)
            case catalog.HistorySkipped():
                self._expect("cause-exists", self._is_external, by)
                self._expect("offsets-contiguous", event.start_offset < event.end_offset, f"up to {event.end_offset}")
            case _:
                raise AssertionError(f"the auditor does not know {type(event).__name__}")

    # --- access

    def _see_access(self, event: Any) -> None:
        match event:
            case access.AclsCreated():
                new = set(event.acls)
                self._expect("acl-life", bool(new) and len(new) == len(event.acls), "an ACL twice, or none")
                self._expect("acl-life", not new & self.acls, f"exist already: {new & self.acls}")
                self.acls |= new
            case access.AclsDeleted():
                gone = set(event.acls)
                self._expect("acl-life", bool(gone) and gone <= self.acls, f"do not exist: {gone - self.acls}")
                self.acls -= gone
            case access.QuotasChanged():
                for key in event.removed:
                    existed = self.quotas.pop((event.entity, key), None) is not None
                    self._expect("quota-life", existed, f"{event.entity} has no {key}")
                for key, value in event.values:
                    is_new = self.quotas.get((event.entity, key)) != value > 0
                    self._expect("quota-life", is_new, f"{key} is {value} already")
                    self.quotas[event.entity, key] = value
            case access.RequestsRefused():
                counted = event.count > 0 and event.error_code != 0
                self._expect("refusals-counted", counted, f"{event.count} of {event.rule}")
            case access.ScramCredentialSet():
                self.logins.add((event.user, event.mechanism))
            case access.ScramCredentialRemoved():
                known = (event.user, event.mechanism) in self.logins
                self._expect("credential-life", known, f"{event.user} has no credential")
                self.logins.discard((event.user, event.mechanism))
            case access.LoginSecretDrawn():
                is_first = bool(event.secret) and not self.drew_secret
                self._expect("credential-life", is_first, "a second login secret, or an empty one")
                self.drew_secret = True
