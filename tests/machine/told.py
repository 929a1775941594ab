"""Decisions in short, as the last column of the tables has them."""

from __future__ import annotations

from controller.machine.decision import Decision
from controller.machine.errors import ErrorCode
from events.access import (
    AclsCreated,
    AclsDeleted,
    AsksRefused,
    QuotasChanged,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from events.catalog import (
    BrokerFenced,
    BrokerLeaving,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    ChangeCarriedOut,
    ChangeRejected,
    CreateAnswered,
    CreateRejected,
    CreateRequested,
    CreationRefused,
    Event,
    FeaturesChanged,
    IsrChanged,
    LeaderElected,
    LogDirsChanged,
    MetadataAdopted,
    MetadataHandedBack,
    MetadataPropagated,
    Partition,
    PartitionChanged,
    PartitionsAdded,
    PlaceholderFilled,
    ProducerIdsAllocated,
    QuorumEpochBegun,
    ResourceConfigsChanged,
    SettingsChanged,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
    TopicDiscovered,
    TopicReady,
    TopicVanished,
)
from events.names import BrokerId
from projections.access_words import acl_in_words, quotas_in_words

_OfAccess = AclsCreated | AclsDeleted | AsksRefused | QuotasChanged | ScramCredentialRemoved | ScramCredentialSet


def told(decision: Decision) -> str:
    """A decision in short: events, then answers."""
    words = ["consult"] if decision.consult else []
    words.append(" ".join(event_text(event) for event in decision.events).replace(REFUSED, "refused"))
    codes = {(answer.request_id, answer.topic_name): answer.code for answer in decision.answers}
    for event in decision.events:
        if isinstance(event, CreateAnswered):
            assert codes[event.request_id, event.topic] == event.error_code, "the answer is what the log says"
    for answer in decision.answers:
        waited = f"after {answer.waited_ms} ms" if answer.waited_ms else ""
        each = " ".join(f"{one.partition}:{ErrorCode(one.code).name}" for one in answer.partitions)
        number = str(answer.number) if answer.number else ""
        words.append(" ".join(filter(None, ["=>", ErrorCode(answer.code).name, answer.rule, waited, each, number])))
    return " ".join(filter(None, words)) or "nothing"


REFUSED = "requested rejected answered"


def event_text(event: Event) -> str:  # noqa: PLR0912 - one line an event
    """One event in short."""
    match event:
        case CreateRequested():
            return "requested"
        case CreateRejected():
            return "rejected"
        case TopicCreated():
            return f"created({replicas_text(event.partitions)})"
        case PartitionsAdded():
            return f"added({event.first}: {replicas_text(event.partitions)})"
        case TopicDeleted():
            return "deleted"
        case TopicConfigsChanged():
            return "configs(" + " ".join(f"{name}={value}" for name, value in event.configs) + ")"
        case ChangeRejected():
            return "rejected"
        case LeaderElected() | IsrChanged():
            kind = "elected" if isinstance(event, LeaderElected) else "isr"
            return (
                f"{kind}({event.partition}: {event.leader} of {_dotted(event.isr)} "
                f"e{event.leader_epoch}/{event.partition_epoch})"
            )
        case PartitionChanged():
            return f"changed({event.partition}: {_changes(event)} e{event.leader_epoch}/{event.partition_epoch})"
        case PlaceholderFilled():
            return f"filled({event.partition}: {event.placeholder} by {event.broker_id} e{event.partition_epoch})"
        case MetadataPropagated():
            return f"known({_dotted(event.brokers)})"
        case TopicReady():
            return "ready"
        case CreateAnswered():
            return "answered"
        case BrokerRegistered():
            return f"registered({event.broker_id} e{event.broker_epoch})"
        case BrokerFenced() | BrokerUnfenced() | BrokerUnregistered():
            return f"{type(event).__name__.removeprefix('Broker').lower()}({event.broker_id} e{event.broker_epoch})"
        case BrokerLeaving() | LogDirsChanged():
            return f"{type(event).__name__.removeprefix('Broker').lower()}({event.broker_id})"
        case MetadataAdopted():
            return f"adopted from {event.source} to {event.end_offset}"
        case MetadataHandedBack():
            return f"handed back up to {event.end_offset}"
        case ResourceConfigsChanged():
            configs = " ".join(f"{name}={value}" for name, value in event.configs)
            return f"configs({event.kind}:{event.name} {configs})"
        case ProducerIdsAllocated():
            return f"ids({event.first}-{event.next_producer_id - 1} for {event.broker_id})"
        case QuorumEpochBegun():
            return f"quorum(e{event.leader_epoch})"
        case FeaturesChanged():
            return "features(" + " ".join(f"{name}={level}" for name, level in event.features) + ")"
        case SettingsChanged():
            return "settings"
        case TopicDiscovered():
            leaders = " ".join(f"{p.leader}e{p.leader_epoch}/{p.partition_epoch}" for p in event.partitions)
            configs = "".join(f" {name}={value}" for name, value in event.configs)
            return f"discovered({replicas_text(event.partitions)} led by {leaders}{configs})"
        case TopicVanished():
            return "vanished"
        case CreationRefused():
            return f"creation-refused({event.error_code})"
        case ChangeCarriedOut():
            return f"carried-out({event.error_code})"
        case _:
            return _access_text(event)


def _access_text(event: _OfAccess) -> str:
    match event:
        case AclsCreated() | AclsDeleted():
            kind = "acls-created" if isinstance(event, AclsCreated) else "acls-deleted"
            return f"{kind}({', '.join(map(acl_in_words, event.acls))})"
        case QuotasChanged():
            return f"quotas({quotas_in_words(event)})"
        case AsksRefused():
            return f"refused({event.count})"
        case ScramCredentialSet() | ScramCredentialRemoved():
            return f"{'credential' if isinstance(event, ScramCredentialSet) else 'no-credential'}({event.user})"


def _changes(event: PartitionChanged) -> str:
    """What of a partition has changed, in the order of the event's fields."""
    words = [] if event.leader is None else [f"leader={event.leader}"]
    for name in ("isr", "replicas", "adding", "removing", "elr", "last_known_elr"):
        ids: tuple[BrokerId, ...] | None = getattr(event, name)
        if ids is not None:
            words.append(f"{name}={_dotted(ids) or '-'}")
    if event.directories is not None:
        words.append("directories=" + ".".join(str(int.from_bytes(one, "big")) for one in event.directories))
    if event.recovering is not None:
        words.append("recovering" if event.recovering else "recovered")
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
