"""The declaration of a setting, and parsers of structured settings such as `listeners`. Each parser takes the text of a
setting and returns its value, or raises ValueError with the invalid part."""

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from controller.kafka.connections import PROTOCOLS
from controller.kafka.handling import normal_host
from controller.kafka.server.tls import PrincipalRules
from controller.machine.configs.values import Allowed, ConfigType, allowed_text
from events.catalog import Endpoint
from events.codec import HIDDEN

ROLES: Final = ("viewer", "operator", "approver", "admin")

_VOTER: Final = re.compile(r"(\d{1,9})@(\[[0-9a-fA-F:.]+\]|[^\s:/\[\],@]+):(\d{1,5})")
_LISTENER: Final = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)://(\[[0-9a-fA-F:.]+\]|[^\s:/\[\],]*):(\d{1,5})")


SECRET: Final = re.compile(r"pass?w|pwd|secret|token|credential|jaas|api.?key|keystore\.key|private", re.IGNORECASE)


def without_secret(key: str, text: str) -> str:
    """Returns the text of a setting for the log, hidden if its key, or a password in a URL, shows a possible secret."""
    return HIDDEN.decode() if text and (SECRET.search(key) or re.search(r"://[^/\s]*@", text)) else text


class Setting(msgspec.Struct, frozen=True):
    """One setting. `default` is a text, or None if the setting has no value until it is set.

    `form` describes allowed values that `kind` and `allowed` do not, and `parse` reads such values. `decides` marks a
    setting that decisions depend on: the log records its value. A `secret` is never displayed, nor passed to policies.
    With `per_listener`, `listener.name.NAME.KEY` may set it for one listener, whose NAME is in lower case.
    """

    default: str | None
    allowed: Allowed = None
    form: str = ""
    parse: Callable[[str], object] | None = None
    kind: ConfigType = ConfigType.STRING
    decides: bool = False
    secret: bool = False
    per_listener: bool = False
    key: str = ""

    @property
    def field(self) -> str:
        """The attribute of ServeSettings that holds the value."""
        return self.key.replace(".", "_")

    @property
    def allowed_text(self) -> str:
        return self.form or allowed_text(self.kind, self.allowed)


def setting(default: str | int | None, allowed: Allowed = None, **more: Any) -> Any:
    """Declares a field of ServeSettings, whose docstring is the description in docs/settings.md. The key is the field's
    name with `.` for `_`; the default gives the type."""
    if isinstance(default, bool):
        return Setting(str(default).lower(), allowed, **{"kind": ConfigType.BOOLEAN, **more})
    if isinstance(default, int):
        return Setting(str(default), allowed, **{"kind": ConfigType.INT, **more})
    return Setting(default, allowed, **more)


def long_setting(default: int, allowed: Allowed, **more: Any) -> Any:
    """Declares a field of ServeSettings whose type in Kafka is LONG, not INT."""
    return setting(default, allowed, kind=ConfigType.LONG, **more)


def list_setting(default: Iterable[str], allowed: Collection[str], **more: Any) -> Any:
    """Declares a field of ServeSettings that lists at least one of these values; duplicates count once."""
    form = f"a comma-separated list of [{', '.join(allowed)}]"
    parse = several(
        lambda one: one if one in allowed else None, least=1, into=lambda found: tuple(dict.fromkeys(found))
    )
    return setting(",".join(default), form=form, parse=parse, **more)


# --- parsers


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
