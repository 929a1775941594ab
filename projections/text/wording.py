"""Formats events, ACLs, quotas and changes as sentences with Kafka's names, for the HTTP API and the command line."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from events import access, catalog
from events.access import Acl, QuotasChanged, RequestsRefused
from events.catalog import Event, Partition, Recorded, ReplicaMetadata
from events.codec import without_secrets
from events.external_decision import external_decision
from events.names import is_placeholder
from projections.text.names import error_name_and_code

PARTITIONS_SHOWN_MAX = 6
"""The maximum number of partitions to list one by one."""


def _in_parts(event: Event) -> str:
    match event:
        case catalog.CreateAnswered() as e:
            message = f": {e.message}" if e.message else ""
            outcome = "success" if not e.error_code else error_name_and_code(e.error_code)
            return f"{e.topic}: answered in {e.waited_ms} ms: {outcome}{message}"
        case catalog.PartitionsAdded() as e:
            last = e.first + len(e.partitions)
            grown = f"{_who(e)} raises {e.topic} from {e.first} to {last} partitions"
            placed = f", placed on live {_brokers(e.live_brokers)}{_cordoned(e)}" if e.cordoned_brokers else ""
            return f"{grown}{placed}; {_replicas(e.partitions, e.first)}"
        case catalog.ChangeRejected() as e:
            refusal = f"but is rejected with {error_name_and_code(e.error_code)} by {e.rule}: {e.message}"
            return f"{_who(e)} requests a change of {e.topic} ({change_text(e.request.change)}), {refusal}"
        case catalog.TopicDiscovered() as e:
            configs = f", {_configs(e.configs)}" if e.configs else ""
            size = many(len(e.partitions), "partition")
            return f"the cluster has {e.topic} with {size}, {_replicas(e.partitions)}{configs} ({e.reason})"
        case catalog.ChangeCarriedOut() as e:
            if e.error_code:
                return (
                    f"the cluster refuses the change of {e.topic} with {error_name_and_code(e.error_code)}: {e.message}"
                )
            return f"the cluster has applied the change of {e.topic}"
        case catalog.BrokerRegistered() as e:
            rack = f" in {e.rack}" if e.rack else ""
            unclean = "" if e.details is None or e.details.clean else ", after an unclean shutdown"
            return f"broker {e.broker_id} registers{rack}, with epoch {e.broker_epoch}{unclean}"
        case catalog.LogDirsChanged() as e:
            cordoned = f", {len(e.cordoned)} of them cordoned" if e.cordoned else ""
            online = many(len(e.log_dirs), "log directory", "log directories")
            return f"broker {e.broker_id} has {online} online{cordoned}"
        case catalog.FeaturesChanged() as e:
            levels = ", ".join(f"{name} {level}" for name, level in e.features)
            return f"the cluster's features are {levels} ({e.reason})"
        case catalog.ResourceConfigsChanged() as e:
            kind = _RESOURCES.get(e.kind, f"resource {e.kind}")
            what = f"{kind} {e.name}" if e.name else "all brokers"
            return f"{_who(e)} changes the configs of {what}{_values_text(e)}"
        case catalog.MetadataAdopted() as e:
            return f"the metadata log of node {e.source} is taken over up to offset {e.end_offset}"
        case _:
            raise AssertionError(f"no sentence for {type(event).__name__}")


def _rules_observed(e: catalog.RulesObserved) -> str:
    notes = {"warned": e.warned, "only observed": e.observed}
    parts = [f"{how} {one.rule}: {one.message}" for how, some in notes.items() for one in some]
    parts += [f"{one.name} = {one.value} filled by {one.rule}" for one in e.defaults]
    return f"{e.topic or 'the defaults of brokers'} ({e.change} by {e.principal or 'others'}): {'; '.join(parts)}"


_DECIDED = {
    "approved": "{who} approves request {e.request_id} for {e.name}, done as {e.reason}",
    "denied": "{who} denies request {e.request_id} for {e.name}: {e.reason}",
    "expired": "request {e.request_id} for {e.name} has expired without approval",
}
_RESOURCES = {4: "broker", 16: "client metrics", 32: "group"}
"""Kafka's numbers of resource types with configs, except topics."""


def _requested(e: catalog.CreateRequested) -> str:
    how = api_text(e.api, e.api_version)
    if e.api == "Metadata":
        how += " (auto-creation)"
    waits = f"waiting up to {e.timeout_ms} ms" if e.timeout_ms > 0 else "not waiting"
    duplicate = ", named twice in the request" if e.duplicate else ""
    return f"{_who(e)} requests by {how} to create {e.topic} with {create_text(e)}, {waits}{duplicate}"


def create_text(requested: catalog.CreateRequested | catalog.RequestedCreation) -> str:
    """The parameters of a create as text."""
    count, factor = requested.num_partitions, requested.replication_factor
    if requested.assignments:
        words = [f"{many(len(requested.assignments), 'partition')} with manual replica assignment"]
    else:
        partitions = "the default partitions" if count == -1 else many(count, "partition")
        words = [partitions, "the default factor" if factor == -1 else f"factor {factor}"]
    return ", ".join([*words, *([_configs(requested.configs)] if requested.configs else [])])


def _created(e: catalog.TopicCreated) -> str:
    placed = f"placed on live {_brokers(e.live_brokers)}{_cordoned(e)}" if e.live_brokers else "while no broker is live"
    size = f"{many(len(e.partitions), 'partition')} with factor {e.replication_factor}"
    parts = [f"{e.topic} is created, {size}, {placed}", _replicas(e.partitions)]
    placeholders = {replica for one in e.partitions for replica in one.replicas if is_placeholder(replica)}
    if placeholders:
        ids = ", ".join(map(str, sorted(placeholders, reverse=True)))
        are = "is a placeholder" if len(placeholders) == 1 else "are placeholders"
        parts.append(f"{ids} {are}: too few brokers are live (KIP-409)")
    if e.verdict is not None:
        seen = "; ".join(f"{one.rule}: {one.message}" for one in e.verdict.observed)
        parts.append("the policy allows it" + (f", and reports {seen}" if seen else ""))
    return "; ".join(parts)


def _cordoned(e: catalog.TopicCreated | catalog.PartitionsAdded) -> str:
    if not e.cordoned_brokers:
        return ""
    return f" but not on {_brokers(e.cordoned_brokers)}, with all log directories cordoned"


def _replicas(partitions: Sequence[Partition], first: int = 0) -> str:
    shown = [f"{number}: {_ids(one.replicas)}" for number, one in enumerate(partitions[:PARTITIONS_SHOWN_MAX], first)]
    more = f" and {len(partitions) - PARTITIONS_SHOWN_MAX} more" if len(partitions) > PARTITIONS_SHOWN_MAX else ""
    return "replicas " + ", ".join(shown) + more


def _partition_changed(e: catalog.PartitionChanged) -> str:
    before, after = e.before, e.after
    old, new = before.replica_metadata or ReplicaMetadata(), after.replica_metadata or ReplicaMetadata()
    parts = []
    if after.leader < 0 and e.has_new_leader:
        parts.append("it has no leader")
    elif after.leader_epoch != before.leader_epoch:
        parts.append(f"broker {after.leader} leads in epoch {after.leader_epoch}")
    if after.isr != before.isr:
        parts.append(f"the ISR is {_ids(after.isr)}")
    fills = [pair for pair in zip(before.replicas, after.replicas, strict=False) if pair[1] in e.filled]
    parts += [f"broker {broker} replaces placeholder {placeholder}" for placeholder, broker in fills]
    if after.replicas != before.replicas and not fills:
        parts.append(f"replicas are {_ids(after.replicas)}")
    if new.elr != old.elr:
        parts.append(f"eligible leader replicas are {_ids(new.elr)}")
    if (new.adding, new.removing) != (old.adding, old.removing):
        if new.adding or new.removing:
            parts.append(f"adding replicas are {_ids(new.adding)}, removing replicas are {_ids(new.removing)}")
        else:
            parts.append("the reassignment is complete")
    if new.directories != old.directories:
        parts.append("replicas are in other directories")
    if new.recovering != old.recovering:
        parts.append("the leader recovers" if new.recovering else "the leader has recovered")
    if not parts:
        is_same = new.last_known_elr == old.last_known_elr
        parts.append("its epoch rises" if is_same else "the last known leader is recorded")
    return f"partition {e.partition}: {', '.join(parts)}" + (f" ({e.reason})" if e.reason else "")


def change_text(change: catalog.Requested) -> str:
    """A requested change of a topic as text."""
    match change:
        case catalog.RequestedCreation():
            return f"to be created with {create_text(change)}"
        case catalog.RequestedPartitions():
            manual = "" if change.assignments is None else " with manual replica assignment"
            return f"to have {many(change.count, 'partition')}{manual}"
        case catalog.RequestedDeletion():
            return "to be deleted"
        case catalog.RequestedConfigs():
            steps = ", ".join(_step(op) for op in change.ops) or "nothing"
            return f"to change configs: {steps}" if change.incremental else f"to have the configs {steps}"


def _step(op: catalog.ConfigOp) -> str:
    if op.op == 1:
        return f"without {op.name}"
    return f"{op.name}{_SIGNS.get(op.op, '?')}{op.value}"


_SIGNS = {0: "=", 2: "+=", 3: "-="}
"""SET, APPEND and SUBTRACT (KIP-339)."""


def _acls(acls: Sequence[access.Acl]) -> str:
    return f"{'an ACL' if len(acls) == 1 else f'{len(acls)} ACLs'}: {acls_text(acls)}"


def _who(event: Event) -> str:
    """The client that caused an event; "" without one."""
    return client_text(getattr(event, "principal", ""), getattr(event, "client_id", None))


def client_text(principal: str, client_id: str | None) -> str:
    return f"{principal} ({client_id})" if client_id else principal


def api_text(api: str, version: int) -> str:
    """A Kafka API with its version, `CreateTopics v7`, or `HTTP`."""
    return api if api == "HTTP" else f"{api} v{version}"


Value = tuple[str, str | None, str | None]
"""A name with its value before and after; None if unset."""


def changed(before: Iterable[tuple[str, str]], after: Iterable[tuple[str, str]]) -> list[Value]:
    """The names with different values, in order."""
    old, new = dict(before), dict(after)
    names = sorted(old.keys() | new.keys())
    return [(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def changed_values(event: Event) -> list[Value]:
    """The values that an event changed; secrets are hidden. Empty if the event lacks the values before."""
    match without_secrets(event):
        case (
            catalog.TopicConfigsChanged(before=before, configs=after)
            | catalog.ResourceConfigsChanged(before=before, configs=after)
            | catalog.SettingsChanged(before=before, settings=after)
        ) if before is not None:
            return changed(before, after)
        case catalog.PartitionsAdded() as e:
            return [("partitions", str(e.first), str(e.first + len(e.partitions)))]
        case _:
            return []


def _changes_text(event: Event) -> str:
    """The changed values after a colon; empty if they are unknown."""
    texts = [f"{name} {unset(before)} -> {unset(after)}" for name, before, after in changed_values(event)]
    return f": {', '.join(texts)}" if texts else ""


def _values_text(event: catalog.TopicConfigsChanged | catalog.ResourceConfigsChanged) -> str:
    """The changed configs of an event, or all if the event lacks the configs before."""
    return _changes_text(event) or f"; now set: {_configs(without_secrets(event).configs)}"  # type: ignore[union-attr]


def unset(text: str | None) -> str:
    return "unset" if text is None else text


def _configs(pairs: Iterable[tuple[str, str | None]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in pairs) or "none"


def many(count: int, thing: str, things: str = "") -> str:
    """A count with its noun: `1 partition`, `3 partitions`; `things` is an irregular plural."""
    return f"{count} {thing}" if count == 1 else f"{count} {things or thing + 's'}"


def _brokers(ids: Sequence[int]) -> str:
    return f"{'broker' if len(ids) == 1 else 'brokers'} {', '.join(map(str, sorted(ids)))}"


def _ids(ids: Iterable[int]) -> str:
    return "[" + ",".join(map(str, ids)) + "]"


RESOURCE_TYPES = dict(enumerate(("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"), start=2))
OPERATIONS = dict(
    enumerate(
        ("All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction", "DescribeConfigs",
         "AlterConfigs", "IdempotentWrite", "CreateTokens", "DescribeTokens", "TwoPhaseCommit"),
        start=2,
    )
)  # fmt: skip
"""Kafka's names, by its numbers."""
DEFAULT_ENTITY: Final = "<default>"
"""The default entity, as in Kafka's tools."""

_PREFIXED, _DENY = 4, 2
_SHOWN_MAX = 5
"""The maximum number of ACLs to list one by one."""


def acl_text(acl: Acl) -> str:
    """An ACL as text: `User:bob may Create Topic:pay.* (prefixed) from 10.0.0.7`."""
    verb = "may not" if acl.permission == _DENY else "may"
    operation = OPERATIONS.get(acl.operation, str(acl.operation))
    resource = f"{RESOURCE_TYPES.get(acl.resource_type, acl.resource_type)}:{acl.name}"
    prefixed = " (prefixed)" if acl.pattern_type == _PREFIXED else ""
    host = "" if acl.host == "*" else f" from {acl.host}"
    return f"{acl.principal} {verb} {operation} {resource}{prefixed}{host}"


def acls_text(acls: Sequence[Acl]) -> str:
    """The first ACLs, and the number of the others."""
    shown = "; ".join(acl_text(acl) for acl in acls[:_SHOWN_MAX])
    return f"{shown}; and {len(acls) - _SHOWN_MAX} more" if len(acls) > _SHOWN_MAX else shown


def entity_text(entity: Iterable[tuple[str, str | None]]) -> str:
    """An entity of quotas: `client-id=app,user=<default>`."""
    return ",".join(f"{kind}={DEFAULT_ENTITY if name is None else name}" for kind, name in sorted(entity))


def quotas_text(event: QuotasChanged) -> str:
    entity = ", ".join(f"{kind} {DEFAULT_ENTITY if name is None else name}" for kind, name in event.entity)
    steps = [f"{key}={value:g}" for key, value in event.values] + [f"no {key}" for key in event.removed]
    return f"quotas of {entity}: {', '.join(steps)}"


def refusals_text(event: RequestsRefused) -> str:
    times = "once" if event.count == 1 else f"{event.count} times"
    denied = f"{event.operation} on {event.resource}" if event.operation else event.resource
    error = error_name_and_code(event.error_code)
    return f"{event.principal} is rejected for {event.api}, {denied}, {times} with {error} by {event.rule}"


_SENTENCES: dict[type[Event], str | Callable[[Any], str]] = {
    catalog.CreateRequested: _requested,
    catalog.TopicCreated: _created,
    catalog.PartitionChanged: _partition_changed,
    catalog.RulesObserved: _rules_observed,
    catalog.MetadataPropagated: lambda e: f"{_brokers(e.brokers)} applied the creation of {e.topic}",
    catalog.CreateRejected: "{e.topic} is rejected with {error} by {e.rule}: {e.message}",
    catalog.TopicReady: "{e.topic} is ready: every partition has a leader and every live broker knows it",
    catalog.TopicVanished: "{e.topic} no longer exists in the cluster ({e.reason})",
    catalog.CreationRefused: "the cluster refuses to create {e.topic} with {error}: {e.message}",
    catalog.TopicDeleted: "{who} deletes {e.topic}",
    catalog.TopicConfigsChanged: lambda e: f"{_who(e)} changes the configs of {e.topic}{_values_text(e)}",
    catalog.BrokerFenced: "broker {e.broker_id} is fenced ({e.reason})",
    catalog.BrokerUnfenced: "broker {e.broker_id} is live ({e.reason})",
    catalog.BrokerUnregistered: "broker {e.broker_id} is unregistered ({e.reason})",
    catalog.BrokerLeaving: "broker {e.broker_id} begins controlled shutdown",
    catalog.ProducerIdsAllocated: lambda e: (
        f"broker {e.broker_id} gets the producer ids {e.first} to {e.next_producer_id - 1}"
    ),
    catalog.SettingsChanged: lambda e: (
        f"{many(len(e.settings), 'setting')} of release {e.release} are effective from here on{_changes_text(e)}"
    ),
    catalog.QuorumEpochBegun: "controller {e.node_id} leads in epoch {e.leader_epoch}",
    catalog.MetadataHandedBack: (
        "the metadata log is handed back to Kafka's controller up to offset {e.end_offset}, in {e.folder}"
    ),
    catalog.RulesApplied: "{who} applies version {e.number} of the rules, sha256 {e.sha256:.12}",
    catalog.ApprovalRequested: lambda e: (
        f"the change of {e.name} ({change_text(e.request.change)}) by {e.principal} waits for approval, because of "
        f"{', '.join(dict(e.rules))}"
    ),
    catalog.ApprovalDecided: lambda e: _DECIDED[e.outcome].format(e=e, who=_who(e)),
    catalog.HeadSigned: "the tree head over the first {e.size} events is signed",
    catalog.HistorySkipped: (
        "the changes in the metadata log from offset {e.start_offset} up to {e.end_offset} are unknown ({e.reason})"
    ),
    access.ScramCredentialSet: "{who} sets the password of user {e.user} for {e.mechanism}",
    access.ScramCredentialRemoved: "{who} removes the password of user {e.user} for {e.mechanism}",
    access.AclsCreated: lambda e: f"{_who(e)} adds {_acls(e.acls)}",
    access.AclsDeleted: lambda e: f"{_who(e)} removes {_acls(e.acls)}",
    access.QuotasChanged: lambda e: f"{_who(e)} changes the {quotas_text(e)}",
    access.RequestsRefused: refusals_text,
    access.LoginSecretDrawn: "a secret for the login challenges of unknown users is set",
}
"""Functions, and templates: the event is `e`, its client `who`; `error` is formatted."""


def event_text(event: Event) -> str:
    sentence = _SENTENCES.get(type(event), _in_parts)
    if not isinstance(sentence, str):
        return sentence(event)
    return sentence.format(e=event, who=_who(event), error=error_name_and_code(getattr(event, "error_code", 0)))


def recorded_text(record: Recorded) -> str:
    """An event as a sentence, which names the deciding controller if another controller decided the event."""
    text = event_text(record.event)
    decided = external_decision(record.cause)
    if decided is None or decided.summary in text or isinstance(record.event, catalog.HistorySkipped):
        return text
    return f"{text} ({decided.summary})"
