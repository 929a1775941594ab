"""`topicwright acls` and `topicwright quotas` at a running service, and their errors."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import Run, columns
from tests.support.topicwright import topicwright


def test_acls_and_quotas_are_managed_through_a_running_service(run: Run, tmp_path: Path) -> None:
    settings = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:ANONYMOUS"}
    with topicwright(tmp_path, settings) as service:
        where = ("--bootstrap", service.kafka)
        assert run("acls", "list", *where).out == "There are no ACLs.\n"
        prefix = ("User:ann", "write", "topic:pay.", "--prefixed", "--host", "10.0.0.0/8")
        added = run("acls", "add", *prefix, *where)
        assert added[:2] == (0, "User:ann may Write Topic:pay. (prefixed) from 10.0.0.0/8\n")
        assert run("acls", "add", "User:bob", "All", "Group:app", "--deny", *where).code == 0
        assert columns(run("acls", "list", "--resource", "Topic:pay.orders", *where).out) == [
            ["PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "PATTERN", "HOST"],
            ["User:ann", "allow", "Write", "Topic:pay.", "prefixed", "10.0.0.0/8"],
        ]
        (bob,) = json.loads(run("acls", "list", "--principal", "User:bob", "-o", "json", *where).out)["acls"]
        assert (bob["permission"], bob["resource"], bob["host"]) == ("deny", "Group:app", "*")
        refused = run("acls", "add", "ann", "Read", "Topic:pay.orders", *where)
        assert (refused.code, "principal" in refused.err.lower()) == (1, True)
        assert [run("acls", "remove", *prefix, *where).code for _ in range(2)] == [0, 1]
        assert "User:ann" not in run("acls", "list", *where).out

        assert run("quotas", "list", *where).out == "There are no quotas.\n"
        both = ("user=ann,client-id=app", "producer_byte_rate=1024", "request_percentage=50.5")
        added = run("quotas", "add", *both, *where)
        assert added.out == "set producer_byte_rate, request_percentage of client-id=app,user=ann\n", added.err
        assert run("quotas", "add", "user=<default>", "controller_mutation_rate=5", *where).code == 0
        assert columns(run("quotas", "list", *where).out)[1:] == [
            ["client-id=app,user=ann", "producer_byte_rate", "1024"],
            ["client-id=app,user=ann", "request_percentage", "50.5"],
            ["user=<default>", "controller_mutation_rate", "5"],
        ]
        assert run("quotas", "list", "user=<default>", "-o", "name", *where).out == "user=<default>\n"
        assert run("quotas", "remove", "user=<default>", "controller_mutation_rate", *where).code == 0
        assert "<default>" not in run("quotas", "list", *where).out
        refused = run("quotas", "add", "user=ann", "speed=5", *where)
        assert (refused.code, "speed" in refused.err) == (1, True)
        changes = run("changes", "--http", service.http).out
        assert "User:ann may Write Topic:pay. (prefixed) from 10.0.0.0/8" in changes


WRONG = """
acls add User:ann Reed Topic:a    | unknown operation 'Reed'; allowed: All, Read, Write
acls add User:ann Read Queue:a    | unknown resource type 'Queue'; allowed: Topic, Group
acls add User:ann Read orders     | 'orders' is not TYPE:NAME, as in Topic:pay.orders
acls list --resource Topic:       | 'Topic:' is not TYPE:NAME
acls list                         | 127.0.0.1:1 cannot be reached
quotas add ann speed=1            | 'ann' is not an entity of quotas; allowed: user=ann
quotas add user= speed=1          | 'user=' is not an entity of quotas
quotas add user=ann speed=fast    | 'speed=fast' is not KEY=NUMBER
quotas list --command-config none | --command-config=none cannot be read
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_wrong_acls_and_quotas_report_what_is_allowed(line: str, run: Run) -> None:
    words, message = (cell.strip() for cell in line.split("|"))
    code, _, err = run(*words.split(), "--bootstrap", "127.0.0.1:1")
    assert (code, message in err) == (2, True), err
