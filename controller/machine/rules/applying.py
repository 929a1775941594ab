"""Decides on ApplyRules: new rules for changes of topics become a version in the log."""

from __future__ import annotations

from hashlib import sha256

from controller.machine.commands import NO_TOPIC
from controller.machine.commands.access import ApplyRules
from controller.machine.decision import Answer, Decision
from controller.machine.errors import ErrorCode
from controller.machine.rules.reading import read_rules
from controller.machine.rules.reading_values import RulesError
from controller.machine.state import State
from events.catalog import RulesApplied


def apply_rules(state: State, command: ApplyRules) -> Decision:
    """Applies rules. The answer's `number` is the version that is effective afterwards.

    Nothing changes if the text equals the effective rules, or if a file equals the last file that was applied. Invalid
    rules are refused with INVALID_CONFIG. INVALID_UPDATE_VERSION: the newest version is not the command's `after`.
    """
    held = state.cluster.rules
    number = 0 if held is None else held.number
    if command.after is not None and command.after != number:
        message = f"Version {number} of the rules was applied meanwhile, after version {command.after}."
        return _answered(command, number, ErrorCode.INVALID_UPDATE_VERSION, message)
    try:
        if command.text:
            read_rules(command.text)
    except RulesError as error:
        return _answered(command, number, ErrorCode.INVALID_CONFIG, str(error))
    digest = sha256(command.text.encode()).hexdigest()
    known = "" if held is None else held.file_sha256 if command.is_file else held.sha256
    if digest == known or (held is None and not command.text):
        return _answered(command, number)
    event = RulesApplied(
        command.request_id,
        number + 1,
        command.text,
        digest,
        command.is_file,
        command.principal,
        command.client_id,
        command.host,
    )
    return Decision((event,), _answered(command, number + 1).answers)


def _answered(command: ApplyRules, number: int, code: int = 0, message: str = "") -> Decision:
    return Decision((), (Answer(command.request_id, NO_TOPIC, int(code), message, number=number),))
