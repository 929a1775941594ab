"""Formats decisions as short texts for the tables."""

from collections.abc import Iterable

from controller.machine.decision import Decision
from controller.machine.errors import ErrorCode
from events import access, catalog
from events.catalog import Event, Partition, ReplicaMetadata
from events.names import BrokerId
from projections.text.wording import acl_text, quotas_text


def in_short(decision: Decision) -> str:
    words = ["needs_approval"] if decision.needs_approval else []
    words.append(" ".join(event_text(event) for event in decision.events).replace(REFUSED, "refused"))
    codes = {(answer.request_id, answer.topic_name): answer.code for answer in decision.answers}
    for event in decision.events:
        if isinstance(event, catalog.CreateAnswered):
            assert codes[event.request_id, event.topic] == event.error_code, "the answer equals the recorded one"
    for answer in decision.answers:
        waited = f"after {answer.waited_ms} ms" if answer.waited_ms else ""
        each = " ".join(f"{one.partition}:{ErrorCode(one.code).name}" for one in answer.partitions)
        number = str(answer.number) if answer.number else ""
        words.append(" ".join(filter(None, ["=>", ErrorCode(answer.code).name, answer.rule, waited, each, number])))
    return " ".join(filter(None, words)) or "nothing"


REFUSED = "requested rejected answered"


_SHORT: dict[type[Event], str] = {
    catalog.CreateRequested: "requested",
    catalog.CreateRejected: "rejected",
    catalog.ChangeRejected: "rejected",
    catalog.CreateAnswered: "answered",
    catalog.TopicDeleted: "deleted",
    catalog.TopicReady: "ready",
    catalog.TopicVanished: "vanished",
    catalog.CreationRefused: "creation-refused({e.error_code})",
    catalog.ChangeCarriedOut: "carried-out({e.error_code})",
    catalog.BrokerRegistered: "registered({e.broker_id} e{e.broker_epoch})",
    catalog.BrokerFenced: "fenced({e.broker_id} e{e.broker_epoch})",
    catalog.BrokerUnfenced: "unfenced({e.broker_id} e{e.broker_epoch})",
    catalog.BrokerUnregistered: "unregistered({e.broker_id} e{e.broker_epoch})",
    catalog.BrokerLeaving: "leaving({e.broker_id})",
    catalog.LogDirsChanged: "logdirschanged({e.broker_id})",
    catalog.MetadataAdopted: "adopted from {e.source} to {e.end_offset}",
    catalog.MetadataHandedBack: "handed back up to {e.end_offset}",
    catalog.HistorySkipped: "skipped({e.start_offset}-{e.end_offset})",
    catalog.RulesApplied: "rules({e.number})",
    catalog.ApprovalRequested: "held",
    catalog.ApprovalDecided: "{e.outcome}",
    catalog.HeadSigned: "head({e.size})",
    catalog.QuorumEpochBegun: "quorum(e{e.leader_epoch})",
    catalog.SettingsChanged: "settings",
    access.AclsCreated: "acls-created({acls})",
    access.AclsDeleted: "acls-deleted({acls})",
    access.RequestsRefused: "refused({e.count})",
    access.LoginSecretDrawn: "login-secret",
    access.ScramCredentialSet: "credential({e.user})",
    access.ScramCredentialRemoved: "no-credential({e.user})",
}
"""Templates: `e` is the event, `acls` its ACLs."""


def event_text(event: Event) -> str:
    template = _SHORT.get(type(event))
    if template is not None:
        return template.format(e=event, acls=", ".join(map(acl_text, getattr(event, "acls", ()))))
    match event:
        case catalog.TopicCreated():
            return f"created({replicas_text(event.partitions)})"
        case catalog.PartitionsAdded():
            return f"added({event.first}: {replicas_text(event.partitions)})"
        case catalog.TopicConfigsChanged():
            return f"configs({_pairs(event.configs)})"
        case catalog.PartitionChanged(partition=index, before=before, after=after):
            return f"changed({index}: {differences(before, after)} e{after.leader_epoch}/{after.partition_epoch})"
        case catalog.MetadataPropagated():
            return f"known({_joined_by_dots(event.brokers)})"
        case catalog.ResourceConfigsChanged():
            return f"configs({event.kind}:{event.name} {_pairs(event.configs)})"
        case catalog.ProducerIdsAllocated():
            return f"ids({event.first}-{event.next_producer_id - 1} for {event.broker_id})"
        case catalog.FeaturesChanged():
            return f"features({_pairs(event.features)})"
        case catalog.TopicDiscovered():
            leaders = " ".join(f"{p.leader}e{p.leader_epoch}/{p.partition_epoch}" for p in event.partitions)
            configs = "".join(f" {name}={value}" for name, value in event.configs)
            return f"discovered({replicas_text(event.partitions)} led by {leaders}{configs})"
        case access.QuotasChanged():
            return f"quotas({quotas_text(event)})"
        case _:
            raise AssertionError(f"no text for {type(event).__name__}")


def _pairs(pairs: Iterable[tuple[str, object]]) -> str:
    return " ".join(f"{name}={value}" for name, value in pairs)


def differences(before: Partition, after: Partition) -> str:
    """The changed fields of a partition, with the leader if the leader epoch has risen."""
    old, new = before.replica_metadata or ReplicaMetadata(), after.replica_metadata or ReplicaMetadata()
    words = [f"leader={after.leader}"] if after.leader_epoch != before.leader_epoch else []
    lists = [(name, getattr(before, name), getattr(after, name)) for name in ("isr", "replicas")]
    lists += [
        (name, getattr(old, name), getattr(new, name)) for name in ("adding", "removing", "elr", "last_known_elr")
    ]
    words += [f"{name}={_joined_by_dots(ids) or '-'}" for name, had, ids in lists if ids != had]
    if new.directories != old.directories:
        words.append("directories=" + ".".join(str(int.from_bytes(one, "big")) for one in new.directories))
    if new.recovering != old.recovering:
        words.append("recovering" if new.recovering else "recovered")
    return " ".join(words)


def replicas_text(partitions: tuple[Partition, ...]) -> str:
    """The replicas of each partition, after the ISR and a slash if they differ."""
    return " ".join(
        _joined_by_dots(partition.replicas)
        if partition.isr == partition.replicas
        else f"{_joined_by_dots(partition.isr)}/{_joined_by_dots(partition.replicas)}"
        for partition in partitions
    )


def _joined_by_dots(ids: tuple[BrokerId, ...]) -> str:
    return ".".join(map(str, ids))
