"""Requests that concern no topic: they can be looked up like any other."""

from __future__ import annotations

from events.access import Acl, AclsCreated, AclsDeleted, QuotasChanged, ScramCredentialRemoved, ScramCredentialSet
from events.catalog import Cause, Event, Recorded, ResourceConfigsChanged
from events.names import Offset, RequestId
from projections.text.wording import in_words
from projections.views.requests import request_row

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


def test_a_request_of_the_cluster_has_a_row_without_topics() -> None:
    for command, events in EVENTS.items():
        records = [Recorded(Offset(7 + n), 5, Cause(command, ID), event) for n, event in enumerate(events)]
        row = request_row(records)
        assert row is not None
        assert (row.request_id, row.api, row.principal, row.client_id) == (ID, command, "User:admin", "kafka-configs")
        assert (row.requested_offset, row.topics) == (7, ())


def test_each_has_words_of_its_own_without_secrets() -> None:
    words = [in_words(event) for events in EVENTS.values() for event in events]
    assert len(set(words)) == len(words)
    assert words[0] == "User:admin (kafka-configs) removes the password of user bob for SCRAM-SHA-256"
    assert words[1] == "User:admin (kafka-configs) sets the password of user eve for SCRAM-SHA-256"
