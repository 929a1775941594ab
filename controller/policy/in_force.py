"""The policies that judge in this process, for people to look at."""

from __future__ import annotations

import msgspec


class RuleInForce(msgspec.Struct, frozen=True):
    """A rule of a file: `written` is what the file says of it, by key."""

    name: str
    enforced: bool
    written: dict[str, str]


class PolicyInForce(msgspec.Struct, frozen=True):
    """A policy by the name of its class, with the rules that it has from a file."""

    name: str
    rules: tuple[RuleInForce, ...] = ()
