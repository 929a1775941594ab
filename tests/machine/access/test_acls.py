"""Entries as a whole: what was taken away leaves nothing behind."""

from __future__ import annotations

from itertools import permutations

from controller.machine.acls import Acls
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
