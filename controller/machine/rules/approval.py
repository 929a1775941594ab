"""Requests that wait for approval: rules with `approve_by` hold a request, and somebody approves or denies it.

A held request is refused at first, and its change is a part of the state. The approved request is a command of its own:
the recorded change under the requester's name. The rules of that time decide it, except those that held it. So the
approval and the change are in the log together, or neither is. If the change is refused then, nothing is recorded, and
the request waits on.

The number of held requests and the size of each are limited, since anybody who may request something may fill them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from controller.machine import topics
from controller.machine.commands.access import DenyRequest, ExpireApprovals
from controller.machine.commands.commands import TopicCommand
from controller.machine.decision import Answer, Decision
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.rules.rule import Rule
from controller.machine.state import State
from events import catalog
from events.errors import shortened

HELD_MAX, HELD_PER_PRINCIPAL_MAX = 1_000, 50
HELD_BYTES_MAX = 1 << 14
"""Bytes of one held request. The largest serious request takes a few kilobytes."""
_HOUR_MS = 3_600_000


def hold(
    state: State, command: TopicCommand, violations: Sequence[tuple[Rule, catalog.Observation]]
) -> tuple[Rejection, catalog.ApprovalRequested | None]:
    """Returns the refusal of a command that somebody may approve, and the event by which it is held. The event is None
    for a dry run, for a change that is held already, and if there are too many."""
    rules = tuple(catalog.ApprovalRule(rule.name, rule.approve_by) for rule, _ in violations)
    expires_ms = min(rule.approval_expires for rule, _ in violations)
    details, who = topics.details_of(command), (command.principal, command.client_id)
    event = catalog.ApprovalRequested(
        command.request_id, command.topic, *who, details, rules, command.at_ms + expires_ms
    )
    waiting = state.cluster.held.values()
    same = next((one for one in waiting if _subject(one) == _subject(event)), None)
    refusal = _why_not_held(event, len(waiting), sum(one.principal == event.principal for one in waiting))
    if command.approval is not None:
        text = f"Approval by {approvers(rules)} is needed too: the request must be denied, and sent again."
    elif command.validate_only:
        text = f"The request would wait for approval by {approvers(rules)}."
    elif same is not None:
        text = f"The same request waits already: {_way_forward(same)}"
    elif refusal:
        text = f"The request cannot wait for approval by {approvers(rules)}: {refusal}."
    else:
        text = f"The request waits for approval for {expires_ms / _HOUR_MS:g} hours: {_way_forward(event)}"
    is_held = text.endswith(_way_forward(event))
    message = shortened("; ".join(one.message for _, one in violations), catalog.MESSAGE_CHARS_MAX - len(text) - 2)
    rejection = Rejection(ErrorCode.POLICY_VIOLATION, f"{message}. {text}", violations[0][1].rule)
    return rejection, event if is_held else None


def _subject(held: catalog.ApprovalRequested) -> tuple[object, ...]:
    """Equal for requests of the same principal for the same change."""
    change = held.request.change
    match change:
        case catalog.RequestedCreation():
            change = replace(change, topic_id=b"")
        case catalog.RequestedConfigs():
            change = replace(change, verdict=None)
    return held.name, held.principal, change


def _why_not_held(event: catalog.ApprovalRequested, waiting: int, of_principal: int) -> str:
    if waiting >= HELD_MAX or of_principal >= HELD_PER_PRINCIPAL_MAX:
        return f"{of_principal} requests of {event.principal} and {waiting} of all wait already"
    size = len(msgspec.msgpack.encode(event))
    return f"it has {size} bytes, allowed are {HELD_BYTES_MAX}" if size > HELD_BYTES_MAX else ""


def _way_forward(held: catalog.ApprovalRequested) -> str:
    return f"ask {approvers(held.rules)} to run `topicwright approve {held.request_id}`."


def approvers(rules: Sequence[catalog.ApprovalRule]) -> str:
    """The approvers of a request, for people: one of each rule's."""
    each = (" or ".join(one if ":" in one else f"the role {one}" for one in rule.approve_by) for rule in rules)
    return shortened(", who is also ".join(dict.fromkeys(each)), 500)


def approve(state: State, command: TopicCommand, decide: Callable[[Sequence[str]], Decision]) -> Decision:
    """Decides an approved request. `decide` decides the command, by all rules but those with the given names."""
    approval = command.approval
    assert approval is not None, "only approved requests get here"
    held = state.cluster.held.get((approval.request_id, command.topic))
    if held is None or held.expires_at_ms <= command.at_ms:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, gone(approval.request_id)
        return Decision((), (Answer(command.request_id, command.topic, int(code), message),))
    if held.principal == approval.principal:
        code, message = ErrorCode.POLICY_VIOLATION, own(held.principal)
        return Decision((), (Answer(command.request_id, command.topic, int(code), message),))
    decision = decide([rule.name for rule in held.rules])
    if decision.needs_approval:
        return decision
    codes = {one.code for one in decision.answers if one.request_id == command.request_id}
    if codes - {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}:
        return Decision((), decision.answers)
    who = (approval.principal, approval.client_id, approval.host)
    done = catalog.ApprovalDecided(approval.request_id, held.name, "approved", command.request_id, *who)
    return replace(decision, events=(*decision.events, done))


def gone(request_id: str) -> str:
    return (
        f"No request {shortened(request_id, 100)} waits for approval: perhaps it was approved, denied or has expired."
    )


def own(principal: str) -> str:
    return f"The request is of {principal}, and nobody approves their own: another principal must approve it."


def deny(state: State, command: DenyRequest) -> Decision:
    """Denies a request for all its topics. The requester may do this too, to withdraw the request."""
    who = (command.principal, command.client_id, command.host)
    found = sorted(key for key in state.cluster.held if key[0] == command.held)
    code, message = (0, "") if found else (int(ErrorCode.RESOURCE_NOT_FOUND), gone(command.held))
    events = tuple(catalog.ApprovalDecided(*key, "denied", command.reason, *who) for key in found)
    return Decision(events, (Answer(command.request_id, command.topic, code, message),))


def expire(state: State, command: ExpireApprovals) -> Decision:
    expired = sorted(key for key, one in state.cluster.held.items() if one.expires_at_ms <= command.at_ms)
    return Decision(tuple(catalog.ApprovalDecided(*key, "expired", "", "") for key in expired))
