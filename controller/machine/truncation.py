"""What the log keeps of a request that is refused: enough to look it up and to decide it again, however much it was.

A text that is longer than `TEXT_MAX` is cut, and ends with how long it was. A refusal is kept as the decision on its
request cut so, where that is refused for the same reason: then the request that is in the log leads to the events that
are. What cannot be kept so (a name that no topic can have, lists of very many, a reason that the cutting changed) is
without events: whoever records counts it.
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
"""Characters of a text: more than any principal, client or config that is meant has."""
ENTRIES_MAX = 100
"""Configs of a request, or replicas of a manual assignment."""


def cut(text: str) -> str:
    """The text, or its beginning and how long it was."""
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - _SUFFIX_ROOM]}… ({len(text)} characters)"


_SUFFIX_ROOM = 32
"""Room for how long a text was: what is cut is not cut again."""


def truncated_refusal(state: State, command: TopicCommand, decision: Decision, decide: Callable[[State, Any], Decision]) -> Decision:
    """The refusal of a command as it is to be recorded and answered; without events if it cannot be kept."""
    assert decision.refusal is not None, "only refusals are cut"
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
    """Whether nothing of a command is cut where it is refused."""
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
    """The command with its texts cut; the very same if none was too long."""
    fields: dict[str, Any] = {"principal": cut(command.principal)}
    if command.client_id is not None:
        fields["client_id"] = cut(command.client_id)
    if isinstance(command, CreateTopic):
        fields["configs"] = tuple((cut(name), _truncated_value(value)) for name, value in command.configs)
    elif isinstance(command, AlterTopicConfigs):
        fields["ops"] = tuple(replace(op, name=cut(op.name), value=_truncated_value(op.value)) for op in command.ops)
    is_short = all(getattr(command, name) == field for name, field in fields.items())
    return command if is_short else replace(command, **fields)


def _truncated_value(value: str | None) -> str | None:
    return None if value is None else cut(value)
