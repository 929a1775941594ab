"""The standard authorizer, compared with a linear scan over the ACLs. A table covers the rules that the scan omits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.access.authorizer import OPERATION_CODES, Operation, StandardAuthorizer
from controller.machine.access import acls as codes
from controller.machine.access.acls import Acls
from events.access import Acl
from tests.machine.access.tables import acl

CASES = """
bob Read t | | no
root Read t | | yes
root Read t | root/deny/all/topic/* | yes
bob Read t | bob/allow/read/topic/T | no
bob Read t | Group:bob/allow/read/topic/t | no
bob Read t | bob/allow/read/topic/t bob/deny/read/topic/t/10.0.0.0/8 | no
bob Read t | bob/allow/read/topic/t bob/deny/read/topic/t/10.0.0.2/31 | yes
bob Read t | bob/allow/read/topic/t bob/deny/read/topic/t/::/0 | yes
bob Read t | bob/allow/read/topic/t/10.0.0.0/24 | yes
bob Read t | bob/allow/read/topic/t/10.0.1.0/24 | no
"""


class Somebody:
    client_id = None
    api = "Metadata"

    def __init__(self, name: str, host: str = "10.0.0.1", roles: str = "") -> None:
        self.principal = f"User:{name}"
        self.roles = frozenset(roles.split())
        self.host = host


def authorizer(held: Acls, *, is_open: bool = False) -> StandardAuthorizer:
    return StandardAuthorizer(lambda: held, super_users=["User:root"], allow_everyone_if_no_acl_found=is_open)


@pytest.mark.parametrize("row", [line for line in CASES.splitlines() if line])
def test_standard_authorizer_decides_as_kafkas(row: str) -> None:
    request, entries, expected = (part.strip() for part in row.split("|"))
    user, operation, topic = request.split()
    held = Acls().with_all(map(acl, entries.split()))
    is_allowed = authorizer(held).allows(Somebody(user), operation, "Topic", topic)  # type: ignore[arg-type]
    assert ("yes" if is_allowed else "no") == expected


ROLE_CASES = """
viewer          | Describe        | Topic   | yes
viewer          | Create          | Topic   | no
viewer          | Describe        | Cluster | yes
approver        | DescribeConfigs | Topic   | yes
approver        | Alter           | Topic   | no
operator        | Delete          | Topic   | yes
operator        | Alter           | Cluster | no
operator        | Write           | Topic   | no
admin           | Alter           | Cluster | yes
admin           | ClusterAction   | Cluster | no
viewer operator | AlterConfigs    | Topic   | yes
                | Describe        | Topic   | no
"""


@pytest.mark.parametrize("row", ROLE_CASES.strip("\n").splitlines())
def test_roles_allow_operations_unless_an_acl_denies(row: str) -> None:
    cells: list[Any] = [part.strip() for part in row.split("|")]
    roles, operation, kind, expected = cells
    somebody = Somebody("eve", roles=roles)
    assert authorizer(Acls()).allows(somebody, operation, kind, "t") == (expected == "yes")
    assert authorizer(Acls()).allows_any(somebody, operation, kind) == (expected == "yes")
    denied = Acls().with_all([acl("eve/deny/all/topic/t"), acl("eve/deny/all/cluster/t")])
    assert not authorizer(denied).allows(somebody, operation, kind, "t")


PARSERS = ("::ffff:10.0.0.1", "::FFFF:0a00:1", "10.0.0.1")


@pytest.mark.parametrize("written", PARSERS)
@pytest.mark.parametrize("host", PARSERS)
def test_a_deny_acl_covers_every_notation_of_an_address(written: str, host: str) -> None:
    allowed = acl("bob/allow/read/topic/t")
    denied = replace(acl("bob/deny/read/topic/t/10.0.0.1"), host=written)
    one = authorizer(Acls().with_all([allowed, denied]))
    assert not one.allows(Somebody("bob", host), "Read", "Topic", "t")
    assert one.allows(Somebody("bob", "::ffff:10.0.0.2"), "Read", "Topic", "t")
    six = authorizer(Acls().with_all([allowed, replace(denied, host="2001:DB8:0:0:0:0:0:1")]))
    assert not six.allows(Somebody("bob", "2001:db8::1"), "Read", "Topic", "t"), "Java's notation of the address"
    within = authorizer(Acls().with_all([allowed, replace(denied, host="10.0.0.0/31")]))
    assert not within.allows(Somebody("bob", host), "Read", "Topic", "t")
    assert within.allows(Somebody("bob", "::ffff:10.0.0.2"), "Read", "Topic", "t")


def test_allow_everyone_if_no_acl_found() -> None:
    held = Acls().with_all([acl("eve/allow/read/topic/t…")])
    open_one = authorizer(held, is_open=True)
    assert open_one.allows(Somebody("bob"), "Read", "Topic", "other")
    assert not open_one.allows(Somebody("bob"), "Read", "Topic", "tx"), "any ACL of the topic closes it"
    assert not authorizer(held).allows(Somebody("bob"), "Read", "Topic", "other")


NAMES = st.sampled_from(["a", "ab", "abc", "b", "*", "a*"])
ENTRIES = st.builds(
    Acl,
    st.sampled_from([codes.TOPIC, codes.GROUP]),
    st.sampled_from([codes.LITERAL, codes.PREFIXED]),
    NAMES,
    st.sampled_from(["User:bob", "User:eve", "User:*"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.2", "10.0.0.0/31", "10.0.0.2/31"]),
    st.sampled_from([codes.ALL, *OPERATION_CODES.values()]),
    st.sampled_from([codes.ALLOW, codes.DENY]),
)


def _slowly(held: list[Acl], requester: Any, operation: int, name: str, is_open: bool) -> bool:
    """Applies Kafka's rules to all ACLs one by one (StandardAuthorizerData)."""
    over = [
        each
        for each in held
        if each.resource_type == codes.TOPIC
        and (
            (each.pattern_type == codes.LITERAL and each.name in (name, "*"))
            or (each.pattern_type == codes.PREFIXED and name.startswith(each.name))
        )
    ]
    mine = [
        e
        for e in over
        if e.principal in (requester.principal, "User:*") and e.host in ("*", requester.host, "10.0.0.0/31")
    ]
    if any(e.permission == codes.DENY and e.operation in (codes.ALL, operation) for e in mine):
        return False
    implied = {codes.DESCRIBE: {3, 4, 6, 7}, codes.DESCRIBE_CONFIGS: {11}}.get(operation, set())
    wanted = {codes.ALL, operation, *implied}
    if any(e.permission == codes.ALLOW and e.operation in wanted for e in mine):
        return True
    return is_open and not over


@given(
    first=st.lists(ENTRIES, max_size=30),
    later=st.lists(ENTRIES, max_size=20),
    gone=st.lists(ENTRIES, max_size=20),
    operation=st.sampled_from(sorted(OPERATION_CODES)),
    name=NAMES.filter(lambda name: name != "*"),
    is_open=st.booleans(),
)
def test_authorizer_agrees_with_a_linear_scan(
    first: list[Acl], later: list[Acl], gone: list[Acl], operation: Operation, name: str, is_open: bool
) -> None:
    held = Acls().with_all(first).with_all(later)
    left = held.without([each for each in gone if each in held])
    expected = {*first, *later} - set(gone)
    assert set(left) == expected
    assert left.count == len(expected)
    for user in ("bob", "eve"):
        requester = Somebody(user)
        said = authorizer(left, is_open=is_open).allows(requester, operation, "Topic", name)
        assert said == _slowly(sorted(expected), requester, OPERATION_CODES[operation], name, is_open), (user, expected)
