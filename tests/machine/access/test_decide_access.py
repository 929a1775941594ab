"""Decisions on ACLs, quotas and counted refusals, as text tables."""

import pytest

from controller.machine.access.requests import mutations
from controller.machine.apply import CannotApply
from controller.machine.commands.commands import DeleteTopic
from controller.machine.decide import decide
from controller.machine.decision import Decision
from controller.machine.errors import ErrorCode
from controller.machine.recorded_command import recall
from events.access import Acl, AclsCreated, AclsDeleted
from events.catalog import Cause, Recorded
from events.names import Offset, RequestId, TopicName
from tests.machine.audit.auditor import audit
from tests.machine.in_short import event_text
from tests.machine.rig import Rig, fold, restored, stored
from tests.machine.tables import command, given

ACLS = """
acls bob/allow/read/topic/a | acls-created(User:bob may Read Topic:a) => ok
acls bob/deny/all/topic/a…/10.0.0.7 | acls-created(User:bob may not All Topic:a (prefixed) from 10.0.0.7) => ok
acls bob/allow/read/topic/a bob/allow/read/topic/a | acls-created(User:bob may Read Topic:a) => ok ok
acls bob/deny/all/topic/a/10.0.0.7/8 | acls-created(User:bob may not All Topic:a from 10.0.0.7/8) => ok
acls bob/deny/all/topic/a/2001:db8::/32 | acls-created(User:bob may not All Topic:a from 2001:db8::/32) => ok
acls bob/deny/all/topic/a/10.0.0.0/33 | => INVALID_REQUEST
acls bob/deny/all/topic/a/- | => INVALID_REQUEST
acls held/allow/read/topic/t | => ok
acls held/allow/read/topic/t bob/allow/read/topic/t | acls-created(User:bob may Read Topic:t) => ok ok
acls bob/allow/read/topic/a bob/allow/read/topic/'' | acls-created(User:bob may Read Topic:a) => ok INVALID_REQUEST
acls bob/allow/any/topic/a | => INVALID_REQUEST
acls bob/any/read/topic/a | => INVALID_REQUEST
acls bob/allow/read/any/a | => INVALID_REQUEST
acls bob/allow/read/unknown/a | => INVALID_REQUEST
acls bob/allow/unknown/topic/a | => INVALID_REQUEST
acls bob/allow/read/topic/~a | => INVALID_REQUEST
acls bob/allow/create/cluster/mine | => INVALID_REQUEST
acls bob/allow/create/cluster/kafka-cluster | acls-created(User:bob may Create Cluster:kafka-cluster) => ok
acls /allow/read/topic/a | => INVALID_REQUEST
acls User:/allow/read/topic/a | => INVALID_REQUEST
acls :bob/allow/read/topic/a | => INVALID_REQUEST
unacls topic/literal/t/-/any | acls-deleted(User:held may Read Topic:t) => 1
unacls topic/literal/t/held/any topic/any/-/-/any | acls-deleted(User:held may Read Topic:t) => 1 1
unacls topic/literal/t/bob/any | => 0
unacls topic/literal/t/-/write | => 0
unacls group/any/-/-/any | => 0
unacls topic/prefixed/t/-/any | => 0
unacls topic/match/t/-/any | acls-deleted(User:held may Read Topic:t) => 1
"""

QUOTAS = """
quotas user:bob/controller_mutation_rate=2 | quotas(quotas of user bob: controller_mutation_rate=2) => ok
quotas client-id:c+user:bob/request_percentage=.5 | quotas(quotas of client-id c, user bob: request_percentage=0.5) => ok
quotas user:held/controller_mutation_rate=1 | => ok
quotas user:held/controller_mutation_rate=- | quotas(quotas of user held: no controller_mutation_rate) => ok
quotas user:held/producer_byte_rate=- | => ok
quotas user:held/producer_byte_rate=7;controller_mutation_rate=- dry | => ok
quotas user:<default>/producer_byte_rate=7 | quotas(quotas of user <default>: producer_byte_rate=7) => ok
quotas user:bob/producer_byte_rate=7.5 | => INVALID_REQUEST
quotas user:bob/producer_byte_rate=1e30 | => INVALID_REQUEST
quotas user:bob/producer_byte_rate=0 | => INVALID_REQUEST
quotas user:bob/controller_mutation_rate=nan | => INVALID_REQUEST
quotas user:bob/controller_mutation_rate=inf | => INVALID_REQUEST
quotas user:bob/controller_mutation_rate=-1 | => INVALID_REQUEST
quotas user:bob/controller_mutation_rate=1e-320 | quotas(quotas of user bob: controller_mutation_rate=9.99989e-321) => ok
quotas user:bob/producer_byte_rate=9223372036854775807 | quotas(quotas of user bob: producer_byte_rate=9.22337e+18) => ok
quotas user:bob/producer_byte_rate=1e19 | => INVALID_REQUEST
quotas user:bob/request_percentage=nan | => INVALID_REQUEST
quotas ip:10.0.0.7/connection_creation_rate=2147483648 | => INVALID_REQUEST
quotas ip:10.0.0.7/connection_creation_rate=.5 | => INVALID_REQUEST
quotas user:bob/no_such_key=1 | => INVALID_REQUEST
quotas user:bob/connection_creation_rate=1 | => INVALID_REQUEST
quotas ip:10.0.0.7/connection_creation_rate=1 | quotas(quotas of ip 10.0.0.7: connection_creation_rate=1) => ok
quotas ip:::1/connection_creation_rate=1 | quotas(quotas of ip ::1: connection_creation_rate=1) => ok
quotas ip:localhost/connection_creation_rate=1 | => INVALID_REQUEST
quotas ip:10.0.0.7+user:bob/connection_creation_rate=1 | => INVALID_REQUEST
quotas group:g/controller_mutation_rate=1 | => INVALID_REQUEST
quotas user:/controller_mutation_rate=1 | => INVALID_REQUEST
quotas user:a+user:b/controller_mutation_rate=1 | => INVALID_REQUEST
quotas /controller_mutation_rate=1 | => INVALID_REQUEST
quotas user:bob/request_percentage=1;request_percentage=2 | => INVALID_REQUEST
quotas user:x/request_percentage=1 user:x/request_percentage=2 | quotas(quotas of user x: request_percentage=1) => ok INVALID_REQUEST
"""  # noqa: E501


def rows(table: str) -> list[tuple[str, str]]:
    pairs = [line.split("|") for line in table.splitlines() if line]
    return [(request.strip(), expected.strip()) for request, expected in pairs]


def rig_with_access() -> Rig:
    rig = given("1")
    for line in ("acls held/allow/read/topic/t", "quotas user:held/controller_mutation_rate=1"):
        rig.put(command(rig, line))
    return rig


def in_short(decision: Decision) -> str:
    (answer,) = decision.answers
    is_deletion = any(detail.acls for detail in answer.details) or not any(
        isinstance(event, AclsCreated) for event in decision.events
    )
    parts = [
        ErrorCode(each.code).name if each.code else str(len(each.acls)) if is_deletion and each.acls else "ok"
        for each in answer.details
    ]
    return " ".join([*map(event_text, decision.events), "=>", *parts])


@pytest.mark.parametrize(("line", "expected"), rows(ACLS + QUOTAS))
def test_acl_and_quota_decisions(line: str, expected: str) -> None:
    rig = rig_with_access()
    decision = decide(rig.state, command(rig, line))
    assert in_short(decision) == expected.replace("=> 0", "=> ok")


def test_acl_and_quota_decisions_pass_the_audit() -> None:
    logs = []
    for line, _ in rows(ACLS + QUOTAS):
        rig = rig_with_access()
        rig.put(command(rig, line))
        logs.append(rig.log)
    assert audit(*logs) == []


def test_error_messages_name_the_invalid_and_the_allowed_values() -> None:
    rig = rig_with_access()
    (answer,) = decide(rig.state, command(rig, "acls nobody:/allow/read/topic/a")).answers
    assert "must be TYPE:NAME" in answer.details[0].message
    (answer,) = decide(rig.state, command(rig, "quotas user:bob/speed=1")).answers
    assert "allowed: consumer_byte_rate, controller_mutation_rate" in answer.details[0].message


def test_create_acls_beyond_the_limit_is_rejected() -> None:
    rig = given("1")
    words = [f"u{number}/allow/read/topic/t" for number in range(10_001)]
    decision = decide(rig.state, command(rig, "acls " + " ".join(words)))
    assert (decision.events, decision.answers[0].code) == ((), ErrorCode.POLICY_VIOLATION)


def test_acl_and_quota_state_is_independent_of_snapshot_offsets() -> None:
    rig = rig_with_access()
    for line in (
        "acls bob/allow/read/topic/a… bob/deny/read/topic/a eve/allow/all/topic/*",
        "unacls topic/match/abc/bob/any",
        "quotas user:held/controller_mutation_rate=- client-id:<default>/request_percentage=3",
        "credential set alice",
        "refusals 3",
    ):
        rig.put(command(rig, line))
    whole = stored(rig.state)
    for end in range(len(rig.log) + 1):
        assert stored(fold(rig.log[end:], restored(stored(fold(rig.log[:end]))))) == whole, f"split at {end}"


@pytest.mark.parametrize("kind", [AclsCreated, AclsDeleted])
def test_inapplicable_acl_events_are_an_error(kind: type[AclsCreated | AclsDeleted]) -> None:
    rig = rig_with_access()
    name = "t" if kind is AclsCreated else "other"
    event = kind(RequestId("q"), (Acl(2, 3, name, "User:held", "*", 3, 3),), "User:a", None)
    with pytest.raises(CannotApply, match=r"held|hold"):
        fold([Recorded(Offset(99), 1, Cause("X", RequestId("q")), event)], rig.state)


def test_mutation_quota_counts_created_and_deleted_partitions() -> None:
    rig = given("1 has:t:3x1")
    for line, expected in (
        ("create u 5x1", 5),
        ("create u 5x1 dry", 5),
        ("create t 5x1", 0),
        ("partitions t to=7", 4),
        ("partitions t to=7 dry", 4),
        ("delete t", 3),
        ("delete u", 0),
        ("alter t set:retention.ms=5", 0),
    ):
        request = command(rig, line)
        assert mutations(rig.state, request, decide(rig.state, request)) == expected, line  # type: ignore[arg-type]


def test_a_quota_refusal_is_decided_the_same_again() -> None:
    rig = given("1 has:t")
    throttled = DeleteTopic(
        request_id=RequestId("q"), at_ms=rig.tick(), topic=TopicName("t"), api="DeleteTopics", throttle_ms=17
    )
    before = len(rig.log)
    decision = rig.put(throttled)
    assert decision.refusal is not None
    assert (decision.refusal.code, decision.refusal.rule) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "quota")
    again = recall(rig.log[before:])
    assert again is not None
    assert decide(fold(rig.log[:before]), again).events == decision.events
