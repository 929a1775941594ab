"""Decides on IncrementalAlterConfigs (KIP-339) and AlterConfigs, for topics and other resources, for `decide`.

A request for one resource succeeds as a whole or fails. Checks follow Kafka's order: the request (duplicate keys, null
values, unknown operations: INVALID_REQUEST), each operation (APPEND and SUBTRACT need a list: INVALID_CONFIG), then the
resulting configs. A request that only deletes does not check the remaining configs, so that a client can remove invalid
ones one by one. Values are stored in their canonical form. An unknown operation is INVALID_REQUEST; Kafka fails with
UNKNOWN_SERVER_ERROR.

For brokers (KIP-226), client metrics (KIP-714) and groups (KIP-848), the controller checks the request and the name as
in Kafka; the broker that received the request checks the values. Unlike in Kafka, the controller also checks values
that topics inherit, because Kafka's controller fails on invalid ones.

A log written by Kafka may contain values that Kafka itself cannot read: Kafka validates a value without surrounding
blanks, but stores it with the blanks. Its controller then fails on a `min.insync.replicas` of " 2", and reads an
`unclean.leader.election.enable` of " true" as false. Its brokers fail on such numbers of groups. `unreadable` finds
these values and `repair` returns the command that corrects them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum

from controller.machine.commands.commands import AlterResourceConfigs, CopyClusterState
from controller.machine.configs import groups, topic_configs
from controller.machine.configs.groups import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from controller.machine.configs.topic_configs import BROKER_CONFIGS, BROKER_SYNONYMS, BY_NAME
from controller.machine.configs.values import Bad, ConfigRow, ConfigType, read_value
from controller.machine.decision import NEEDS_APPROVAL, Decision, answered
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.state import BROKERS, CLIENT_METRICS, ELIGIBLE_REPLICAS, GROUPS, TOPICS, Cluster, State
from controller.machine.validation import refused_by_policies
from events.catalog import ConfigOp, Configs, Event, ResourceConfigsChanged, RulesApplied
from events.names import RequestId

_RULE = "validation:alter-request"


class OpType(IntEnum):
    """Kafka's operations of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def altered_topic_configs(
    current: Configs, ops: Sequence[ConfigOp], broker_defaults: Configs = (), *, incremental: bool = True
) -> Configs | Rejection:
    """Returns the explicit configs of a topic after the operations, sorted by name, or the rejection.

    `current` are the configs before; without `incremental`, the operations replace all of them. Removing a missing item
    or adding an existing one changes nothing.
    """
    configs = check_ops(ops) or _after_ops(current if incremental else (), ops, BY_NAME)
    if isinstance(configs, Rejection):
        return configs
    deletes = incremental and all(op.op == OpType.DELETE for op in ops)
    altered = tuple(sorted(configs.items()))
    checked = altered
    if deletes:  # a log written by Kafka may have configs that are invalid
        known = ((name, text) for name, text in altered if name in BY_NAME)
        checked = tuple((name, text) for name, text in known if not isinstance(BY_NAME[name].read(text), Bad))
    rejection = topic_configs.validate_topic_configs(checked, broker_defaults, existing=current)
    return rejection or (altered if deletes else topic_configs.explicit_configs(altered))


def check_ops(ops: Sequence[ConfigOp]) -> Rejection | None:
    """Checks the operations of an alter request for any type of resource. Returns the first error, or None."""
    repeated = [name for name, times in Counter(op.name for op in ops).items() if times > 1]
    if repeated:
        return _invalid_request(f"Error due to duplicate config keys: {', '.join(repeated)}")
    missing = [op.name for op in ops if op.value is None and op.op != OpType.DELETE]
    if missing:
        return _invalid_request(f"Null value not supported for : {', '.join(missing)}")
    for op in ops:
        if not OpType.SET <= op.op <= OpType.SUBTRACT:
            allowed = ", ".join(f"{known.name} {int(known)}" for known in OpType)
            return _invalid_request(f"Unknown operations type {op.op} for key {op.name}; allowed: {allowed}")
    return None


def check_resources(resources: Sequence[tuple[int, str]], others: Collection[int] = ()) -> tuple[Rejection | None, ...]:
    """Checks the resources (type, name) of an alter request.

    A resource that is named twice is refused both times, as in Kafka. The allowed types are TOPIC and those in
    `others`.
    """
    given = Counter(resources)
    return tuple(_bad_resource(kind, name, given[kind, name], others) for kind, name in resources)


def _bad_resource(kind: int, name: str, times: int, others: Collection[int]) -> Rejection | None:
    if times > 1:
        return _invalid_request("Each resource must appear at most once.")
    if kind in others:
        return None
    if kind != TOPICS:
        return _invalid_request(f"Unknown resource type {kind}")
    return _invalid_request("Default topic resources are not allowed.") if not name else None


def _invalid_request(message: str) -> Rejection:
    return Rejection(ErrorCode.INVALID_REQUEST, message, _RULE)


def _after_ops(current: Configs, ops: Iterable[ConfigOp], rows: Mapping[str, ConfigRow]) -> dict[str, str] | Rejection:
    altered = dict(current)
    for op in ops:
        if op.op == OpType.DELETE:
            altered.pop(op.name, None)
        elif op.op == OpType.SET:
            altered[op.name] = op.value or ""
        else:
            row = rows.get(op.name)
            if row is None or row.kind is not ConfigType.LIST:
                return topic_configs.invalid_config(
                    f"Can't {OpType(op.op).name} to key {op.name} because its type is not LIST."
                )
            altered[op.name] = _joined(op, altered.get(op.name, row.default or ""))
    return altered


def _joined(op: ConfigOp, text: str) -> str:
    items = [item for item in _java_split(text) if item]
    for item in map(str.strip, _java_split(op.value or "")):  # blanks around items are not stored
        if op.op == OpType.APPEND and item not in items:
            items.append(item)
        elif op.op == OpType.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def _java_split(text: str) -> list[str]:
    """Java's String.split(","): drops trailing empty items, but a text without a comma is one item."""
    items = text.split(",")
    if "," in text:
        while items and not items[-1]:
            items.pop()
    return items


RESOURCE_CONFIGS: Mapping[str, ConfigRow] = {
    **{name: row for name, row in BROKER_CONFIGS.items() if row.dynamic and row.kind is ConfigType.LIST},
    **CLIENT_METRICS_CONFIGS,
    **GROUP_CONFIGS,
    **BROKER_SYNONYMS,
}
"""Dynamic configs of resources other than topics. Others are stored as they are given."""
BY_CONTROLLER = "User:topicwright"
"""The principal of changes made by the controller itself."""


def alter(state: State, command: AlterResourceConfigs) -> Decision:
    """Changes the dynamic configs of a resource that is not a topic."""
    before = state.cluster.configs_of(command.kind, command.name)
    after = _refused(command, state.cluster) or altered(before, command.ops, command.incremental)
    if not isinstance(after, Rejection):
        after = _invalid(command, after, state.cluster) or _unsafe(command, before, after, state.cluster) or after
        after = refused_by_policies(command.verdict) or after
    if isinstance(after, Rejection):
        return answered(command, code=after.code, message=after.message, rule=after.rule)
    is_judged = command.kind == BROKERS and state.cluster.settings.alter_config_policy_class_name
    if is_judged and command.verdict is None and after != before:
        return NEEDS_APPROVAL
    if command.validate_only or after == before:
        return answered(command)
    who = (command.principal, command.client_id, command.host)
    event = ResourceConfigsChanged(command.request_id, command.kind, command.name, after, *who, before)
    return answered(command, event)


def copy(state: State, command: CopyClusterState) -> Decision:
    """Replaces the brokers' dynamic configs, and rules of an older version, by those of another partition's state."""
    before, after = dict(state.cluster.configs_of_brokers()), dict(command.configs)
    changed = sorted(name for name in before | after if before.get(name, ()) != after.get(name, ()))
    events: list[Event] = [
        ResourceConfigsChanged(command.request_id, BROKERS, name, after.get(name, ()), BY_CONTROLLER, None)
        for name in changed
    ]
    rules = command.rules
    if rules is not None and (state.cluster.rules is None or state.cluster.rules.number < rules.number):
        is_file = rules.sha256 == rules.file_sha256
        events.append(
            RulesApplied(command.request_id, rules.number, rules.text, rules.sha256, is_file, rules.principal, None)
        )
    return Decision(tuple(events))


def with_one_min_isr(cluster: Cluster, features: tuple[tuple[str, int], ...], request_id: RequestId) -> list[Event]:
    """Sets one cluster-wide min.insync.replicas when eligible leader replicas are enabled, as Kafka does.

    Otherwise a broker could acknowledge records with a smaller ISR than the controller assumes, and they would be lost
    when an eligible replica becomes leader.
    """
    if dict(features).get(ELIGIBLE_REPLICAS, 0) == 0:
        return []
    changed: list[tuple[str, Configs]] = []
    for name, configs in cluster.configs_of_brokers():
        if name and topic_configs.MIN_INSYNC_REPLICAS in dict(configs):
            changed.append((name, tuple(pair for pair in configs if pair[0] != topic_configs.MIN_INSYNC_REPLICAS)))
    of_all = dict(cluster.configs_of(BROKERS, ""))
    if topic_configs.MIN_INSYNC_REPLICAS not in of_all:
        of_all[topic_configs.MIN_INSYNC_REPLICAS] = str(topic_configs.min_insync_replicas((), cluster.settings))
        changed.append(("", tuple(sorted(of_all.items()))))
    return [
        ResourceConfigsChanged(request_id, BROKERS, name, configs, BY_CONTROLLER, None) for name, configs in changed
    ]


def _refused(command: AlterResourceConfigs, cluster: Cluster) -> Rejection | None:
    if command.denied:
        what = "Group" if command.kind == GROUPS else "Cluster"
        return Rejection(ErrorCode(command.denied), f"{what} authorization failed.", "authorizer")
    if command.kind == BROKERS:
        return _unknown_broker(command.name, cluster) or check_ops(command.ops)
    if not command.name:
        kind = "group" if command.kind == GROUPS else "client metrics"
        return _invalid_request(f"Default {kind} resources are not allowed.")
    return check_ops(command.ops)


def _unknown_broker(name: str, cluster: Cluster) -> Rejection | None:
    if not name:
        return None
    if not (name.isascii() and name.isdigit()):
        return _invalid_request(f"Invalid broker name {name}; allowed: a broker's id")
    if int(name) in cluster.brokers:
        return None
    return Rejection(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.", _RULE)


def altered(before: Configs, ops: Sequence[ConfigOp], incremental: bool) -> Configs | Rejection:
    """Returns the dynamic configs after the operations, sorted, or the rejection."""
    configs = _after_ops(before if incremental else (), ops, RESOURCE_CONFIGS)
    if isinstance(configs, Rejection):
        return configs
    for name in (op.name for op in ops if op.op != OpType.DELETE):
        row = RESOURCE_CONFIGS.get(name) or ConfigRow(name, ConfigType.STRING, None, None)
        configs[name] = row.canonical(configs[name])
    return topic_configs.too_long(configs) or tuple(sorted(configs.items()))


def _invalid(command: AlterResourceConfigs, after: Configs, cluster: Cluster) -> Rejection | None:
    """Checks the configs of a group, those of client metrics with simulated brokers, and broker configs that topics
    inherit."""
    if command.incremental and all(op.op == OpType.DELETE for op in command.ops):
        return None
    if command.kind == GROUPS:
        return groups.invalid_group_configs(after, within=not cluster.has_kraft_brokers)
    if command.kind == CLIENT_METRICS and not cluster.has_kraft_brokers:
        return groups.invalid_client_metrics(after)
    texts = dict(after) if command.kind == BROKERS else {}
    for op in command.ops:
        row, text = BROKER_SYNONYMS.get(op.name), texts.get(op.name)
        value = None if row is None or text is None else read_value(op.name, row.kind, None, text)
        if isinstance(value, Bad):
            return Rejection(ErrorCode.INVALID_CONFIG, value.message, _RULE)
    return None


def _unsafe(command: AlterResourceConfigs, before: Configs, after: Configs, cluster: Cluster) -> Rejection | None:
    """With eligible leader replicas, all brokers must use one min.insync.replicas (KIP-966)."""
    if command.kind != BROKERS or cluster.feature(ELIGIBLE_REPLICAS) == 0:
        return None
    key = topic_configs.MIN_INSYNC_REPLICAS
    if not command.name and key in dict(before) and key not in dict(after):
        message = f"Cluster-level {key} cannot be removed while ELR is enabled."
        return Rejection(ErrorCode.INVALID_CONFIG, message, _RULE)
    if command.name and any(op.name == key for op in command.ops):
        message = f"Broker-level {key} cannot be altered while ELR is enabled."
        return Rejection(ErrorCode.INVALID_CONFIG, message, _RULE)
    return None


_ENTITIES = {TOPICS: "topics", BROKERS: "brokers", GROUPS: "groups"}
_Kinds = Mapping[str, ConfigType]
_BY_CONTROLLER: _Kinds = {
    name: BY_NAME[name].kind for name in (topic_configs.MIN_INSYNC_REPLICAS, topic_configs.UNCLEAN_ELECTION)
}
_BY_BROKERS: _Kinds = {row.name: row.kind for row in GROUP_CONFIGS.values() if row.kind is ConfigType.INT}
_READ: dict[int, _Kinds] = {TOPICS: _BY_CONTROLLER, BROKERS: _BY_CONTROLLER, GROUPS: _BY_BROKERS}


def unreadable(kind: int, configs: Configs) -> Configs:
    """Returns the configs of a resource that Kafka cannot read."""
    kinds = _READ.get(kind, {})
    return tuple((name, text) for name, text in configs if name in kinds and not _is_plain(name, kinds[name], text))


def repair(kind: int, resource: str, name: str, text: str) -> str:
    """Returns the `kafka-configs` command that corrects a value, or deletes it if it has no valid form."""
    entity = f"--entity-name '{resource}'" if resource else "--entity-default"
    canonical = ConfigRow(name, _READ[kind][name], None, None).canonical(text)
    is_value = _is_plain(name, _READ[kind][name], canonical)
    change = f"--add-config {name}={canonical}" if is_value else f"--delete-config {name}"
    return f"kafka-configs --bootstrap-server HOST:PORT --alter --entity-type {_ENTITIES[kind]} {entity} {change}"


def _is_plain(name: str, kind: ConfigType, text: str) -> bool:
    return text == text.strip() and not isinstance(read_value(name, kind, None, text), Bad)
