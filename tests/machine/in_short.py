"""Decisions as short texts, for the last column of the tables."""

from __future__ import annotations

from controller.machine.decision import Decision
from controller.machine.errors import ErrorCode
from events import access, catalog
from events.catalog import Event, Partition, ReplicaMetadata
from events.names import BrokerId
from projections.text.wording import acl_text, quotas_text

_OfAccess = (
    access.AclsCreated
    | access.AclsDeleted
    | access.RequestsRefused
    | access.LoginSecretDrawn
    | access.QuotasChanged
    | access.ScramCredentialRemoved
    | access.ScramCredentialSet
)


def in_short(decision: Decision) -> str:
    words = ["needs_approval"] if decision.needs_approval else []
    words.append(" ".join(event_text(event) for event in decision.events).replace(REFUSED, "refused"))
    codes = {(answer.request_id, answer.topic_name): answer.code for answer in decision.answers}
    for event in decision.events:
        if isinstance(event, catalog.CreateAnswered):
            assert codes[event.request_id, event.topic] == event.error_code, "the answer is what the log says"
    for answer in decision.answers:
        waited = f"after {answer.waited_ms} ms" if answer.waited_ms else ""
        each = " ".join(f"{one.partition}:{ErrorCode(one.code).name}" for one in answer.partitions)
        number = str(answer.number) if answer.number else ""
        words.append(" ".join(filter(None, ["=>", ErrorCode(answer.code).name, answer.rule, waited, each, number])))
    return " ".join(filter(None, words)) or "nothing"


REFUSED = "requested rejected answered"


def event_text(event: Event) -> str:  # noqa: PLR0912 - one line an event
    match event:
        case catalog.CreateRequested():
            return "requested"
        case catalog.CreateRejected():
            return "rejected"
        case catalog.TopicCreated():
            return f"created({replicas_text(event.partitions)})"
        case catalog.PartitionsAdded():
            return f"added({event.first}: {replicas_text(event.partitions)})"
        case catalog.TopicDeleted():
            return "deleted"
        case catalog.TopicConfigsChanged():
            return "configs(" + " ".join(f"{name}={value}" for name, value in event.configs) + ")"
        case catalog.ChangeRejected():
            return "rejected"
        case catalog.PartitionChanged(partition=index, before=before, after=after):
            return f"changed({index}: {differences(before, after)} e{after.leader_epoch}/{after.partition_epoch})"
        case catalog.MetadataPropagated():
            return f"known({_dotted(event.brokers)})"
        case catalog.TopicReady():
            return "ready"
        case catalog.CreateAnswered():
            return "answered"
        case catalog.BrokerRegistered():
            return f"registered({event.broker_id} e{event.broker_epoch})"
        case catalog.BrokerFenced() | catalog.BrokerUnfenced() | catalog.BrokerUnregistered():
            return f"{type(event).__name__.removeprefix('Broker').lower()}({event.broker_id} e{event.broker_epoch})"
        case catalog.BrokerLeaving() | catalog.LogDirsChanged():
            return f"{type(event).__name__.removeprefix('Broker').lower()}({event.broker_id})"
        case catalog.MetadataAdopted():
            return f"adopted from {event.source} to {event.end_offset}"
        case catalog.HeadSigned():
            return f"head({event.size})"
        case catalog.MetadataHandedBack():
            return f"handed back up to {event.end_offset}"
        case catalog.HistorySkipped():
            return f"skipped({event.start_offset}-{event.end_offset})"
        case catalog.ResourceConfigsChanged():
            configs = " ".join(f"{name}={value}" for name, value in event.configs)
            return f"configs({event.kind}:{event.name} {configs})"
        case catalog.ProducerIdsAllocated():
            return f"ids({event.first}-{event.next_producer_id - 1} for {event.broker_id})"
        case catalog.QuorumEpochBegun():
            return f"quorum(e{event.leader_epoch})"
        case catalog.FeaturesChanged():
            return "features(" + " ".join(f"{name}={level}" for name, level in event.features) + ")"
        case catalog.SettingsChanged():
            return "settings"
        case catalog.TopicDiscovered():
            leaders = " ".join(f"{p.leader}e{p.leader_epoch}/{p.partition_epoch}" for p in event.partitions)
            configs = "".join(f" {name}={value}" for name, value in event.configs)
            return f"discovered({replicas_text(event.partitions)} led by {leaders}{configs})"
        case catalog.TopicVanished():
            return "vanished"
        case catalog.CreationRefused():
            return f"creation-refused({event.error_code})"
        case catalog.ChangeCarriedOut():
            return f"carried-out({event.error_code})"
        case _:
            return _access_text(event)


def _access_text(event: _OfAccess) -> str:
    match event:
        case access.AclsCreated() | access.AclsDeleted():
            kind = "acls-created" if isinstance(event, access.AclsCreated) else "acls-deleted"
            return f"{kind}({', '.join(map(acl_text, event.acls))})"
        case access.QuotasChanged():
            return f"quotas({quotas_text(event)})"
        case access.RequestsRefused():
            return f"refused({event.count})"
        case access.LoginSecretDrawn():
            return "login-secret"
        case access.ScramCredentialSet() | access.ScramCredentialRemoved():
            return f"{'credential' if isinstance(event, access.ScramCredentialSet) else 'no-credential'}({event.user})"


def differences(before: Partition, after: Partition) -> str:
    """The fields in which a partition differs after a change; the leader if its epoch has risen."""
    old, new = before.replica_metadata or ReplicaMetadata(), after.replica_metadata or ReplicaMetadata()
    words = [f"leader={after.leader}"] if after.leader_epoch != before.leader_epoch else []
    lists = [(name, getattr(before, name), getattr(after, name)) for name in ("isr", "replicas")]
    lists += [
        (name, getattr(old, name), getattr(new, name)) for name in ("adding", "removing", "elr", "last_known_elr")
    ]
    words += [f"{name}={_dotted(ids) or '-'}" for name, had, ids in lists if ids != had]
    if new.directories != old.directories:
        words.append("directories=" + ".".join(str(int.from_bytes(one, "big")) for one in new.directories))
    if new.recovering != old.recovering:
        words.append("recovering" if new.recovering else "recovered")
    return " ".join(words)


def replicas_text(partitions: tuple[Partition, ...]) -> str:
    """Replicas of each partition; those that are in sync stand before the slash, if not all are."""
    return " ".join(
        _dotted(partition.replicas)
        if partition.isr == partition.replicas
        else f"{_dotted(partition.isr)}/{_dotted(partition.replicas)}"
        for partition in partitions
    )


def _dotted(ids: tuple[BrokerId, ...]) -> str:
    return ".".join(map(str, ids))
