"""Entries as a whole: what was taken away leaves nothing behind."""

from __future__ import annotations

from itertools import permutations

import pytest

from controller.machine.access.acls import Acls, covers, pattern_of
from controller.machine.commands.access import AclFilter
from events.access import Acl

PREFIXED, LITERAL = 4, 3


def entry(name: str, pattern_type: int) -> Acl:
    return Acl(2, pattern_type, name, "User:bob", "*", 3, 3)


def test_entries_that_are_gone_leave_no_trace() -> None:
    """Two ways to the same entries give the same value: a state that is rebuilt is compared with the live one."""
    acls = [entry("pay.", PREFIXED), entry("pay", PREFIXED), entry("pay.orders", LITERAL)]
    for first, second, third in permutations(acls):
        held = Acls().with_all([first, second, third])
        assert held.without([first]) == Acls().with_all([third, second]), "one is gone"
        assert held.without([second, first, third]) == Acls(), "all are gone"


@pytest.mark.parametrize("resource_type", [1, 2, 3])
@pytest.mark.parametrize("pattern_type", [1, 2, 3, 4])
@pytest.mark.parametrize("name", [None, "t", "t.a", "*", "u"])
def test_a_filter_that_names_a_pattern_finds_what_a_walk_finds(
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
