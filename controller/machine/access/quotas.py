"""Decides on AlterClientQuotas (KIP-546, KIP-599, KIP-612), like Kafka's ClientQuotaControlManager.

All of Kafka's quotas are stored and described; only mutation quotas (KIP-599) are enforced here, by
`controller.access.mutation_quotas`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from math import isfinite
from typing import Final

from controller.machine.commands.access import AlterClientQuotas, QuotaAlteration
from controller.machine.commands.commands import AlterTopicConfigs, CreatePartitions, TopicCommand
from controller.machine.decision import Answer, Decision, Detail, topic_named
from controller.machine.errors import ErrorCode
from controller.machine.state import State
from events.access import QuotaEntity, QuotasChanged
from events.catalog import PartitionsAdded, TopicCreated

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""Kafka's types of quota entities."""
MUTATION_RATE: Final = "controller_mutation_rate"
"""The quota on partitions created and deleted per second (KIP-599)."""

_IP = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}|[0-9a-fA-F]*:[0-9a-fA-F:.]*")
_LONG_MAX, _INT_MAX = 2**63 - 1, 2**31 - 1
_USER_KEYS: Mapping[str, int | None] = {
    "producer_byte_rate": _LONG_MAX,
    "consumer_byte_rate": _LONG_MAX,
    "request_percentage": None,
    MUTATION_RATE: None,
}
"""Quota keys of users and client ids. A key with a number takes whole numbers up to it; other keys take any."""
_IP_KEYS: Mapping[str, int | None] = {"connection_creation_rate": _INT_MAX}


def alter_client_quotas(state: State, command: AlterClientQuotas) -> Decision:
    """Changes the quotas of each entity independently. An entity that is named twice is refused, as in Kafka."""
    details: list[Detail] = []
    events: list[QuotasChanged] = []
    seen: set[QuotaEntity] = set()
    for alteration in command.alterations:
        entity = canonical_entity(alteration.entity)
        wrong = _duplicate(entity, seen, alteration) or _wrong_with_entity(alteration.entity)
        wrong = wrong or _wrong_with_values(entity, alteration)
        details.append(Detail(int(ErrorCode.INVALID_REQUEST), wrong) if wrong else Detail())
        seen.add(entity)
        if not wrong:
            event = _changes(state.cluster.quotas.get(entity, ()), entity, alteration, command)
            events += [] if event is None else [event]
    answer = Answer(command.request_id, command.topic, 0, details=tuple(details))
    return Decision(() if command.validate_only else tuple(events), (answer,))


def mutations(state: State, command: TopicCommand, decision: Decision) -> int:
    """Returns the number of partitions that a decision creates or deletes, or in a dry run would create or delete.
    Mutation quotas count them."""
    if decision.refusal is not None or decision.needs_approval:
        return 0
    for event in decision.events:
        if isinstance(event, TopicCreated | PartitionsAdded):
            return len(event.partitions)
    if isinstance(command, AlterTopicConfigs) or not decision.answers or decision.answers[0].topic is None:
        return 0
    count = len(decision.answers[0].topic.partitions)
    before = topic_named(state, command.topic) if isinstance(command, CreatePartitions) else None
    return count - (len(before.partitions) if before is not None else 0)


def canonical_entity(entity: QuotaEntity) -> QuotaEntity:
    """Returns the entity with its (type, name) parts sorted, so that equal entities compare as equal."""
    return tuple(sorted(entity, key=lambda part: (part[0], part[1] or "")))


def after_quotas(values: tuple[tuple[str, float], ...], event: QuotasChanged) -> tuple[tuple[str, float], ...]:
    """Returns the quotas of an entity after an event, sorted by key."""
    kept = {key: value for key, value in values if key not in event.removed}
    return tuple(sorted({**kept, **dict(event.values)}.items()))


def _duplicate(entity: QuotaEntity, seen: set[QuotaEntity], alteration: QuotaAlteration) -> str:
    """Returns the error for an entity or key that a request names twice, or "" if there is none."""
    if entity in seen:
        return f"Ignoring duplicate entity {_text_of(entity)}"
    for key, times in Counter(key for key, _ in alteration.ops).items():
        if times > 1:
            return f"Duplicate quota key {key} not updating quota for this entity {_text_of(entity)}"
    return ""


def _text_of(entity: QuotaEntity) -> str:
    return "ClientQuotaEntity(entries={" + ", ".join(f"{kind}={name or '<default>'}" for kind, name in entity) + "})"


def _wrong_with_entity(entity: QuotaEntity) -> str:
    if not entity:
        return "Invalid empty client quota entity"
    types = [kind for kind, _ in entity]
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            return f"Unhandled client quota entity type: {kind}"
        if types.count(kind) > 1:
            return f"Invalid client quota entity, duplicate entity entry {kind}"
        if name == "":
            return f"Empty {kind} not supported"
        if kind == IP and len(entity) > 1:
            return "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        if kind == IP and name is not None and not _IP.fullmatch(name):
            return f"{name} is not a valid IP; host names are not resolved."
    return ""


def _wrong_with_values(entity: QuotaEntity, alteration: QuotaAlteration) -> str:
    keys = _IP_KEYS if entity[0][0] == IP else _USER_KEYS
    wrong = (_wrong_with_value(keys, key, value) for key, value in alteration.ops if value is not None)
    return next(filter(None, wrong), "")


def _wrong_with_value(keys: Mapping[str, int | None], key: str, value: float) -> str:
    if key not in keys:
        return f"Invalid configuration key {key}; allowed: {', '.join(sorted(keys))}"
    if not isfinite(value):
        return f"Quota {key} must be a finite number"
    if value <= 0:
        return f"Quota {key} must be greater than 0"
    largest = keys[key]
    if largest is None:
        return ""
    if value > float(largest):  # as in Java: Long.MAX_VALUE (no limit) is sent as the nearest double
        return f"Proposed value for {key} is too large for {'an INT' if largest == _INT_MAX else 'a LONG'}."
    return f"{key} cannot be a fractional value." if abs(value % 1.0) > 1e-6 else ""


def _changes(
    held: tuple[tuple[str, float], ...], entity: QuotaEntity, alteration: QuotaAlteration, command: AlterClientQuotas
) -> QuotasChanged | None:
    """Returns the event for the changed quotas of an entity, or None if nothing changes."""
    before = dict(held)
    ops = sorted(alteration.ops, key=lambda op: op[0])
    values = tuple((key, value) for key, value in ops if value is not None and before.get(key) != value)
    removed = tuple(key for key, value in ops if value is None and key in before)
    if not values and not removed:
        return None
    who = (command.principal, command.client_id, command.host)
    return QuotasChanged(command.request_id, entity, values, removed, *who)
