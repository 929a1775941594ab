"""Changing the explicit configs of a topic: IncrementalAlterConfigs (KIP-339) and the older AlterConfigs.

A request for a topic is done as a whole or not at all. What is checked, in Kafka's order: the request itself (names
given twice, values left out, unknown operations: INVALID_REQUEST), each step (append and subtract need a list:
INVALID_CONFIG), then all configs that the topic would have. A request that only deletes does not check what remains
by itself: who cleans up a topic takes one leftover away after another. All texts are stored in their canonical form.

One wanted difference: Kafka's controller fails with UNKNOWN_SERVER_ERROR on an operation that it does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum

from controller.machine.commands.commands import AlterTopicConfigs
from controller.machine.configs.table import BY_NAME
from controller.machine.configs.topic_configs import (
    explicit_configs,
    invalid_config,
    readable_configs,
    validate_topic_configs,
)
from controller.machine.configs.values import ConfigType
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.state import Settings
from events.catalog import ConfigOp, Configs

RESOURCE_TOPIC = 2
"""The resource type of topics in the AlterConfigs and DescribeConfigs APIs."""

_RULE = "validation:alter-request"


class OpType(IntEnum):
    """What to do with a config, with IncrementalAlterConfigs' numbers (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def incremental_alter(current: Configs, ops: Sequence[ConfigOp], broker_defaults: Configs = ()) -> Configs | Rejection:
    """The configs of a topic after these operations, sorted by name, or why they are refused.

    `current` are the topic's explicit configs. Taking away what is not there, or adding what is, changes nothing and
    is not an error.
    """
    bad = check_steps(ops)
    if bad is not None:
        return bad
    altered = dict(current)
    for op in ops:
        new = _stepped(op, altered.get(op.name))
        if isinstance(new, Rejection):
            return new
        if new is None:
            altered.pop(op.name, None)
        else:
            altered[op.name] = new
    deletes = all(op.op == OpType.DELETE for op in ops)
    return _checked(altered, current, broker_defaults, deletes)


def altered_configs(current: Configs, command: AlterTopicConfigs, settings: Settings) -> Configs | Rejection:
    """The explicit configs after a change, sorted, or why it is refused."""
    if command.incremental:
        return incremental_alter(current, command.ops, settings.defaults_in_force)
    return replace_configs(current, [(op.name, op.value) for op in command.ops], settings.defaults_in_force)


def check_steps(ops: Sequence[ConfigOp]) -> Rejection | None:
    """What is wrong with the steps of an alter request, whatever it is for."""
    return _repeated(op.name for op in ops) or _left_out(ops) or _unknown_operation(ops)


def replace_configs(
    current: Configs, configs: Sequence[tuple[str, str | None]], broker_defaults: Configs = ()
) -> Configs | Rejection:
    """The configs of a topic after the older AlterConfigs: exactly those given, sorted by name, or why not."""
    ops = [ConfigOp(name, OpType.SET, value) for name, value in configs]
    bad = _repeated(op.name for op in ops) or _left_out(ops)
    if bad is not None:
        return bad
    return _checked({op.name: op.value for op in ops if op.value is not None}, current, broker_defaults)


def check_resources(resources: Sequence[tuple[int, str]], others: Collection[int] = ()) -> tuple[Rejection | None, ...]:
    """What is wrong with each resource (type, name) of one alter request, apart from its configs.

    A resource given twice is refused both times, as Kafka does. Beside topics only `others` have configs.
    """
    given = Counter(resources)
    return tuple(_bad_resource(kind, name, given[kind, name], others) for kind, name in resources)


def _bad_resource(kind: int, name: str, times: int, others: Collection[int]) -> Rejection | None:
    if times > 1:
        return _invalid_request("Each resource must appear at most once.")
    if kind in others:
        return None
    if kind != RESOURCE_TOPIC:
        return _invalid_request(f"Unknown resource type {kind}")
    return _invalid_request("Default topic resources are not allowed.") if not name else None


def _invalid_request(message: str) -> Rejection:
    return Rejection(ErrorCode.INVALID_REQUEST, message, _RULE)


def _repeated(names: Iterable[str]) -> Rejection | None:
    repeated = [name for name, times in Counter(names).items() if times > 1]
    return _invalid_request(f"Error due to duplicate config keys: {', '.join(repeated)}") if repeated else None


def _left_out(ops: Sequence[ConfigOp]) -> Rejection | None:
    missing = [op.name for op in ops if op.value is None and op.op != OpType.DELETE]
    return _invalid_request(f"Null value not supported for : {', '.join(missing)}") if missing else None


def _unknown_operation(ops: Sequence[ConfigOp]) -> Rejection | None:
    for op in ops:
        if not OpType.SET <= op.op <= OpType.SUBTRACT:
            allowed = ", ".join(f"{known.name} {int(known)}" for known in OpType)
            return _invalid_request(f"Unknown operations type {op.op} for key {op.name}; allowed: {allowed}")
    return None


def _stepped(op: ConfigOp, text: str | None) -> str | Rejection | None:
    """The new text of one config; None when the topic no longer sets it."""
    match op.op:
        case OpType.SET:
            return op.value
        case OpType.DELETE:
            return None
    row = BY_NAME.get(op.name)
    if row is None or row.kind is not ConfigType.LIST:
        return invalid_config(f"Can't {OpType(op.op).name} to key {op.name} because its type is not LIST.")
    return joined(op, (row.default or "") if text is None else text)


def joined(op: ConfigOp, text: str) -> str:
    """A list after items were appended to it, or subtracted from it."""
    items = [item for item in _java_split(text) if item]
    for item in map(str.strip, _java_split(op.value or "")):  # blanks around items are not stored
        if op.op == OpType.APPEND and item not in items:
            items.append(item)
        elif op.op == OpType.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def _java_split(text: str) -> list[str]:
    """Java's String.split(","): empty texts at the end are dropped, but a text without comma is one item."""
    items = text.split(",")
    if "," in text:
        while items and not items[-1]:
            items.pop()
    return items


def _checked(
    altered: dict[str, str], current: Configs, broker_defaults: Configs, deletes: bool = False
) -> Configs | Rejection:
    configs = tuple(sorted(altered.items()))
    checked = readable_configs(configs) if deletes else configs
    rejection = validate_topic_configs(checked, broker_defaults, existing=current)
    return rejection or (configs if deletes else explicit_configs(configs))
