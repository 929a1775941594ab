"""Parsers of structured settings, such as `listeners`, used by the declarations in `security` and `server`. Each takes
the text of a setting and returns its value, or raises ValueError with the invalid part."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from controller.kafka.connections import PROTOCOLS
from controller.kafka.handling import normal_host
from controller.kafka.server.tls import PrincipalRules
from events.catalog import Endpoint

ROLES: Final = ("viewer", "operator", "approver", "admin")

_VOTER: Final = re.compile(r"(\d{1,9})@(\[[0-9a-fA-F:.]+\]|[^\s:/\[\],@]+):(\d{1,5})")
_LISTENER: Final = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)://(\[[0-9a-fA-F:.]+\]|[^\s:/\[\],]*):(\d{1,5})")


def several(
    parse: Callable[[str], object | None], separator: str = ",", *, least: int = 0, into: Callable[[Any], Any] = tuple
) -> Callable[[str], Any]:
    """Returns a parser of lists. `parse` parses one element; it returns None or raises ValueError if it is invalid."""

    def parsed(text: str) -> Any:
        found = []
        for part in (each.strip() for each in text.split(separator) if each.strip()):
            one = None
            with suppress(ValueError):
                one = parse(part)
            if one is None:
                raise ValueError(part)
            found.append(one)
        if len(found) < least:
            raise ValueError(text)
        return into(found)

    return parsed


def cluster_id(text: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_-]{1,100}", text):
        raise ValueError(text)
    return text


def redirect_url(text: str) -> str:
    parts = urlsplit(jwks_url(text))
    is_safe = parts.scheme == "https" or parts.hostname in ("127.0.0.1", "::1", "localhost")
    if not is_safe or parts.path != "/login/callback" or parts.query:
        raise ValueError(text)
    return text


def role(text: str) -> tuple[str, str] | None:
    scope, _, role = text.rpartition(":")
    return (scope, role) if scope and role in ROLES else None


def jwks_url(text: str) -> str:
    parts = urlsplit(text)
    is_file = parts.scheme == "file" and not parts.netloc and parts.path.startswith("/")
    is_http = parts.scheme in ("http", "https") and parts.hostname and not parts.username and not parts.fragment
    if not (is_file or is_http) or not text.isprintable() or " " in text:
        raise ValueError(text)
    return text


def principal(text: str) -> str | None:
    return text if re.fullmatch(r"\w+:.+", text) else None


def _endpoint(text: str) -> Endpoint | None:
    match = _LISTENER.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        return None
    return Endpoint(match[1].upper(), match[2].strip("[]"), int(match[3]))


def listeners(text: str) -> tuple[Endpoint, ...]:
    found: tuple[Endpoint, ...] = several(_endpoint)(text)
    taken: set[object] = set()
    for each in found:
        own = {each.name, *([(each.host, each.port)] if each.port else [])}
        if own & taken:
            raise ValueError(f"{each.name}://{each.host}:{each.port}")
        taken |= own
    return found


def advertised(text: str) -> tuple[Endpoint, ...]:
    for each in (found := listeners(text)):
        if not each.port or each.host in ("", "0.0.0.0", "::"):
            raise ValueError(f"{each.name}://{each.host}:{each.port}")
    return found


def protocol(text: str) -> tuple[str, str] | None:
    name, _, protocol = (part.strip().upper() for part in text.partition(":"))
    return (name, protocol) if name and protocol in PROTOCOLS else None


def choices(allowed: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    return several(
        lambda text: text if text in allowed else None, least=1, into=lambda found: tuple(dict.fromkeys(found))
    )


def connections(text: str) -> tuple[str, int] | None:
    address, _, count = text.rpartition(":")
    host = normal_host(str(ipaddress.ip_address(address.strip("[]"))))
    return (host, int(count)) if re.fullmatch(r"\d{1,9}", count) else None


def _voter(text: str) -> tuple[int, tuple[str, int]] | None:
    match = _VOTER.fullmatch(text)
    if match is None or not 1 <= int(match[3]) <= 65535:
        return None
    return int(match[1]), (match[2].strip("[]"), int(match[3]))


def voters(text: str) -> dict[int, tuple[str, int]]:
    found = several(_voter)(text)
    if len(dict(found)) < len(found):
        raise ValueError(text)
    return dict(found)


def host_name(text: str) -> str | None:
    return text.lower() if text == "*" or re.fullmatch(r"[A-Za-z0-9._-]{1,253}", text) else None


def network(text: str) -> str:
    return str(ipaddress.ip_network(normal_host(text)))


def rules(text: str) -> str:
    try:
        PrincipalRules(text)
    except ValueError:
        raise ValueError(text) from None
    return text


def ports(text: str) -> range:
    """Returns the allowed ports; a range with only 0 means any free port, an empty one means none."""
    if text in ("any", "none"):
        return range(int(text == "any"))
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]) <= 65535:
        raise ValueError(text)
    return range(int(match[1]), int(match[2]) + 1)
