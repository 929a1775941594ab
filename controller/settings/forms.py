"""Parses settings with a syntax of their own. Parsers return None for a text that is not allowed."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Final

from controller.kafka.messages import APIS, ApiKey
from controller.kafka.server.tls import PrincipalRules
from controller.kafka.session import normal_host
from controller.settings.security import MECHANISMS, PROTOCOLS, TLS_VERSIONS
from events.catalog import Endpoint

_VOTER: Final = re.compile(r"(\d{1,9})@(\[[0-9a-fA-F:.]+\]|[^\s:/\[\],@]+):(\d{1,5})")
_LISTENER: Final = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)://(\[[0-9a-fA-F:.]+\]|[^\s:/\[\],]*):(\d{1,5})")


def _cluster_id(text: str) -> str | None:
    return text if re.fullmatch(r"[A-Za-z0-9_-]{1,100}", text) else None


def _principals(text: str) -> tuple[str, ...] | None:
    principals = tuple(part.strip() for part in text.split(";") if part.strip())
    return principals if all(re.fullmatch(r"\w+:.+", each) for each in principals) else None


def _endpoint(text: str) -> Endpoint | None:
    match = _LISTENER.fullmatch(text.strip())
    if match is None or int(match[3]) > 65535:
        return None
    return Endpoint(match[1].upper(), match[2].strip("[]"), int(match[3]))


def _listeners(text: str) -> tuple[Endpoint, ...] | None:
    found = [_endpoint(part) for part in text.split(",")] if text.strip() else []
    known = tuple(endpoint for endpoint in found if endpoint is not None)
    if len(known) < len(found) or len({endpoint.name for endpoint in known}) < len(known):
        return None
    addresses = [(endpoint.host, endpoint.port) for endpoint in known if endpoint.port]
    return known if len(set(addresses)) == len(addresses) else None


def _advertised(text: str) -> tuple[Endpoint, ...] | None:
    found = _listeners(text)
    if found is None or any(not each.port or each.host in ("", "0.0.0.0", "::") for each in found):
        return None
    return found


def _protocols(text: str) -> dict[str, str] | None:
    found = {}
    for part in text.split(","):
        name, colon, protocol = (bucket.strip() for bucket in part.partition(":"))
        if not colon or not name or protocol.upper() not in PROTOCOLS:
            return None
        found[name.upper()] = protocol.upper()
    return found


def _choices(allowed: tuple[str, ...]) -> Callable[[str], tuple[str, ...] | None]:
    def chosen(text: str) -> tuple[str, ...] | None:
        found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        return found if all(each in allowed for each in found) else None

    return chosen


def _per_address(text: str) -> dict[str, int] | None:
    found: dict[str, int] = {}
    for part in text.split(",") if text.strip() else ():
        address, _, count = part.strip().rpartition(":")
        if not re.fullmatch(r"\d{1,9}", count):
            return None
        try:
            found[normal_host(str(ipaddress.ip_address(address.strip("[]"))))] = int(count)
        except ValueError:
            return None
    return found


def _voters(text: str) -> dict[int, tuple[str, int]] | None:
    found: dict[int, tuple[str, int]] = {}
    for part in text.split(",") if text.strip() else ():
        match = _VOTER.fullmatch(part.strip())
        if match is None or not 1 <= int(match[3]) <= 65535 or int(match[1]) in found:
            return None
        found[int(match[1])] = match[2].strip("[]"), int(match[3])
    return found


def _names(text: str) -> tuple[str, ...] | None:
    names = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    return names if all(each == "*" or re.fullmatch(r"[a-z0-9._-]{1,253}", each) for each in names) else None


def _networks(text: str) -> tuple[str, ...] | None:
    found = tuple(normal_host(part.strip()) for part in text.split(",") if part.strip())
    try:
        return tuple(str(ipaddress.ip_network(each)) for each in found)
    except ValueError:
        return None


def _rules(text: str) -> str | None:
    try:
        PrincipalRules(text)
    except ValueError:
        return None
    return text


def _ports(text: str) -> range | None:
    """Returns the allowed ports; a range with only 0 means any free port, an empty one means none."""
    if text in ("any", "none"):
        return range(int(text == "any"))
    first, _, last = text.partition("-")
    if not re.fullmatch(r"\d{1,5}", first) or not re.fullmatch(r"\d{1,5}", last):
        return None
    return range(int(first), int(last) + 1) if 1 <= int(first) <= int(last) <= 65535 else None


CAPPED_APIS: Final = {api.name: api for api in APIS.values() if api.key not in (ApiKey.PRODUCE, ApiKey.API_VERSIONS)}


def _versions(text: str) -> dict[str, int] | None:
    versions = {}
    for part in text.split(",") if text else ():
        name, _, number = part.strip().partition(":")
        api = CAPPED_APIS.get(name.strip())
        if api is None or not re.fullmatch(r"\d{1,4}", number.strip()):
            return None
        if not api.min_version <= int(number) <= api.max_version:
            return None
        versions[api.name] = int(number)
    return versions


PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "cluster.id": _cluster_id,
    "super.users": _principals,
    "listeners": _listeners,
    "advertised.listeners": _advertised,
    "listener.security.protocol.map": _protocols,
    "ssl.enabled.protocols": _choices(TLS_VERSIONS),
    "ssl.principal.mapping.rules": _rules,
    "sasl.enabled.mechanisms": _choices(MECHANISMS),
    "controller.quorum.voters": _voters,
    "cluster.broker.ports": _ports,
    "http.allowed.hosts": _names,
    "http.trusted.proxies": _networks,
    "api.versions.max": _versions,
    "max.connections.per.ip.overrides": _per_address,
}
"""Parsers by setting."""


def parser_limits(key: str) -> str:
    """Describes limits beyond `Setting.form`."""
    match key:
        case "listeners":
            return " with ports from 0 to 65535 and unique names and addresses"
        case "advertised.listeners":
            return " with a port from 1 to 65535 and a host that clients can reach, not 0.0.0.0"
        case "api.versions.max":
            ranges = (f"{api.name} {api.min_version} to {api.max_version}" for api in CAPPED_APIS.values())
            return "; versions: " + ", ".join(ranges)
        case _:
            return ""
