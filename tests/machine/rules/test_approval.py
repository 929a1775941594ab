"""Rules with `approve_by`: held, approved, denied and expired requests, through `decide`."""

import pytest
from msgspec.structs import replace

from controller.machine.commands.commands import Approval, CreateTopic
from controller.machine.decide import decide
from controller.machine.recorded_command import approved_command
from controller.machine.rules import approval
from controller.machine.rules.reading import read_rules
from controller.machine.rules.rule import RulesError
from events.catalog import ApprovalRequested
from events.names import RequestId, TopicId, TopicName
from tests.machine.rig import TOPIC_ID, Rig
from tests.machine.tables import command, given, play, stories

STORIES = stories("""
# a held create is done once, under a new request id, by whoever is not the requester
rules approval id=q0                 | rules(1) => NONE 1
create a 4x1 id=q1                   | refused held => POLICY_VIOLATION policy:rules/big
create a 4x1 id=q2                   | refused => POLICY_VIOLATION policy:rules/big
create a 4x1 id=q3 approves=q1 by=User:alice | => POLICY_VIOLATION
create a 4x1 id=q4 approves=q1       | requested created(1 1 1 1) approved
create a 4x1 id=q5 approves=q1       | => RESOURCE_NOT_FOUND
# the request of a dry run is not held
rules approval id=q0                 | rules(1) => NONE 1
create a 4x1 id=q1 dry               | => POLICY_VIOLATION policy:rules/big
create a 4x1 id=q2 approves=q1       | => RESOURCE_NOT_FOUND
# growing, config changes and deletion
rules approval id=q0                 | rules(1) => NONE 1
create a 1x1 id=q1                   | requested created(1)
partitions a to=3 id=q2              | rejected held => POLICY_VIOLATION policy:rules/big
alter a set:retention.ms=7 id=q3     | rejected held => POLICY_VIOLATION policy:rules/kept
delete a id=q4                       | rejected held => POLICY_VIOLATION policy:rules/kept
partitions a to=3 id=q5 approves=q2  | added(1: 1 1) approved => NONE
alter a set:retention.ms=7 id=q6 approves=q3 | configs(retention.ms=7) approved => NONE
delete a id=q7 approves=q4           | deleted answered approved => NONE => UNKNOWN_TOPIC_OR_PARTITION after 6 ms
# a denied request, and one whose topic is gone, cannot be approved; the latter waits on until it expires
rules approval id=q0                 | rules(1) => NONE 1
create a 1x1 id=q1                   | requested created(1)
partitions a to=3 id=q2              | rejected held => POLICY_VIOLATION policy:rules/big
deny q2 id=q3                        | denied => NONE
deny q2 id=q4                        | => RESOURCE_NOT_FOUND
partitions a to=3 id=q5 approves=q2  | => RESOURCE_NOT_FOUND
partitions a to=3 id=q6              | rejected held => POLICY_VIOLATION policy:rules/big
rules none id=q7                     | rules(2) => NONE 2
delete a id=q8                       | deleted answered => NONE => UNKNOWN_TOPIC_OR_PARTITION after 7 ms
partitions a to=3 id=q9 approves=q6  | => UNKNOWN_TOPIC_ID
expire-approvals id=q10 at=86000000  | => NONE
partitions a to=3 id=q11 approves=q6 at=86400000 | => RESOURCE_NOT_FOUND
expire-approvals id=q12 at=86400000  | expired => NONE
# an approved request obeys the other rules of its time
rules approval id=q0                 | rules(1) => NONE 1
create a 4x1 id=q1                   | refused held => POLICY_VIOLATION policy:rules/big
rules small id=q2                    | rules(2) => NONE 2
create a 4x1 id=q3 approves=q1       | => POLICY_VIOLATION policy:rules/small
rules none id=q4                     | rules(3) => NONE 3
create a 4x1 id=q5 approves=q1       | requested created(1 1 1 1) approved
# policies and the target cluster judge when the request is approved
settings policy id=q0                | settings
rules approval id=q1                 | rules(1) => NONE 1
create a 4x1 id=q2                   | needs_approval
create a 4x1 id=q2 verdict=allowed   | refused held => POLICY_VIOLATION policy:rules/big
create a 4x1 id=q3 approves=q2       | needs_approval
create a 4x1 id=q3 approves=q2 verdict=refused | => POLICY_VIOLATION policy:names
create a 4x1 id=q3 approves=q2 verdict=allowed | requested created(1 1 1 1) approved
""")


@pytest.mark.parametrize(("name", "lines"), STORIES, ids=[name for name, _ in STORIES])
def test_requests_that_wait_for_approval(name: str, lines: list[str]) -> None:
    play(given("1"), lines)


def held() -> tuple[Rig, ApprovalRequested]:
    rig = given("1")
    rig.put(command(rig, "rules approval id=q0"))
    rig.put(command(rig, "create a 4x1 id=q1 timeout=0"))
    return rig, rig.state.cluster.held[RequestId("q1"), TopicName("a")]


def test_the_refusal_names_the_request_and_the_way_forward() -> None:
    rig, _ = held()
    again = decide(rig.state, command(rig, "create a 4x1 id=q2"))
    assert again.answers[0].message == (
        "rule 'big': partitions is 4, allowed is at most 2. The same request waits already: ask User:bob or the role "
        "approver to run `topicwright approve q1`."
    )
    other = decide(rig.state, command(rig, "create b 4x1 id=q3"))
    assert other.answers[0].message == (
        "rule 'big': partitions is 4, allowed is at most 2. The request waits for approval for 1 day: ask User:bob "
        "or the role approver to run `topicwright approve q3`."
    )


def test_a_request_is_never_done_to_a_later_topic_of_the_same_name() -> None:
    rig = given("1")
    for line in ("rules approval id=q0", "create a 1x1 id=q1", "delete a id=q2", "partitions a to=3 id=q3"):
        rig.put(command(rig, line))
    rig.put(command(rig, "delete a id=q4 approves=q2"))
    rig.put(replace(command(rig, "create a 1x1 id=q5"), topic_id=TopicId(bytes(15) + b"2")))
    late = rig.put(command(rig, "partitions a to=3 id=q6 approves=q3"))
    assert late.answers[0].message == "Topic a was deleted since, so the request can only be denied."
    again = rig.put(command(rig, "partitions a to=3 id=q7"))
    assert "approve q7`" in again.answers[0].message, "the request for the later topic waits by itself"
    assert rig.put(command(rig, "partitions a to=3 id=q8 approves=q7")).answers[0].code == 0


def test_the_approved_command_is_the_requested_one() -> None:
    rig, request = held()
    stamps = {"request_id": RequestId("q2"), "at_ms": rig.tick(), "topic_id": TOPIC_ID}
    approved = approved_command(request, Approval(request.request_id, "User:bob"), **stamps)
    assert isinstance(approved, CreateTopic)
    assert (approved.principal, approved.num_partitions, approved.timeout_ms) == ("User:alice", 4, 30_000)
    assert decide(rig.state, approved).events[-1].request_id == "q1"  # type: ignore[union-attr]


def test_held_requests_are_bounded_in_number_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, _ = held()
    large = replace(command(rig, "create b 4x1 id=q2"), client_id="x" * approval.HELD_BYTES_MAX)
    decision = decide(rig.state, large)
    assert "bytes, allowed are 16384" in decision.answers[0].message
    assert not isinstance(decision.events[-1], ApprovalRequested)
    monkeypatch.setattr(approval, "HELD_PER_PRINCIPAL_MAX", 1)
    decision = decide(rig.state, command(rig, "create b 4x1 id=q2"))
    assert "1 of User:alice and 1 of all wait" in decision.answers[0].message
    assert not isinstance(decision.events[-1], ApprovalRequested)
    assert isinstance(decide(rig.state, command(rig, "create b 4x1 id=q2 as=User:eve")).events[-1], ApprovalRequested)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ('approve_by = "bob"', "is not a list of approvers; allowed: 1 to 20 principals, perhaps with"),
        ('approve_by = ["bob"]', "is not a list of approvers"),
        ('approve_by = ["viewer"]', "is not a list of approvers"),
        ("approve_by = []", "is not a list of approvers"),
        (f"approve_by = {['User:a'] * 21}", "is not a list of approvers"),
        ('approve_by = ["User:bob"]\napproval_expires = "31d"', "is not a duration; allowed: minutes, hours or days"),
        ('approve_by = ["User:bob"]\napproval_expires = 24', "is not a duration"),
        (
            'approve_by = ["User:bob"]\non = "elect"',
            "on = 'elect': cannot wait for approval; allowed: with approve_by: create",
        ),
    ],
)
def test_wrong_approvers_refuse_the_rules(keys: str, expected: str) -> None:
    with pytest.raises(RulesError) as raised:
        read_rules(f"[[rule]]\nname = 'r'\nrefuse = 'no'\n{keys}\n")
    assert expected in str(raised.value)
