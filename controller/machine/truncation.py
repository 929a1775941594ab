"""Truncates refused commands before they are recorded, so that large requests do not fill the log; `decide` calls it.

Texts longer than `TEXT_MAX` are truncated and end with their original length. The recorded refusal is the decision on
the truncated command, if that is refused for the same reason; so the recorded request always leads to the recorded
events. A refusal that cannot be truncated without changing its reason (an impossible name, very long lists) gets no
event; it is only counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from controller.machine.commands.commands import AlterTopicConfigs, CreatePartitions, CreateTopic, TopicCommand
from controller.machine.decision import Decision
from controller.machine.state import State
from controller.machine.validation import NAME_LENGTH_MAX

TEXT_MAX = 256
"""The longest text in characters; longer than any legitimate principal, client id or config."""
ENTRIES_MAX = 100
"""The most configs of a request, or replicas of a manual assignment, in a recorded refusal."""


def truncated(text: str) -> str:
    """Truncates a text that is too long, and appends its length."""
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - _SUFFIX_ROOM]}… ({len(text)} characters)"


def truncated_if_any(text: str | None) -> str | None:
    return None if text is None else truncated(text)


_SUFFIX_ROOM = 32
"""Room for the length suffix, so that truncation is idempotent."""


def truncated_refusal(
    state: State, command: TopicCommand, decision: Decision, decide: Callable[[State, Any], Decision]
) -> Decision:
    """Returns the refusal to record and answer; without events if the command cannot be truncated."""
    assert decision.refusal is not None, "only refusals are truncated"
    if not decision.events:
        return decision
    if len(command.topic) > NAME_LENGTH_MAX or _entry_count(command) > ENTRIES_MAX:
        return replace(decision, events=())
    shorter = _truncated(command)
    if shorter is command:
        return decision
    again = decide(state, shorter)
    refusal = again.refusal
    if refusal is None or (refusal.code, refusal.rule) != (decision.refusal.code, decision.refusal.rule):
        return replace(decision, events=())
    return again


def is_short(command: TopicCommand) -> bool:
    return _truncated(command) is command


def _entry_count(command: TopicCommand) -> int:
    match command:
        case CreateTopic():
            return len(command.configs) + sum(1 + len(each.replicas) for each in command.assignments)
        case CreatePartitions():
            return sum(1 + len(replicas) for replicas in command.assignments or ())
        case AlterTopicConfigs():
            return len(command.ops)
        case _:
            return 0


def _truncated(command: TopicCommand) -> TopicCommand:
    """Returns the command with its long texts truncated; the same object if no text is too long."""
    fields: dict[str, Any] = {
        "principal": truncated(command.principal),
        "client_id": truncated_if_any(command.client_id),
    }
    if isinstance(command, CreateTopic):
        fields["configs"] = tuple((truncated(name), truncated_if_any(value)) for name, value in command.configs)
    elif isinstance(command, AlterTopicConfigs):
        fields["ops"] = tuple(
            replace(op, name=truncated(op.name), value=truncated_if_any(op.value)) for op in command.ops
        )
    is_short = all(getattr(command, name) == field for name, field in fields.items())
    return command if is_short else replace(command, **fields)
