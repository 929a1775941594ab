"""Requests that wait for approval: rules with `approve_by` hold a request, and somebody approves or denies it.

A held request is refused at first, and its change is a part of the state. An approved request is a new command: the
recorded change under the requester's name, decided by the rules of that time except those that held it. So the approval
and the change are in the log together, or neither is: if the change is refused then, the request waits on.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec
from msgspec.structs import replace

from controller.machine import topics
from controller.machine.commands.access import EndApprovals
from controller.machine.commands.commands import TopicCommand
from controller.machine.decision import Decision, answered, topic_named
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.rules.rule import Rule
from controller.machine.state import State
from events import catalog
from events.errors import shortened

HELD_MAX, HELD_PER_PRINCIPAL_MAX, HELD_BYTES_MAX = 1_000, 50, 1 << 14
"""Limits for the number of held requests, of all and of one principal, and for the bytes of each."""
_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000))


def hold(
    state: State, command: TopicCommand, violations: Sequence[tuple[Rule, catalog.Observation]]
) -> tuple[Rejection, catalog.ApprovalRequested | None]:
    """Returns the refusal of a command that somebody may approve, and the event by which it is held. The event is None
    for a dry run, for a change that is held already, and if there are too many."""
    rules = {rule.name: rule.approve_by for rule, _ in violations}
    expires_ms = min(rule.approval_expires for rule, _ in violations)
    details, who = topics.details_of(command), (command.request_id, command.topic, command.principal, command.client_id)
    if isinstance(details.change, catalog.RequestedConfigs):
        details = replace(details, change=replace(details.change, verdict=None))
    topic = topic_named(state, command.topic)
    topic_id = None if topic is None else topic.topic_id
    event = catalog.ApprovalRequested(*who, details, tuple(rules.items()), command.at_ms + expires_ms, topic_id)
    waiting, by = state.cluster.held.values(), approvers(event)
    own = [one for one in waiting if one.principal == event.principal]
    wanted = (event.name, topic_id, details.change)
    same = next((one for one in own if (one.name, one.topic_id, one.request.change) == wanted), None)
    size, held = len(msgspec.msgpack.encode(event)), None
    if command.approval is not None:
        text = f"Approval by {by} is needed too: the request must be denied, and sent again."
    elif command.validate_only:
        text = f"The request would wait for approval by {by}."
    elif same is not None:
        text = f"The same request waits already: {_way_forward(same)}"
    elif len(waiting) >= HELD_MAX or len(own) >= HELD_PER_PRINCIPAL_MAX:
        text = f"The request cannot wait for approval: {len(own)} of {event.principal} and {len(waiting)} of all wait."
    elif size > HELD_BYTES_MAX:
        text = f"The request cannot wait for approval: it has {size} bytes, allowed are {HELD_BYTES_MAX}."
    else:
        text, held = f"The request waits for approval for {_duration(expires_ms)}: {_way_forward(event)}", event
    message = shortened("; ".join(one.message for _, one in violations), catalog.MESSAGE_CHARS_MAX - len(text) - 2)
    return Rejection(ErrorCode.POLICY_VIOLATION, f"{message}. {text}", violations[0][1].rule), held


def _duration(ms: int) -> str:
    number, unit = next((ms // size, unit) for unit, size in _UNITS if ms % size == 0)
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _way_forward(held: catalog.ApprovalRequested) -> str:
    return f"ask {approvers(held)} to run `topicwright approve {held.request_id}`."


def approvers(held: catalog.ApprovalRequested) -> str:
    """The approvers of a request, for people: one of each rule's."""
    each = (" or ".join(one if ":" in one else f"the role {one}" for one in approve_by) for _, approve_by in held.rules)
    return shortened(", who is also ".join(dict.fromkeys(each)), 500)


def approve(state: State, command: TopicCommand, decide: Callable[[Collection[str]], Decision]) -> Decision:
    """Decides an approved request. `decide` decides the command, by all rules but those with the given names."""
    approval = command.approval
    assert approval is not None, "only approved requests get here"
    held = state.cluster.held.get((approval.request_id, command.topic))
    if held is None or held.expires_at_ms <= command.at_ms:
        return answered(command, code=ErrorCode.RESOURCE_NOT_FOUND, message=gone(approval.request_id))
    if held.principal == approval.principal:
        return answered(command, code=ErrorCode.POLICY_VIOLATION, message=own(held.principal))
    topic = topic_named(state, command.topic)
    if held.topic_id is not None and (topic is None or topic.topic_id != held.topic_id):
        text = f"Topic {held.name} was deleted since, so the request can only be denied."
        return answered(command, code=ErrorCode.UNKNOWN_TOPIC_ID, message=text)
    decision = decide(dict(held.rules))
    if decision.needs_approval:
        return decision
    codes = {one.code for one in decision.answers if one.request_id == command.request_id}
    if codes - {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}:
        return Decision((), decision.answers)
    who = (approval.principal, approval.client_id, approval.host)
    done = catalog.ApprovalDecided(approval.request_id, held.name, "approved", command.request_id, *who)
    return replace(decision, events=(*decision.events, done))


def gone(request_id: str) -> str:
    return f"No request {shortened(request_id, 100)} waits for approval: `topicwright explain` has its outcome, if any."


def own(principal: str) -> str:
    return f"The request is of {principal}, and nobody approves their own: another principal must approve it."


def end(state: State, command: EndApprovals) -> Decision:
    """Denies held requests, or ends those that have expired."""
    held, outcome = state.cluster.held, "denied" if command.held else "expired"
    expired = (key for key, one in held.items() if one.expires_at_ms <= command.at_ms)
    ended = [key for key in command.held if key in held] if command.held else sorted(expired)
    who = (command.principal, command.client_id)
    if command.held and not ended:
        return answered(command, code=ErrorCode.RESOURCE_NOT_FOUND, message=gone(command.held[0][0]))
    events = (
        catalog.ApprovalDecided(*key, outcome, command.reason, *who, command.host)  # type: ignore[arg-type]
        for key in ended
    )
    return answered(command, *events)
