"""Rows of requests: the progress of each topic of a request, step by step."""

import pytest

from controller.machine.apply import CannotApply
from events.access import (
    Acl,
    AclsCreated,
    AclsDeleted,
    QuotasChanged,
    RequestsRefused,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from events.catalog import Cause, CreateAnswered, Event, Recorded, ResourceConfigsChanged, TopicReady
from events.names import Offset, RequestId, TopicName
from projections.text.wording import event_text
from projections.views.requests import RequestView, fold_request_topic, request_view
from tests.machine.tables import command, given
from tests.projections.logs import story

# initial state | steps, separated by `;` | request q: its API and version, then each topic: status, code, rule, wait
TABLE = """
1 2 3        | create t 1x1                         | CreateTopics v7: t waiting
1 2 3        | create t 1x1; confirm 1 2 3          | CreateTopics v7: t created 0 1ms
1 2 3        | create t 1x1 api=HTTP; confirm 1 2 3 | HTTP v7: t created 0 1ms
1 2 3        | create t 1x1 timeout=0               | CreateTopics v7: t timed-out 7 0ms
1 2 3        | create t 1x1; expire t id=q at=1000  | CreateTopics v7: t timed-out 7 1000ms
1 2 3        | create t 1x1; delete t id=d          | CreateTopics v7: t failed 3 1ms
1 2 3        | create t 0x1                         | CreateTopics v7: t rejected 37 validation:partitions 0ms
1 2 3 policy | create t 1x1 verdict=refused         | CreateTopics v7: t rejected 44 policy:names 0ms
1 2 3        | create t 1x1; create u 1x9           | CreateTopics v7: t waiting, u rejected 38 validation:live-brokers 0ms
1 2 3 has:t  | create t 1x1                         | CreateTopics v7: t rejected 36 validation:exists 0ms
1 2 3 has:t  | delete t                             | DeleteTopics v6: t deleted 0 0ms
1 2 3 has:t  | partitions t to=3                    | CreatePartitions v3: t partitions-added 0 0ms
1 2 3 has:t  | partitions t to=1                    | CreatePartitions v3: t rejected 37 validation:partitions 0ms
1 2 3 has:t  | alter t set:retention.ms=5           | IncrementalAlterConfigs v1: t configs-changed 0 0ms
1 2 3        | delete t                             | DeleteTopics v6: t rejected 3 validation:unknown-topic 0ms
1 2 3        | create t 1x1 dry                     | nothing
"""  # noqa: E501


def _shown(row: RequestView | None) -> str:
    if row is None:
        return "nothing"
    topics = []
    for one in row.topics:
        words = [one.topic, one.status, *([str(one.code)] if one.code is not None else [])]
        words += [one.rule] if one.rule else []
        words += [f"{one.waited_ms}ms"] if one.waited_ms is not None else []
        topics.append(" ".join(words))
    return f"{row.api} v{row.api_version}: {', '.join(topics)}"


def _row(begin: str, steps: str) -> RequestView | None:
    rig = given(begin)
    for step in steps.split(";"):
        rig.put(command(rig, step.strip()))
    return request_view(one for one in rig.log if getattr(one.event, "request_id", "") == "q")


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_request_rows_equal_their_events(line: str) -> None:
    begin, steps, expected = (column.strip() for column in line.split("|"))
    assert _shown(_row(begin, steps)) == expected


@pytest.mark.parametrize(
    "event",
    [TopicReady(TopicName("t")), CreateAnswered(RequestId("q"), TopicName("t"), 0, "", 1)],
    ids=["ready", "answered"],
)
def test_an_inapplicable_request_event_fails_the_fold(event: TopicReady | CreateAnswered) -> None:
    record = Recorded(Offset(9), 0, Cause("X", RequestId("q")), event)
    with pytest.raises(CannotApply, match="at offset 9 cannot be applied"):
        fold_request_topic(None, record)
    with pytest.raises(CannotApply, match="no request begins with it"):
        request_view([record])


ID = RequestId("r1")
ACL = Acl(2, 3, "pay.orders", "User:bob", "*", 3, 3)
EVENTS: dict[str, list[Event]] = {
    "AlterUserScramCredentials": [
        ScramCredentialRemoved(ID, "bob", "SCRAM-SHA-256", "User:admin", "kafka-configs"),
        ScramCredentialSet(ID, "eve", "SCRAM-SHA-256", 4096, b"", b"", b"", "User:admin", "kafka-configs"),
    ],
    "CreateAcls": [AclsCreated(ID, (ACL,), "User:admin", "kafka-configs")],
    "DeleteAcls": [AclsDeleted(ID, (ACL,), "User:admin", "kafka-configs")],
    "AlterConfigs": [ResourceConfigsChanged(ID, 4, "1", (("log.retention.ms", "5"),), "User:admin", "kafka-configs")],
    "AlterClientQuotas": [
        QuotasChanged(ID, (("user", "bob"),), (("controller_mutation_rate", 1.0),), (), "User:admin", "kafka-configs")
    ],
}


def test_cluster_requests_have_rows_without_topics() -> None:
    for kind, events in EVENTS.items():
        records = [Recorded(Offset(7 + n), 5, Cause(kind, ID), event) for n, event in enumerate(events)]
        row = request_view(records)
        assert row is not None
        assert (row.request_id, row.api, row.principal, row.client_id) == (ID, kind, "User:admin", "kafka-configs")
        assert (row.requested_offset, row.topics) == (7, ())


def test_access_event_texts_are_distinct_and_without_secrets() -> None:
    words = [event_text(event) for events in EVENTS.values() for event in events]
    assert len(set(words)) == len(words)
    assert words[0] == "User:admin (kafka-configs) removes the password of user bob for SCRAM-SHA-256"
    assert words[1] == "User:admin (kafka-configs) sets the password of user eve for SCRAM-SHA-256"


WORDS = [
    ("acls bob/allow/create/topic/pay.…", "User:admin (table) adds an ACL: User:bob may Create Topic:pay. (prefixed)"),
    (
        "acls bob/deny/all/cluster/kafka-cluster/10.0.0.7 User:*/allow/describe/topic/*",
        "User:admin (table) adds 2 ACLs: User:* may Describe Topic:*; "
        "User:bob may not All Cluster:kafka-cluster from 10.0.0.7",
    ),
    (
        "acls " + " ".join(f"u{number}/allow/read/topic/t" for number in range(8)),
        "adds 8 ACLs: User:u0 may Read Topic:t; User:u1 may Read Topic:t; "
        "User:u2 may Read Topic:t; User:u3 may Read Topic:t; User:u4 may Read Topic:t; and 3 more",
    ),
    ("unacls topic/any/-/-/any", "User:admin (table) removes an ACL: User:held may Read Topic:t"),
    (
        "quotas user:<default>+client-id:c/controller_mutation_rate=2.5;request_percentage=3",
        "User:admin changes the quotas of client-id c, user <default>: controller_mutation_rate=2.5, "
        "request_percentage=3",
    ),
    ("quotas user:held/controller_mutation_rate=-", "quotas of user held: no controller_mutation_rate"),
    (
        "refusals 4711",
        "User:bob is rejected for Metadata, Describe on Topic:t, 4711 times "
        "with TOPIC_AUTHORIZATION_FAILED (29) by authorizer",
    ),
    ("refusals 1", "Describe on Topic:t, once with"),
]


@pytest.mark.parametrize(("step", "words"), WORDS)
def test_access_event_texts(step: str, words: str) -> None:
    rig = story(f"1\nacls held/allow/read/topic/t\nquotas user:held/controller_mutation_rate=1\n{step}")
    assert words in event_text(rig.log[-1].event)


def test_a_refusal_text_without_the_authorizer_has_no_operation() -> None:
    event = RequestsRefused("User:bob", None, "", "CreateTopics", "", "Topic:t", 44, "policy:x", 3, 1)
    text = "User:bob is rejected for CreateTopics, Topic:t, 3 times with POLICY_VIOLATION (44) by policy:x"
    assert event_text(event) == text
