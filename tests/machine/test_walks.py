"""Properties of the machine for random commands and brokers."""

import msgspec
from hypothesis import given, settings
from hypothesis.strategies import lists

from controller.machine.commands.commands import AnyCommand, TopicCommand
from controller.machine.decide import decide
from controller.machine.recorded_command import recall
from events.catalog import Recorded
from tests.machine.audit.auditor import audit
from tests.machine.audit.lifecycle import Lives
from tests.machine.rig import Rig, fold, restored, stored, topics_of
from tests.machine.walks import Walk, check_repeatable, steps, walked, walks


@settings(max_examples=10)
@given(lists(walks(), min_size=6, max_size=6))
def test_random_runs_are_deterministic_and_pass_the_audit(some: list[Walk]) -> None:
    assert audit(*(_log_of(walk) for walk in some), settled=True) == []


def _log_of(walk: Walk) -> list[Recorded]:
    """The log of a run. Each decision and the whole run are checked."""
    rig, at = Rig(), 0
    request: AnyCommand | None = None
    for rig, command in steps(walk):
        if request is not None:
            _check_recalled(request, rig.log[at:])
        _check_decision(rig, command)
        request, at = command, len(rig.log)
    printed = "\n".join(f"{record.offset} {record.cause.command} {record.event}" for record in rig.log)
    _check_life_cycles(rig, printed)
    check_repeatable(rig.log)
    _check_reconciled(rig)
    return rig.log


def _check_decision(rig: Rig, command: AnyCommand) -> None:
    """A decision depends only on state and command, and changes neither."""
    state = rig.state
    before, encoded = stored(state), msgspec.msgpack.encode(command)
    decision = decide(state, command)
    assert stored(state) == before, f"deciding {command} changed the state"
    assert msgspec.msgpack.encode(command) == encoded, f"deciding changed {command}"
    assert decide(state, command) == decision, f"the second decision differs: {command}"
    again = decide(restored(before), command)
    assert again == decision, f"the decision on a restored state differs: {command}"


def _check_recalled(request: AnyCommand, records: list[Recorded]) -> None:
    """`recall` returns the request that caused the records, and None for other commands."""
    recalled = recall(records)
    if recalled is not None:  # `dry_run` is not recorded, and decisions do not depend on it
        recalled = msgspec.structs.replace(recalled, dry_run=None)
    if records and isinstance(request, TopicCommand):
        assert recalled == request, f"recalled {recalled} for {request}"
        assert not request.validate_only, f"a dry run was logged: {request}"
    else:
        assert recalled is None, f"recalled {recalled} for {request}"


def _check_life_cycles(rig: Rig, printed: str) -> None:
    lives = Lives().see_all(rig.log)
    assert set(lives.topics) == {topic.name for topic in topics_of(rig.state)}, printed
    led = {
        (t.name, i): "led" if p.leader >= 0 else "leaderless"
        for t in topics_of(rig.state)
        for i, p in enumerate(t.partitions)
    }
    assert lives.partitions == led, f"leaders in the tables and in the state differ\n{printed}"
    brokers = {b: "fenced" if broker.fenced else "live" for b, broker in rig.state.cluster.brokers.items()}
    assert lives.brokers == brokers, f"brokers in the tables and in the state differ\n{printed}"
    waiting = {(t.pending_create.request_id, t.name) for t in topics_of(rig.state) if t.pending_create is not None}
    open_ = {key for key, state in lives.requests.items() if state == "created"}
    assert waiting == open_, f"pending creates in the tables and in the state differ\n{printed}"


def _check_reconciled(rig: Rig) -> None:
    assert rig.reconcile().events == (), "a second reconcile has events"
    rig.confirm()
    assert rig.confirm().events == (), "a second confirmation has events"
    live = rig.state.cluster.live
    for topic in topics_of(rig.state):
        led = all(partition.leader >= 0 for partition in topic.partitions)
        assert (topic.ready_at_ms is not None) or not led or not live, f"{topic.name} should be ready by now"


@settings(max_examples=20)
@given(walks(steps_max=25))
def test_state_is_independent_of_snapshot_offsets(walk: Walk) -> None:
    log = walked(walk).log
    whole = stored(fold(log))
    for cut in range(len(log) + 1):
        halfway = restored(stored(fold(log[:cut])))
        assert stored(fold(log[cut:], halfway)) == whole, f"the fold from offset {cut} on differs"
