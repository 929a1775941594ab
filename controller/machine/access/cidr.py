"""Ranges of addresses in access control entries (KIP-1276): `10.0.0.0/8`, `2001:db8::/32`.

What is a range, and why something is none, follows the classes that Kafka uses (`SubnetUtils` and `SubnetUtils6` of
Apache Commons Net, `InetAddress`), so that an entry holds here for the clients for which it holds at Kafka's brokers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

_IPV4: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
_PREFIX: Final = re.compile(r"[+-]?\d{1,10}")
_ZONE: Final = re.compile(r"%\d+", re.ASCII)
"""Of an IPv6 address, which Java ignores here. It also takes the name of a network interface of the machine."""
_LEADING_ZEROS: Final = re.compile(r"(^|[:.])0+(?=[0-9a-fA-F])")


class AddressRange(NamedTuple):
    """The addresses of one kind that begin with the same bits."""

    kind: type[IPv4Address | IPv6Address]
    first: int
    host_bits: int


def is_range(host: str) -> bool:
    """True if the host of an entry is written as a range."""
    return "/" in host


def address_range(text: str) -> AddressRange:
    """The range that is written so. Raises ValueError, in Kafka's words."""
    return _ipv6_range(text) if ":" in text else _ipv4_range(text)


def in_range(host: str, text: str) -> bool:
    """True if an address is in the range that is written so; never where either is none."""
    found = _known(text)
    if found is None:
        return False
    try:
        address = ip_address(host)
    except ValueError:
        return False
    is_within = int(address) >> found.host_bits << found.host_bits == found.first
    return type(address) is found.kind and is_within


@lru_cache(maxsize=4096)
def _known(text: str) -> AddressRange | None:
    try:
        return address_range(text)
    except ValueError:
        return None


def _ipv4_range(text: str) -> AddressRange:
    match = _IPV4.fullmatch(text)
    if match is None:
        raise ValueError(f"Could not parse [{text}]")
    *octets, prefix = map(int, match.groups())
    for value, highest in (*((octet, 255) for octet in octets), (prefix, 32)):
        if value > highest:
            raise ValueError(f"Value [{value}] not in range [0,{highest}]")
    return _range(IPv4Address, int.from_bytes(octets), 32 - prefix)


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
    return _range(IPv6Address, int(address), 128 - int(prefix))


def _range(kind: type[IPv4Address | IPv6Address], address: int, host_bits: int) -> AddressRange:
    return AddressRange(kind, address >> host_bits << host_bits, host_bits)
