"""Events in words, for people who ask why a topic is as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from events.access import (
    Acl,
    AclsCreated,
    AclsDeleted,
    AsksRefused,
    QuotasChanged,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from events.catalog import (
    Assignment,
    BrokerFenced,
    BrokerLeaving,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    ChangeCarriedOut,
    ChangeRejected,
    ConfigOp,
    ConfigsWanted,
    CreateAnswered,
    CreateRejected,
    CreateRequested,
    CreationRefused,
    DeletionWanted,
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
    PartitionsWanted,
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
    Verdict,
)
from events.names import is_placeholder
from projections.access_words import acls_in_words, quotas_in_words, refusals_in_words
from projections.names import error_name

_KEEPS = {True: "keeps a place", False: "keep places"}
PARTITIONS_TOLD = 6
"""How many partitions are told one by one."""


def in_words(event: Event) -> str:
    """What an event says, in one sentence."""
    match event:
        case CreateRequested():
            return _requested(event)
        case CreateRejected() as e:
            return f"{e.topic} is refused with {error_name(e.error_code)} by {e.rule}: {e.message}"
        case TopicCreated():
            return _created(event)
        case CreateAnswered() as e:
            said = f": {e.message}" if e.message else ""
            return f"the client is answered {error_name(e.error_code)} for {e.topic} after {e.waited_ms} ms{said}"
        case TopicReady() as e:
            return f"{e.topic} is complete: every partition has a leader and every live broker knows it"
        case MetadataPropagated() as e:
            return f"{_brokers(e.brokers)} applied the creation of {e.topic}"
        case LeaderElected() | IsrChanged():
            return _leadership(event)
        case PartitionChanged():
            return _partition_changed(event)
        case PlaceholderFilled() as e:
            return f"partition {e.partition}: broker {e.broker_id} takes the place that {e.placeholder} kept"
        case PartitionsAdded() | TopicDeleted() | TopicConfigsChanged() | ChangeRejected():
            return _changed(event)
        case TopicDiscovered() | TopicVanished() | CreationRefused() | ChangeCarriedOut():
            return _of_the_cluster_behind(event)
        case _:
            return _cluster(event)


def _of_the_cluster_behind(event: TopicDiscovered | TopicVanished | CreationRefused | ChangeCarriedOut) -> str:
    """What is said of the cluster that carries decisions out."""
    match event:
        case TopicDiscovered() as e:
            configs = ", ".join(f"{name}={value}" for name, value in e.configs)
            told = f"{many(len(e.partitions), 'partition')}, {_replicas(e.partitions)}"
            return f"the cluster has {e.topic} with {told}" + (f", {configs}" if configs else "") + f" ({e.reason})"
        case TopicVanished() as e:
            return f"{e.topic} is gone from the cluster ({e.reason})"
        case CreationRefused() as e:
            return f"the cluster refuses to create {e.topic} with {error_name(e.error_code)}: {e.message}"
        case ChangeCarriedOut() as e:
            if e.error_code:
                return f"the cluster refuses the change of {e.topic} with {error_name(e.error_code)}: {e.message}"
            return f"the cluster has carried out the change of {e.topic}"


def _requested(e: CreateRequested) -> str:
    how = e.api if e.api == "HTTP" else f"{e.api} v{e.api_version}"
    if e.api == "Metadata":
        how += " (auto-creation)"
    waits = f"waiting up to {e.timeout_ms} ms" if e.timeout_ms > 0 else "not waiting"
    noted = ", named twice in the request" if e.duplicate else ""
    who = _who(e.principal, e.client_id)
    return f"{who} asks over {how} to create {e.topic} with {create_in_words(e)}, {waits}{noted}"


class Wanted(Protocol):
    """What a create asks for."""

    @property
    def num_partitions(self) -> int: ...
    @property
    def replication_factor(self) -> int: ...
    @property
    def assignments(self) -> tuple[Assignment, ...]: ...
    @property
    def configs(self) -> tuple[tuple[str, str | None], ...]: ...


def create_in_words(wanted: Wanted) -> str:
    """What a create asks for."""
    count, factor = wanted.num_partitions, wanted.replication_factor
    if wanted.assignments:
        words = [f"{many(len(wanted.assignments), 'partition')} on replicas of its own choice"]
    else:
        partitions = "the default partitions" if count == -1 else many(count, "partition")
        words = [partitions, "the default factor" if factor == -1 else f"factor {factor}"]
    return ", ".join([*words, *(f"{name}={value}" for name, value in wanted.configs)])


def _created(e: TopicCreated) -> str:
    if not e.deadline_ms:
        return f"{e.topic} was there, with {many(len(e.partitions), 'partition')}; {_replicas(e.partitions)}"
    placed = f"placed on live {_brokers(e.live_brokers)}" if e.live_brokers else "no broker being live"
    said = [
        f"{e.topic} is created, {many(len(e.partitions), 'partition')} with factor {e.replication_factor}, {placed}"
    ]
    said.append(_replicas(e.partitions))
    kept = sorted(
        {replica for one in e.partitions for replica in one.replicas if is_placeholder(replica)}, reverse=True
    )
    if kept:
        said.append(f"{', '.join(map(str, kept))} {_KEEPS[len(kept) == 1]} for want of live brokers (KIP-409)")
    if e.verdict is not None:
        said.append(_policy(e.verdict))
    return "; ".join(said)


def _policy(verdict: Verdict) -> str:
    if not verdict.observed:
        return "the policy allows it"
    seen = "; ".join(f"{one.rule}: {one.message}" for one in verdict.observed)
    return f"the policy allows it, and notes {seen}"


def _replicas(partitions: Sequence[Partition], first: int = 0) -> str:
    told = [f"{number}: {_ids(one.replicas)}" for number, one in enumerate(partitions[:PARTITIONS_TOLD], first)]
    more = f" and {len(partitions) - PARTITIONS_TOLD} more" if len(partitions) > PARTITIONS_TOLD else ""
    return "replicas " + ", ".join(told) + more


def _leadership(e: LeaderElected | IsrChanged) -> str:
    why = f" ({e.reason})" if e.reason else ""
    if isinstance(e, IsrChanged):
        return f"partition {e.partition}: in sync are now {_ids(e.isr)} under leader {e.leader}{why}"
    if e.leader < 0:
        return f"partition {e.partition} has no leader{why}"
    return f"partition {e.partition}: broker {e.leader} leads in epoch {e.leader_epoch}, in sync are {_ids(e.isr)}{why}"


def _partition_changed(e: PartitionChanged) -> str:
    said = []
    if e.leader is not None:
        said.append(f"broker {e.leader} leads in epoch {e.leader_epoch}" if e.leader >= 0 else "it has no leader")
    for ids, name in ((e.isr, "in sync"), (e.replicas, "replicas"), (e.elr, "eligible to lead")):
        if ids is not None:
            said.append(f"{name} are {_ids(ids)}")
    if e.adding or e.removing:
        said.append(f"on its way are {_ids(e.adding or ())}, to go are {_ids(e.removing or ())}")
    if e.adding == () or e.removing == ():
        said.append("the reassignment is over")
    if e.directories is not None:
        said.append("replicas lie in other directories")
    if e.recovering is not None:
        said.append("the leader recovers" if e.recovering else "the leader has recovered")
    return f"partition {e.partition}: {', '.join(said) or 'the last leader is noted'} ({e.reason})"


def _changed(e: PartitionsAdded | TopicDeleted | TopicConfigsChanged | ChangeRejected) -> str:
    who = _who(e.principal, e.client_id)
    match e:
        case PartitionsAdded():
            last = e.first + len(e.partitions)
            return f"{who} raises {e.topic} from {e.first} to {last} partitions; {_replicas(e.partitions, e.first)}"
        case TopicDeleted():
            return f"{who} deletes {e.topic}"
        case TopicConfigsChanged():
            configs = ", ".join(f"{name}={value}" for name, value in e.configs) or "none"
            return f"{who} changes the configs of {e.topic}; set are now: {configs}"
        case ChangeRejected():
            refusal = f"but is refused with {error_name(e.error_code)} by {e.rule}: {e.message}"
            return f"{who} asks of {e.topic} {change_in_words(e.asked.wanted)}, {refusal}"


def change_in_words(wanted: PartitionsWanted | DeletionWanted | ConfigsWanted) -> str:
    """What a change of a topic asks for."""
    match wanted:
        case PartitionsWanted():
            by_hand = "" if wanted.assignments is None else " on replicas of its own choice"
            return f"to have {many(wanted.count, 'partition')}{by_hand}"
        case DeletionWanted():
            return "to be deleted"
        case ConfigsWanted():
            steps = ", ".join(_step(op) for op in wanted.ops) or "nothing"
            return f"to change configs: {steps}" if wanted.incremental else f"to have the configs {steps}"


def _step(op: ConfigOp) -> str:
    if op.op == 1:
        return f"without {op.name}"
    return f"{op.name}{_SIGNS.get(op.op, '?')}{op.value}"


_SIGNS = {0: "=", 2: "+=", 3: "-="}
"""SET, APPEND and SUBTRACT (KIP-339)."""


def _cluster(event: Event) -> str:
    match event:
        case BrokerRegistered() as e:
            rack = f" in {e.rack}" if e.rack else ""
            unclean = "" if e.details is None or e.details.clean else ", after an unclean end"
            return f"broker {e.broker_id} registers{rack}, with epoch {e.broker_epoch}{unclean}"
        case BrokerFenced() as e:
            return f"broker {e.broker_id} is fenced ({e.reason})"
        case BrokerUnfenced() as e:
            return f"broker {e.broker_id} is live ({e.reason})"
        case BrokerUnregistered() as e:
            return f"broker {e.broker_id} is forgotten ({e.reason})"
        case BrokerLeaving() as e:
            return f"broker {e.broker_id} begins to leave"
        case LogDirsChanged() as e:
            return f"broker {e.broker_id} has {many(len(e.log_dirs), 'log directory', 'log directories')} online"
        case QuorumEpochBegun() as e:
            return f"controller {e.node_id} leads in epoch {e.leader_epoch}"
        case FeaturesChanged() as e:
            levels = ", ".join(f"{name} {level}" for name, level in e.features)
            return f"the cluster's features are {levels} ({e.reason})"
        case ResourceConfigsChanged() | ProducerIdsAllocated():
            return _of_real_brokers(event)
        case SettingsChanged() as e:
            return f"{many(len(e.settings), 'setting')} of release {e.release} decide from here on"
        case MetadataAdopted() | MetadataHandedBack():
            return _of_another_controller(event)
        case _:
            return _access(event)


def _access(event: Event) -> str:
    match event:
        case ScramCredentialSet() as e:
            return f"{_who(e.principal, e.client_id)} sets the password of user {e.user} for {e.mechanism}"
        case ScramCredentialRemoved() as e:
            return f"{_who(e.principal, e.client_id)} removes the password of user {e.user} for {e.mechanism}"
        case AclsCreated() as e:
            return f"{_who(e.principal, e.client_id)} adds {_acls(e.acls)}"
        case AclsDeleted() as e:
            return f"{_who(e.principal, e.client_id)} takes away {_acls(e.acls)}"
        case QuotasChanged() as e:
            return f"{_who(e.principal, e.client_id)} changes the {quotas_in_words(e)}"
        case AsksRefused() as e:
            return refusals_in_words(e)
        case _:
            raise AssertionError(f"no words for {type(event).__name__}")


def _acls(acls: Sequence[Acl]) -> str:
    entries = "an access control entry" if len(acls) == 1 else f"{len(acls)} access control entries"
    return f"{entries}: {acls_in_words(acls)}"


def _of_real_brokers(e: ResourceConfigsChanged | ProducerIdsAllocated) -> str:
    if isinstance(e, ProducerIdsAllocated):
        return f"broker {e.broker_id} may give out the producer ids {e.first} to {e.next_producer_id - 1}"
    kind = {4: "broker", 16: "client metrics", 32: "group"}.get(e.kind, f"resource {e.kind}")
    what = f"{kind} {e.name}" if e.name else "all brokers"
    configs = ", ".join(f"{name}={value}" for name, value in e.configs) or "none"
    return f"{_who(e.principal, e.client_id)} changes the configs of {what}; set are now: {configs}"


def _of_another_controller(e: MetadataAdopted | MetadataHandedBack) -> str:
    if isinstance(e, MetadataHandedBack):
        return f"the metadata log is handed back to Kafka's controller up to offset {e.end_offset}, in {e.folder}"
    kept = f", with {many(len(e.kept), 'record')} that no event tells" if e.kept else ""
    return f"the metadata log of node {e.source} is taken over up to offset {e.end_offset}{kept}"


def _who(principal: str, client_id: str | None) -> str:
    return f"{principal} ({client_id})" if client_id else principal


def _brokers(ids: Sequence[int]) -> str:
    return f"{'broker' if len(ids) == 1 else 'brokers'} {', '.join(map(str, sorted(ids)))}"


def _ids(ids: Iterable[int]) -> str:
    return "[" + ",".join(map(str, ids)) + "]"


def many(count: int, thing: str, things: str = "") -> str:
    """A count of things: `1 partition`, `3 partitions`; `things` where more are not made by an s."""
    return f"{count} {thing}" if count == 1 else f"{count} {things or thing + 's'}"
