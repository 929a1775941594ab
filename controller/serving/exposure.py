"""Who can come in from elsewhere: what a start refuses, and what it warns of on the ready screen.

Loopback is for whoever has an account on the machine. Beyond it everybody on the network comes in, so HTTP is not
opened there without a login unless the settings say so outright.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Sequence

from controller.http.reach import Reach
from controller.serving.listeners import Listener, http_logs_in
from controller.settings.load import ServeSettings, SettingsError


def is_open(host: str) -> bool:
    """Whether others than this machine reach what listens on a host: an address or a name, empty for everywhere."""
    try:
        found = [host] if host else []
        if host and not _is_address(host):
            found = [str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
        return not found or not all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found)
    except OSError:
        return True  # a name that does not resolve: what listens there says so


def refuse_open_http(settings: ServeSettings, listeners: Sequence[Listener], host: str) -> None:
    """Raise SettingsError where HTTP would be open to others without a login, and nobody said that it is to be."""
    if settings.http_authentication == "none" or http_logs_in(settings, listeners) or not is_open(host):
        return
    raise SettingsError(
        f"HTTP would listen on {host or 'every address'}, beyond this machine, and nobody has to log in: listen on "
        "127.0.0.1, or set http.authentication=required (users.file has who may come in), or http.authentication=none "
        "if everybody who reaches it may do what it offers"
    )


def warnings(
    settings: ServeSettings, listeners: Sequence[Listener], addresses: Sequence[str], http_host: str, http: str
) -> Iterator[str]:
    """Lines for the ready screen. `addresses` are where the listeners listen, `http` where HTTP does."""
    everybody = "is User:ANONYMOUS" if settings.authorizer_class_name else "may do everything"
    for listener, address in zip(listeners, addresses, strict=True):
        certified = listener.tls is not None and listener.tls.settings.client_auth == "required"
        if not listener.logs_in and not certified and is_open(listener.endpoint.host):
            yield f"warning: nobody logs in to listener {listener.endpoint.name}: whoever reaches {address} {everybody}"
    if not is_open(http_host):
        return
    if not http_logs_in(settings, listeners):
        yield f"warning: nobody logs in to HTTP: whoever reaches {http} {everybody}"
    elif settings.http_security_protocol == "PLAINTEXT":
        yield f"warning: HTTP takes passwords and tokens in clear at {http}: set http.security.protocol=SSL"


def reach_of(settings: ServeSettings) -> Reach:
    """By which names HTTP is reached, and through whom."""
    advertised = {endpoint.host.lower() for endpoint in settings.advertised_listeners}
    listened = {endpoint.host.lower() for endpoint in settings.listeners}
    proxies = tuple(map(ipaddress.ip_network, settings.http_trusted_proxies))
    return Reach(frozenset({*advertised, *listened, *settings.http_allowed_hosts}), proxies)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
