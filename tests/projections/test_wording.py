"""Events about who may do what, in words."""

from __future__ import annotations

import pytest

from events.access import RequestsRefused
from projections.text.wording import event_text
from tests.projections.logs import story

WORDS = [
    (
        "acls bob/allow/create/topic/pay.…",
        "User:admin (table) adds an ACL: User:bob may Create Topic:pay. (prefixed)",
    ),
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
        "User:bob is refused Metadata, Describe on Topic:t, 4711 times "
        "with TOPIC_AUTHORIZATION_FAILED (29) by authorizer",
    ),
    ("refusals 1", "Describe on Topic:t, once with"),
]


@pytest.mark.parametrize(("step", "words"), WORDS)
def test_what_is_said(step: str, words: str) -> None:
    rig = story(f"1\nacls held/allow/read/topic/t\nquotas user:held/controller_mutation_rate=1\n{step}")
    assert words in event_text(rig.log[-1].event)


def test_a_refusal_that_was_not_the_authorizers_names_no_operation() -> None:
    event = RequestsRefused("User:bob", None, "", "CreateTopics", "", "Topic:t", 44, "policy:x", 3, 1)
    assert (
        event_text(event) == "User:bob is refused CreateTopics, Topic:t, 3 times with POLICY_VIOLATION (44) by policy:x"
    )
