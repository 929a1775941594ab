"""The set of ACLs, and their host ranges compared with `CidrUtils` of Kafka 4.4."""

from itertools import permutations

import pytest

from controller.kafka.handling import normal_host
from controller.machine.access.acls import Acls, address_range, covers, in_range, pattern_of
from controller.machine.access.requests import create_acls
from controller.machine.commands.access import AclFilter, CreateAcls
from controller.machine.state import Cluster, DictTopics, State
from events.access import Acl
from events.names import RequestId
from tests.machine.access.tables import acl

PREFIXED, LITERAL = 4, 3


def entry(name: str, pattern_type: int) -> Acl:
    return Acl(2, pattern_type, name, "User:bob", "*", 3, 3)


def test_acls_are_equal_after_any_order_of_additions_and_deletions() -> None:
    """A rebuilt state must equal the live one, so the order of changes must not matter."""
    acls = [entry("pay.", PREFIXED), entry("pay", PREFIXED), entry("pay.orders", LITERAL)]
    for first, second, third in permutations(acls):
        held = Acls().with_all([first, second, third])
        assert held.without([first]) == Acls().with_all([third, second]), "one ACL is removed"
        assert held.without([second, first, third]) == Acls(), "all ACLs are removed"


@pytest.mark.parametrize("resource_type", [1, 2, 3])
@pytest.mark.parametrize("pattern_type", [1, 2, 3, 4])
@pytest.mark.parametrize("name", [None, "t", "t.a", "*", "u"])
def test_acl_filters_with_a_resource_name_equal_a_full_scan(
    resource_type: int, pattern_type: int, name: str | None
) -> None:
    entries = [
        Acl(kind, pattern, of, principal, "*", 3, 3)
        for kind in (2, 3)
        for pattern in (3, 4)
        for of in ("t", "t.a", "*")
        for principal in ("User:a", "User:b")
    ]
    held = Acls().with_all(entries)
    for principal in (None, "User:a"):
        wanted = AclFilter(resource_type, pattern_type, name, principal, None, 1, 1)
        walked = [acl for acl in entries if covers(wanted, pattern_of(acl)) and principal in (None, acl.principal)]
        assert held.matching(wanted) == sorted(walked)


RANGES = """
10.0.0.0/8 | ok
10.1.2.3/8 | ok
010.0.0.1/32 | ok
0.0.0.0/0 | ok
10.0.0.0/33 | Value [33] not in range [0,32]
10.0.0.256/8 | Value [256] not in range [0,255]
10.0.0/8 | Could not parse [10.0.0/8]
10.0.0.0/ | Could not parse [10.0.0.0/]
10.0.0.0/-1 | Could not parse [10.0.0.0/-1]
/8 | Could not parse [/8]
a/b | Could not parse [a/b]
10.0.0.0/8/8 | Could not parse [10.0.0.0/8/8]
10.0.0.0/٣٢ | Could not parse [10.0.0.0/٣٢]
2001:db8::/32 | ok
2001:DB8::1/+32 | ok
::/0 | ok
::/-0 | ok
::/129 | Could not parse [::/129] - prefix length must be between 0 and 128
::/-1 | Could not parse [::/-1] - prefix length must be between 0 and 128
::/x | Could not parse [::/x] - invalid prefix length
::/ | Could not parse [::/] - invalid prefix length
::/1/2 | Could not parse [::/1/2] - invalid prefix length
1:2/6:4 | Could not parse [1:2/6:4] - invalid prefix length
::/٣٢ | ok
::ffff:10.0.0.0/104 | Could not parse [::ffff:10.0.0.0] - not an IPv6 address
[2001:db8::]/32 | ok
fe80::%1/10 | ok
fe80::%nope0/10 | Could not parse [fe80::%nope0]
:/64 | Could not parse [:]
g::/8 | Could not parse [g::]
00001::/16 | ok
::1.02.3.4/128 | ok
"""

ADDRESSES = """
10.1.2.3 10.0.0.0/8 true
11.1.2.3 10.0.0.0/8 false
10.1.2.3 10.9.9.9/8 true
1.2.3.4 0.0.0.0/0 true
10.0.0.1 10.0.0.1/32 true
10.0.0.0 10.0.0.0/31 true
10.0.0.1 10.0.0.0/31 true
10.0.0.2 10.0.0.0/31 false
2001:db8:0:0:0:0:0:1 2001:db8::/32 true
2001:db9:0:0:0:0:0:1 2001:db8::/32 false
10.0.0.1 ::/0 false
0:0:0:0:0:0:0:1 ::/0 true
0:0:0:0:0:0:0:1 0.0.0.0/0 false
fe80:0:0:0:0:0:0:1%1 fe80::/10 true
fe80:0:0:0:0:0:0:1 fe80::%1/10 true
1:0:0:0:0:0:0:5 00001::/16 true
10.0.0.1 nonsense/8 false
nowhere 10.0.0.0/8 false
"""


@pytest.mark.parametrize("row", RANGES.strip().splitlines())
def test_acl_host_ranges_are_parsed_as_by_kafka(row: str) -> None:
    text, expected = row.split(" | ")
    try:
        address_range(text)
        found = "ok"
    except ValueError as why:
        found = str(why)
    assert found == expected


@pytest.mark.parametrize("row", ADDRESSES.strip().splitlines())
def test_addresses_in_an_acl_host_range(row: str) -> None:
    host, text, expected = row.split()
    assert str(in_range(normal_host(host), text)).lower() == expected


@pytest.mark.parametrize(("level", "code"), [(30, 35), (31, 35), (32, 0), (33, 0), (0, 0)])
def test_acl_host_ranges_require_metadata_version_32(level: int, code: int) -> None:
    state = State(DictTopics(), cluster=Cluster(features=(("metadata.version", level),) if level else ()))
    asked = (acl("bob/deny/read/topic/t/10.0.0.0/8"), acl("bob/deny/read/topic/t/10.0.0.1"))
    command = CreateAcls(request_id=RequestId("r"), at_ms=1, principal="User:admin", client_id="c", acls=asked)
    (answer,) = create_acls(state, command).answers
    assert [each.code for each in answer.details] == [code, 0]
    message = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
    assert answer.details[0].message == (message if code else "")
