"""Changing the dynamic configs of brokers (KIP-226), client metrics subscriptions (KIP-714) and groups (KIP-848).

As in Kafka the controller checks the request and the name; which values a broker takes is checked by the broker that
the request came through. Beyond Kafka, whose controllers store any text: a text is stored in its canonical form, and
one that is no value of its type is refused where topics inherit it, because Kafka's controller fails on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.machine.commands.commands import AlterResourceConfigs, CopyBrokerConfigs
from controller.machine.configs.changes import OpType, check_steps, joined
from controller.machine.configs.groups import GROUP_CONFIGS, GROUPS, invalid_group_configs
from controller.machine.configs.table import BROKER_SYNONYMS
from controller.machine.configs.topic_configs import MIN_INSYNC_REPLICAS, min_insync_replicas, too_long
from controller.machine.configs.values import Bad, ConfigType, canonical_text, read_value
from controller.machine.decision import Answer, Decision
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.partitions.rules import has_real_brokers
from controller.machine.state import BROKERS, ELIGIBLE_REPLICAS, Cluster, State
from events.catalog import ConfigOp, Configs, Event, ResourceConfigsChanged
from events.names import RequestId

CLIENT_METRICS = 16
"""Kafka's number of client metrics among what has configs."""
LISTS = {
    "config.providers": "",
    "cordoned.log.dirs": "",
    "listeners": "PLAINTEXT://:9092",
    "log.cleanup.policy": "delete",
    "match": "",
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
    "metrics": "",
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.kerberos.principal.to.local.rules": "DEFAULT",
    "ssl.cipher.suites": "",
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "streams.rack.aware.assignment.tags": "",
}
"""The dynamic configs that are lists, so that APPEND and SUBTRACT have a meaning, with what they are where not set."""
_RULE = "validation:alter-request"
BY_CONTROLLER = "User:topicwright"
"""Who changes what the controller changes by itself."""


def alter(state: State, command: AlterResourceConfigs) -> Decision:
    """Change the dynamic configs of what is not a topic. A request is done as a whole or not at all."""
    before = state.cluster.configs_of(command.kind, command.name)
    after = _refused(command, state.cluster) or altered(before, command.ops, command.incremental)
    after = _invalid(command, after, state.cluster) or after
    if isinstance(after, Rejection):
        return Decision((), (Answer(command.request_id, command.topic, int(after.code), after.message, after.rule),))
    rejection = _unsafe(command, before, after, state.cluster)
    if rejection is not None:
        code = int(rejection.code)
        return Decision((), (Answer(command.request_id, command.topic, code, rejection.message, rejection.rule),))
    answer = Answer(command.request_id, command.topic, 0)
    if command.validate_only or after == before:
        return Decision((), (answer,))
    who = (command.principal, command.client_id, command.host)
    event = ResourceConfigsChanged(command.request_id, command.kind, command.name, after, *who, before)
    return Decision((event,), (answer,))


def copy(state: State, command: CopyBrokerConfigs) -> Decision:
    """Take over the dynamic configs of brokers; nothing where they are the same."""
    before, after = dict(state.cluster.configs_of_brokers()), dict(command.configs)
    changed = sorted(name for name in before | after if before.get(name, ()) != after.get(name, ()))
    return Decision(
        tuple(
            ResourceConfigsChanged(command.request_id, BROKERS, name, after.get(name, ()), BY_CONTROLLER, None)
            for name in changed
        )
    )


def with_one_min_isr(cluster: Cluster, features: tuple[tuple[str, int], ...], request_id: RequestId) -> list[Event]:
    """What comes with features that have eligible leader replicas: all brokers go by one min.insync.replicas, that of
    this controller, as Kafka sets it then. Else a broker could acknowledge with fewer in sync than eligibility reckons
    with, and records would be lost when one that is eligible leads."""
    if dict(features).get(ELIGIBLE_REPLICAS, 0) == 0:
        return []
    changed: list[tuple[str, Configs]] = []
    for (kind, name), configs in cluster.resource_configs:
        if kind == BROKERS and name and MIN_INSYNC_REPLICAS in dict(configs):
            changed.append((name, tuple(pair for pair in configs if pair[0] != MIN_INSYNC_REPLICAS)))
    of_all = dict(cluster.configs_of(BROKERS, ""))
    if MIN_INSYNC_REPLICAS not in of_all:
        of_all[MIN_INSYNC_REPLICAS] = str(min_insync_replicas((), cluster.settings))
        changed.append(("", tuple(sorted(of_all.items()))))
    return [
        ResourceConfigsChanged(request_id, BROKERS, name, configs, BY_CONTROLLER, None) for name, configs in changed
    ]


def _refused(command: AlterResourceConfigs, cluster: Cluster) -> Rejection | None:
    if command.denied:
        what = "Group" if command.kind == GROUPS else "Cluster"
        return Rejection(ErrorCode(command.denied), f"{what} authorization failed.", "authorizer")
    if command.kind == BROKERS:
        return _unknown_broker(command.name, cluster) or check_steps(command.ops)
    if not command.name:
        return Rejection(ErrorCode.INVALID_REQUEST, "Default resources of this type are not allowed.", _RULE)
    return check_steps(command.ops)


def _unknown_broker(name: str, cluster: Cluster) -> Rejection | None:
    if not name:
        return None
    if not (name.isascii() and name.isdigit()):
        return Rejection(ErrorCode.INVALID_REQUEST, f"Invalid broker name {name}; allowed: a broker's id", _RULE)
    if int(name) in cluster.brokers:
        return None
    return Rejection(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.", _RULE)


def altered(before: Configs, ops: Sequence[ConfigOp], incremental: bool) -> Configs | Rejection:
    """The dynamic configs after these steps, or in place of those before, sorted; or why it cannot be."""
    configs = dict(before) if incremental else {}
    for op in ops:
        value = _stepped(op, configs.get(op.name))
        if isinstance(value, Rejection):
            return value
        if value is None:
            configs.pop(op.name, None)
        else:
            configs[op.name] = _canonical(op.name, value)
    return too_long(configs) or tuple(sorted(configs.items()))


def _stepped(op: ConfigOp, text: str | None) -> str | Rejection | None:
    if op.op in (OpType.SET, OpType.DELETE):
        return op.value if op.op == OpType.SET else None
    if op.name not in LISTS:
        message = f"Can't {OpType(op.op).name} to key {op.name} because its type is not LIST."
        return Rejection(ErrorCode.INVALID_CONFIG, message, _RULE)
    return joined(op, LISTS[op.name] if text is None else text)


def _canonical(name: str, text: str) -> str:
    row = BROKER_SYNONYMS.get(name) or GROUP_CONFIGS.get(name)
    if row is not None:
        return canonical_text(name, row.kind, row.allowed, text)
    return canonical_text(name, ConfigType.LIST if name in LISTS else ConfigType.STRING, None, text)


def _invalid(command: AlterResourceConfigs, after: Configs | Rejection, cluster: Cluster) -> Rejection | None:
    """The rejection of the configs of a group; of brokers, with a new value that topics would inherit."""
    if isinstance(after, Rejection) or (command.incremental and all(op.op == OpType.DELETE for op in command.ops)):
        return None
    if command.kind == GROUPS:
        return invalid_group_configs(after, within=not has_real_brokers(cluster))
    texts = dict(after) if command.kind == BROKERS else {}
    for op in command.ops:
        row, text = BROKER_SYNONYMS.get(op.name), texts.get(op.name)
        value = None if row is None or text is None else read_value(op.name, row.kind, None, text)
        if isinstance(value, Bad):
            return Rejection(ErrorCode.INVALID_CONFIG, value.message, _RULE)
    return None


def _unsafe(command: AlterResourceConfigs, before: Configs, after: Configs, cluster: Cluster) -> Rejection | None:
    """With eligible leader replicas all brokers must go by one min.insync.replicas (KIP-966)."""
    if command.kind != BROKERS or cluster.feature(ELIGIBLE_REPLICAS) == 0:
        return None
    key = MIN_INSYNC_REPLICAS
    if not command.name and key in dict(before) and key not in dict(after):
        message = f"Cluster-level {key} cannot be removed while ELR is enabled."
        return Rejection(ErrorCode.INVALID_CONFIG, message, _RULE)
    if command.name and any(op.name == key for op in command.ops):
        message = f"Broker-level {key} cannot be altered while ELR is enabled."
        return Rejection(ErrorCode.INVALID_CONFIG, message, _RULE)
    return None
