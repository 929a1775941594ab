"""ACLs as an immutable value of the cluster state, with look-ups by pattern, for the authorizer and the ACL APIs.

A change copies the map of patterns and the ACLs of the changed patterns, about ten microseconds for each thousand. The
first look-up after it collects the lengths of all prefixes, so that the patterns for a name are found with a few
look-ups.

A host may be an address range (KIP-1276), `10.0.0.0/8` or `2001:db8::/32`. Ranges are parsed like Kafka's classes do
(`SubnetUtils` and `SubnetUtils6` of Apache Commons Net, `InetAddress`), so that an ACL covers the same clients as at
Kafka's brokers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property, lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from itertools import chain
from types import MappingProxyType
from typing import Final

from controller.machine.access.bucket_map import differing
from controller.machine.commands.access import AclFilter
from events.access import Acl

ANY: Final = 1
"""Kafka's code that in a filter matches any resource type, pattern type, operation or permission."""
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
"""Kafka's resource types."""
MATCH, LITERAL, PREFIXED = 2, 3, 4
"""Kafka's pattern types; MATCH only in filters."""
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
CREATE_TOKENS, DESCRIBE_TOKENS, TWO_PHASE_COMMIT = 13, 14, 15
"""Kafka's operations."""
DENY, ALLOW = 2, 3
"""Kafka's permissions."""
WILDCARD: Final = "*"

Pattern = tuple[int, int, str]
"""Resource type, pattern type, name."""
Entries = Mapping[str, Mapping[Acl, None]]
"""The ACLs of one pattern by principal, in order of creation."""


class Acls:
    """All ACLs, by resource pattern and principal. Immutable: changes return a new object that shares what is
    unchanged."""

    def __init__(self, by_pattern: Mapping[Pattern, Entries] = MappingProxyType({})) -> None:
        self.by_pattern = by_pattern

    @cached_property
    def prefix_lengths(self) -> Mapping[int, Set[int]]:
        lengths: dict[int, set[int]] = {}
        for resource_type, pattern_type, name in self.by_pattern:
            if pattern_type == PREFIXED:
                lengths.setdefault(resource_type, set()).add(len(name))
        return lengths

    @cached_property
    def count(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Acls) and self.by_pattern == other.by_pattern

    def __contains__(self, acl: object) -> bool:
        return isinstance(acl, Acl) and acl in self.by_pattern.get(pattern_of(acl), {}).get(acl.principal, ())

    def __iter__(self) -> Iterator[Acl]:
        return chain.from_iterable(map(_each, self.by_pattern.values()))

    def covering(self, resource_type: int, name: str) -> Iterator[Entries]:
        """Yields the ACLs of the patterns that cover a resource: its literal name, `*`, and its prefixes."""
        lengths = self.prefix_lengths.get(resource_type, ())
        patterns = [(LITERAL, literal) for literal in ((name, WILDCARD) if name != WILDCARD else (name,))]
        patterns += [(PREFIXED, name[:length]) for length in lengths if length <= len(name)]
        for pattern in patterns:
            entries = self.by_pattern.get((resource_type, *pattern))
            if entries is not None:
                yield entries

    def matching(self, wanted: AclFilter) -> list[Acl]:
        """Returns the ACLs that match a filter, sorted. A filter without an exact pattern scans all patterns."""
        if wanted.name is not None and wanted.resource_type != ANY and wanted.pattern_type in (LITERAL, PREFIXED):
            exact = (wanted.resource_type, wanted.pattern_type, wanted.name)
            found = [self.by_pattern.get(exact, {})]
        else:
            found = [entries for pattern, entries in self.by_pattern.items() if covers(wanted, pattern)]
        return sorted(acl for acl in chain.from_iterable(map(_each, found)) if _matches_entry(wanted, acl))

    def with_all(self, acls: Iterable[Acl]) -> Acls:
        patterns = dict(self.by_pattern)
        for pattern, entries in _by_pattern(acls).items():
            had = patterns.get(pattern, {})
            patterns[pattern] = {**had, **{who: {**had.get(who, {}), **own} for who, own in entries.items()}}
        return Acls(patterns)

    def without(self, acls: Iterable[Acl]) -> Acls:
        patterns = dict(self.by_pattern)
        for pattern, entries in _by_pattern(acls).items():
            left = dict(patterns.pop(pattern, {}))
            for who, own in entries.items():
                others = {acl: None for acl in left.pop(who, ()) if acl not in own}
                if others:
                    left[who] = others
            if left:
                patterns[pattern] = left
        return Acls(patterns)


def acl_changes(before: Acls, after: Acls) -> tuple[list[Acl], list[Acl]]:
    """The removed and the added ACLs; each sorted."""
    removed: list[Acl] = []
    added: list[Acl] = []
    for pattern in differing(before.by_pattern, after.by_pattern):
        old, new = (set(_each(acls.by_pattern.get(pattern, {}))) for acls in (before, after))
        removed += old - new
        added += new - old
    return sorted(removed), sorted(added)


def pattern_of(acl: Acl) -> Pattern:
    return acl.resource_type, acl.pattern_type, acl.name


def covers(wanted: AclFilter, pattern: Pattern) -> bool:
    """True if a filter matches a pattern (ResourcePatternFilter.matches)."""
    resource_type, pattern_type, name = pattern
    if wanted.resource_type not in (ANY, resource_type):
        return False
    if wanted.pattern_type not in (ANY, MATCH, pattern_type):
        return False
    if wanted.name is None:
        return True
    if wanted.pattern_type != MATCH:
        return wanted.name == name
    if pattern_type == PREFIXED:
        return wanted.name.startswith(name)
    return name in (wanted.name, WILDCARD)


def _matches_entry(wanted: AclFilter, acl: Acl) -> bool:
    """True if principal, host, operation and permission match; `covers` matches the pattern."""
    return (
        (wanted.principal is None or wanted.principal == acl.principal)
        and (wanted.host is None or wanted.host == acl.host)
        and wanted.operation in (ANY, acl.operation)
        and wanted.permission in (ANY, acl.permission)
    )


def _by_pattern(acls: Iterable[Acl]) -> dict[Pattern, dict[str, dict[Acl, None]]]:
    patterns: dict[Pattern, dict[str, dict[Acl, None]]] = {}
    for acl in acls:
        patterns.setdefault(pattern_of(acl), {}).setdefault(acl.principal, {})[acl] = None
    return patterns


def _each(entries: Entries) -> Iterator[Acl]:
    return chain.from_iterable(entries.values())


_IPV4: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
_PREFIX: Final = re.compile(r"[+-]?\d{1,10}")
_ZONE: Final = re.compile(r"%\d+", re.ASCII)
"""The zone of an IPv6 address (`%1`), which Java ignores in an ACL. Java also accepts the name of an interface."""
_LEADING_ZEROS: Final = re.compile(r"(^|[:.])0+(?=[0-9a-fA-F])")


AddressRange = IPv4Network | IPv6Network


def is_range(host: str) -> bool:
    return "/" in host


@lru_cache(maxsize=4096)
def address_range(text: str) -> AddressRange:
    """Parses a range. Raises ValueError with Kafka's message."""
    return _ipv6_range(text) if ":" in text else _ipv4_range(text)


def in_range(host: str, text: str) -> bool:
    """True if the address `host` is in the range `text`. False if either text is invalid."""
    try:
        return ip_address(host) in address_range(text)
    except ValueError:
        return False


def _ipv4_range(text: str) -> AddressRange:
    match = _IPV4.fullmatch(text)
    if match is None:
        raise ValueError(f"Could not parse [{text}]")
    *octets, prefix = map(int, match.groups())
    for value, highest in (*((octet, 255) for octet in octets), (prefix, 32)):
        if value > highest:
            raise ValueError(f"Value [{value}] not in range [0,{highest}]")
    return IPv4Network((int.from_bytes(octets), prefix), strict=False)


def _ipv6_range(text: str) -> AddressRange:
    written, slash, prefix = text.partition("/")
    if not slash or not _PREFIX.fullmatch(prefix):
        raise ValueError(f"Could not parse [{text}] - {'invalid' if slash else 'missing'} prefix length")
    if not 0 <= int(prefix) <= 128:
        raise ValueError(f"Could not parse [{text}] - prefix length must be between 0 and 128")
    bare = written[1:-1] if written.startswith("[") and written.endswith("]") else written
    try:
        address = IPv6Address(_LEADING_ZEROS.sub(r"\1", _ZONE.sub("", bare)))
    except ValueError:
        address = None
    if address is None or address.scope_id is not None:
        raise ValueError(f"Could not parse [{written}]")
    if address.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{written}] - not an IPv6 address")
    return IPv6Network((int(address), int(prefix)), strict=False)
