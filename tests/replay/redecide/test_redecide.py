"""Recorded requests are decided again: the events are equal bit for bit, and each difference is found with its
cause."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from msgspec.structs import replace

from controller.machine import validation
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.partitions import placement
from controller.machine.state import Counts
from controller.release import RELEASE as THIS_RELEASE
from events.catalog import (
    ApprovalDecided,
    BrokerUnfenced,
    ChangeRejected,
    CreateAnswered,
    CreateRejected,
    CreateRequested,
    Event,
    Partition,
    Recorded,
    SettingsChanged,
    TopicCreated,
)
from events.names import BrokerId
from projections.replay.log.log_ref import LogRef
from projections.replay.outcome import Options
from projections.replay.redecide import in_service, redecide
from projections.replay.redecide.recorded import CLIENT_COMMANDS, CountHistory, RecordedRequest
from projections.replay.redecide.redecide import Difference, difference, run_redecide
from projections.replay.runner import InProcess
from projections.views.backtests import LogRange, Past
from projections.views.view import AsOfView
from tests.events import golden
from tests.machine.audit.planted import at, changed, without
from tests.machine.rules.test_judging import apply, create, delete, grow, ready
from tests.machine.walks import Walk, walked, walks
from tests.projections.logs import story
from tests.replay.history import requests_in
from tests.replay.written import records_of, written

RELEASE = "1.0"
"""The release of the rig's settings."""

STORY = """
1@x 2@y 3@z fewer count=2
create a 1x2 id=qa
create b.c -1x3 id=qb
create b_c 1x1 id=qc
confirm 1 2 3
create a 1x1 id=again
partitions a to=4 id=more
partitions a to=2 id=less
fence 3
create d 1x3 id=qd timeout=0
alter a set:retention.ms=5 id=conf
alter a set:nonsense.ms=5 id=bad
settings fewer count=4
create e -1x1 id=qe
delete a id=end
delete a id=twice
create bad~name 1x1 id=qf
"""

STORY_REQUESTS = ["qa", "again", "more", "less", "conf", "bad", "end", "twice", "qb", "qc", "qf", "qd", "qe"]
"""Ids of the story's requests, by shard and then by offset."""


def requests_of(records: Sequence[Recorded]) -> list[RecordedRequest]:
    return list(requests_in(records))


def decided_again(records: Sequence[Recorded], release: str = RELEASE) -> list[Difference]:
    """The differences when a log is decided again."""
    return [one for request in requests_of(records) if (one := difference(request, release)) is not None]


often = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@often
@drawn(walks())
def test_redecide_finds_no_difference_in_random_logs_of_this_release(walk: Walk) -> None:
    log = walked(walk).log
    assert decided_again(log) == [], "\n".join(f"{one.offset} {one.cause.command} {one.event}" for one in log)


@often
@drawn(walks())
def test_every_client_event_belongs_to_exactly_one_request(walk: Walk) -> None:
    log = walked(walk).log
    found = sorted(record.offset for one in requests_of(log) if not one.broken for record in one.records)
    expected = [one.offset for one in log if one.cause.command in ("CreateTopic", "CreatePartitions", "DeleteTopic")]
    expected += [one.offset for one in log if one.cause.command == "AlterTopicConfigs"]
    assert found == sorted(expected), "each event of a request belongs to exactly one difference"


def test_redecide_finds_no_difference_in_a_story() -> None:
    log = story(STORY).log
    assert [one.first.cause.request_id for one in requests_of(log)] == STORY_REQUESTS
    assert decided_again(log) == []


# A changed rule.


def test_redecide_finds_a_changed_replica_placement_in_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    log = story(STORY).log
    place = placement.place

    def backwards(*arguments: Any) -> Any:
        return tuple(tuple(reversed(replicas)) for replicas in place(*arguments))

    monkeypatch.setattr(placement, "place", backwards)
    found = decided_again(log, "2.0")
    assert [one.request_id for one in found] == ["qa", "more", "qb", "qd"], found
    assert found[0].offset == at(log, TopicCreated, topic="a") - 1
    assert found[0].recorded.startswith("TopicCreated.partitions = [[["), found[0]
    assert found[0].recorded != found[0].now
    assert found[0].why == (
        "release 1.0 (effective since offset 0) decided it; the rules of this release, 2.0, are others"
    )


def test_redecide_finds_a_changed_rejection_message(monkeypatch: pytest.MonkeyPatch) -> None:
    log = story(STORY).log
    other = Rejection(ErrorCode.INVALID_TOPIC_EXCEPTION, "Such a name!", "validation:name")
    monkeypatch.setattr(validation, "name", lambda topic: other if " " in topic else None)
    (found,) = decided_again(log)
    assert found.topic == "bad name"
    assert found.now == 'CreateRejected.message = "Such a name!"'
    assert found.why == (
        "release 1.0 (effective since offset 31), which is this one, has recorded it: its rules or the log were changed"
    )


def test_redecide_reports_an_exception_and_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    log = story(STORY).log

    def broken(topic: str) -> None:
        if topic == "e":
            raise KeyError("shelf")

    monkeypatch.setattr(validation, "name", broken)
    found = decided_again(log)
    assert [one.topic for one in found] == ["bad name", "e"]
    assert found[1].now == "KeyError: 'shelf'"
    assert found[1].why == "this release (1.0) fails on this request"


# Changed logs: the change | the difference: topic, now, a part of why


def last(log: list[Recorded], kind: type[Event]) -> int:
    """The offset of the last event of a type."""
    return next(one.offset for one in reversed(log) if isinstance(one.event, kind))


TURNED = Partition((BrokerId(3), BrokerId(1)), (BrokerId(3), BrokerId(1)), BrokerId(3))


def _no_creation(log: list[Recorded]) -> list[Recorded]:
    return without(log, at(log, TopicCreated, topic="a"))


def _cause(log: list[Recorded]) -> list[Recorded]:
    first = at(log, CreateRequested, topic="e")
    changes = (first, first + 1)
    return [replace(one, cause=replace(one.cause, request_id="other")) if one.offset in changes else one for one in log]


UNEXPLAINED = "its rules or the log were changed"
PLANTED: dict[str, tuple[Callable[[list[Recorded]], list[Recorded]], str, str, str]] = {
    "settings": (
        lambda log: changed(log, last(log, SettingsChanged), settings=(("num.partitions", "5"),)),
        *("e", "TopicCreated.partitions", UNEXPLAINED),
    ),
    "first settings": (
        lambda log: changed(log, 0, settings=(("num.partitions", "2"),)),
        *("d", "CreateRejected", UNEXPLAINED),
    ),
    "brokers": (
        lambda log: [one for one in log if one.offset != last(log, BrokerUnfenced)],
        *("a", "TopicCreated", "the live brokers [1, 2, 3], but by the broker events before it [1, 2] were live"),
    ),
    "replicas": (
        lambda log: changed(log, at(log, TopicCreated, topic="a"), partitions=(TURNED,)),
        *("a", "TopicCreated.partitions", UNEXPLAINED),
    ),
    "request": (
        lambda log: changed(log, at(log, CreateRequested, topic="e"), num_partitions=9),
        *("e", "TopicCreated.partitions", UNEXPLAINED),
    ),
    "no request": (
        lambda log: without(log, at(log, CreateRequested, topic="e")),
        *("e", "nothing", "the log holds no request that led to these events"),
    ),
    "no answer": (lambda log: without(log, at(log, CreateAnswered, topic="d")), *("d", "CreateAnswered", UNEXPLAINED)),
    "no creation": (_no_creation, "a", "TopicCreated", UNEXPLAINED),
    "cause": (_cause, "e", "caused by CreateTopic qe", UNEXPLAINED),
}


@pytest.mark.parametrize(("change", "topic", "now", "why"), PLANTED.values(), ids=PLANTED)
def test_redecide_finds_a_planted_change_and_reports_its_cause(change: Any, topic: str, now: str, why: str) -> None:
    found = [one for one in decided_again(change(story(STORY).log)) if one.topic == topic]
    assert found, f"no difference for {topic}"
    assert now in found[0].now, found[0]
    assert why in found[0].why, found[0]
    assert found[0].recorded != found[0].now


def test_an_inapplicable_event_stops_redecide_of_its_shard_only() -> None:
    log = story(STORY).log
    found = decided_again(_no_creation(log))
    assert [one.topic for one in found] == ["a", "a"], found
    assert found[1].why.endswith("topic 'a' does not exist; what follows in this shard was not decided again"), found


@often
@drawn(walks())
def test_redecide_finds_a_changed_creation_deadline(walk: Walk) -> None:
    """Any other deadline of a recorded creation is reported as a difference."""
    log = walked(walk).log
    for record in log:
        if isinstance(record.event, TopicCreated):
            other = changed(log, record.offset, deadline_ms=record.event.deadline_ms + 1)
            assert decided_again(other) != [], f"another deadline at offset {record.offset} is not reported"
            return


# With Spark.


def test_redecide_finds_no_difference_in_a_real_log(history: LogRef) -> None:
    done = run_redecide(InProcess(), history, Options())
    of_clients = [one for one in records_of(history) if one.cause.command in CLIENT_COMMANDS]
    requests = {(one.cause.request_id, one.event.topic) for one in of_clients}  # type: ignore[union-attr]
    assert not done.found
    assert done.rows == []
    end = len(records_of(history)) - 1
    words = f"{len(requests)} requests up to offset {end} decided again by release {THIS_RELEASE}"
    assert done.lines == [f"{words}: 0 decided otherwise"]


def test_redecide_of_an_older_release_uses_its_settings_and_reports_the_rule(tmp_path: Path) -> None:
    """Release 0.0.9 placed replicas in reverse order; all its other rules are the same."""
    log = story(STORY).log
    older = [_placed_otherwise(replace(one, event=_of_release(one.event, "0.0.9"))) for one in log]
    ref = written(tmp_path / "older", older)
    done = run_redecide(InProcess(), ref, Options())
    assert done.found
    assert [row["request_id"] for row in done.rows] == ["qa", "qb", "qd"]
    assert [row["offset"] for row in done.rows] == [at(log, CreateRequested, topic=name) for name in ("a", "b.c", "d")]
    why = f"release 0.0.9 (effective since offset 0) decided it; the rules of this release, {THIS_RELEASE}, are others"
    assert [row["why"] for row in done.rows] == [why] * 3
    assert done.lines[:2] == [
        f"13 requests up to offset 38 decided again by release {THIS_RELEASE}: 3 decided otherwise",
        f"  3 x {why}",
    ]
    assert done.rows == [msgspec.to_builtins(one) for one in decided_again(older, THIS_RELEASE)]
    assert run_redecide(InProcess(), ref, Options(at="7")).found, "the creation is after the end"
    assert not run_redecide(InProcess(), ref, Options(at="6")).found, "no request before this offset"
    listed = in_service.redecide(Past((LogRange(ref.text, 3, 8, len(log)),), "offset 8", AsOfView(0, None, None)))
    assert listed.summary == f"12 requests since offset 8 decided again by release {THIS_RELEASE}: 2 otherwise"
    (group,) = listed.groups
    assert (group.change, group.rule, group.count) == ("redecided", why, 2)
    assert [(one.topic, one.partition) for one in group.requests] == [("b.c", 3), ("d", 3)]
    assert group.requests[0].message.startswith("recorded: TopicCreated.partitions = ")


def _of_release(event: Event, release: str) -> Event:
    return replace(event, release=release) if isinstance(event, SettingsChanged) else event


def _placed_otherwise(record: Recorded) -> Recorded:
    if not isinstance(record.event, TopicCreated) or len(record.event.partitions[0].replicas) == 1:
        return record
    turned = tuple(replace(one, replicas=one.replicas[::-1]) for one in record.event.partitions)
    return replace(record, event=replace(record.event, partitions=turned))


def test_redecide_counts_all_differences_and_limits_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = story(STORY).log
    ref = written(tmp_path / "older", map(_placed_otherwise, log))
    monkeypatch.setattr(redecide, "DIFFERENCES_PER_BUCKET_MAX", 1)
    done = run_redecide(InProcess(), ref, Options())
    assert len(done.rows) == 1
    assert done.about["otherwise"] > 1


def test_redecide_skips_decisions_of_another_controller() -> None:
    log = golden.history(golden.FOLLOWED)
    assert {"PartitionsAdded", "TopicConfigsChanged"} <= {type(one.event).__name__ for one in log}
    assert requests_of(log) == []


def test_held_and_approved_requests_are_decided_again() -> None:
    log = golden.history("approvals")
    assert not [one for request in requests_in(log) if (one := difference(request, RELEASE)) is not None]
    log = [replace(one, event=denied(one.event)) if isinstance(one.event, ApprovalDecided) else one for one in log]
    found = [difference(request, RELEASE) for request in requests_in(log)]
    assert [one.now[:14] for one in found if one is not None] == ["CreateRejected", "ChangeRejected"]


def denied(event: ApprovalDecided) -> ApprovalDecided:
    return replace(event, outcome="denied")


LIMITS = """
[[rule]]
name = "few"
limit = { topics = 3, partitions = 8, per = "principal" }
[[rule]]
name = "pay"
mode = "warn"
limit = { partitions = 4, prefix = "pay." }
"""


def with_limits() -> list[Recorded]:
    """A log with requests that limits refuse or warn about, across shards, also after deletions and growth."""
    rig = ready()
    apply(rig, LIMITS)
    for name, partitions in (("a", 2), ("b", 2), ("c", 1), ("pay.x", 2)):
        create(rig, name, partitions)
    delete(rig, "a")
    grow(rig, "pay.orders", 6)
    create(rig, "pay.y", 1, principal="User:bob")
    create(rig, "c", 1)
    apply(rig, LIMITS.replace("= 3", "= 4"))
    create(rig, "d", 1)
    grow(rig, "d", 2)
    return rig.log


def test_requests_on_limits_of_rules_are_decided_again_with_the_counts_of_their_time() -> None:
    records = with_limits()
    refused = [one.event.message for one in records if isinstance(one.event, CreateRejected | ChangeRejected)]
    assert len(refused) == 5, refused
    assert not [one for request in requests_in(records) if (one := difference(request, RELEASE)) is not None]


def test_wrong_counts_are_found_as_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountHistory, "before", lambda *_: Counts())
    assert [one for one in requests_in(with_limits()) if difference(one, RELEASE) is not None]


def test_redecide_of_a_log_with_limits_agrees_in_buckets(tmp_path: Path) -> None:
    ref = written(tmp_path / "log", with_limits())
    outcome = run_redecide(InProcess(), ref, Options())
    assert not outcome.found, outcome.lines
