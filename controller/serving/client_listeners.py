"""Listeners of a controller or a gateway: Kafka, HTTP with TLS, authentication, and reload on SIGHUP.

They are created before anything else, so that every settings error is reported before a folder is opened.

Only users of this machine reach loopback. Beyond it, anyone on the network connects, so HTTP does not listen there
without authentication unless the settings allow it explicitly. The ready screen warns of other open listeners.

A process whose file descriptors are all used by idle clients cannot write its log. Connections are therefore limited so
that the log, its indexes and our own sockets always have descriptors.
"""

from __future__ import annotations

import ipaddress
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
import structlog

from controller.access.authorizer import Authorizer, StandardAuthorizer
from controller.access.users import SECRET_BYTES, Users
from controller.access.users_file import UsersFileError
from controller.http.gate import Logins, Reach
from controller.http.metrics import Metrics
from controller.kafka.messages import APIS
from controller.kafka.server.service import UNLIMITED, ConnectionCounts
from controller.machine.commands.access import DrawLoginSecret
from controller.machine.commands.commands import AnyCommand
from controller.machine.state import Cluster
from controller.serving.listeners import Listener, Listening, http_logs_in, http_tls, plan, reload_tls
from controller.settings.load import ServeSettings, SettingsError
from events.catalog import Endpoint
from events.names import RequestId


class _Observing(Protocol):
    """A port for commands without a client."""

    def now_ms(self) -> int: ...

    def new_request_id(self, origin: str = "") -> RequestId: ...

    def submit_internal(self, command: AnyCommand) -> None: ...


class Address(msgspec.Struct, frozen=True):
    """Host and port of a listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ClientListeners:
    """The listeners and their authentication. The constructor raises SettingsError and UsersFileError."""

    def __init__(
        self,
        settings: ServeSettings,
        default: Address,
        http: Address,
        metrics: Metrics,
        cluster: Callable[[], Cluster],
        name: str = "PLAINTEXT",
    ) -> None:
        """`default`, called `name`, is the listener if the settings name none; `cluster` returns the durable state."""
        self._settings = settings
        self._http_host = http.host
        self._metrics = metrics
        self._cluster = cluster
        self.listeners = plan(settings, Endpoint(name, default.host, default.port))
        refuse_open_http(settings, self.listeners, http.host)
        self.http_tls = http_tls(settings)
        self.reach = reach_of(settings)
        self.counts = connection_counts(settings)
        self.users = Users(cluster, None if settings.users_file is None else Path(settings.users_file))
        # perf_counter, because uvloop's own clock stands still within a turn of the loop and counts in ms.
        self.listening = Listening(
            self.listeners,
            settings,
            self.users,
            on_request=self._requested,
            counts=self.counts,
            on_login=metrics.login,
            clock=time.perf_counter,
        )

    @property
    def address(self) -> Address:
        """Address of the first listener."""
        return Address(self.listeners[0].endpoint.host, self.listening.servers[0].port)

    @property
    def advertised(self) -> Endpoint:
        """Advertised address of the first listener."""
        return self.listening.advertised[0]

    def authorizer(self) -> Authorizer | None:
        """The authorizer of the settings; None if everything is allowed."""
        settings = self._settings
        if not settings.authorizer_class_name:
            return None
        return StandardAuthorizer(
            lambda: self._cluster().acls,
            super_users=settings.super_users,
            allow_everyone_if_no_acl_found=settings.allow_everyone_if_no_acl_found,
        )

    def draw_login_secret(self, controller: _Observing) -> None:
        """Submit a secret for the fake SCRAM salts of unknown users, if a listener needs one. Until it is in the log,
        a secret of this process is used."""
        if not self._cluster().login_secret and any(each.logs_in for each in self.listeners):
            request_id, secret = controller.new_request_id("login-secret"), os.urandom(SECRET_BYTES)
            controller.submit_internal(DrawLoginSecret(request_id=request_id, at_ms=controller.now_ms(), secret=secret))

    def http_logins(self) -> Logins:
        """HTTP authentication."""
        settings = self._settings
        required = http_logs_in(settings, self.listeners)
        return Logins(self.users, required, settings.connection_failed_authentication_delay_ms, self._metrics.login)

    def ready_line(self, http: Address) -> str:
        """The line printed when requests are accepted: listeners, and warnings about open ones."""
        ready = f"ready kafka={self.address} http={http}{self.listening.shown if self._settings.listeners else ''}"
        addresses = [f"{server.host or '*'}:{server.port}" for server in self.listening.servers]
        return "\n".join([ready, *warnings(self._settings, self.listeners, addresses, self._http_host, str(http))])

    def reload(self) -> None:
        """Read certificates and users again (SIGHUP). Open connections are unchanged."""
        self.listening.reload()
        if self.http_tls is not None:
            reload_tls(self.http_tls, "HTTP")
        try:
            self.users.reload()
        except UsersFileError as error:
            structlog.get_logger("topicwright").error("reload failed", listener="users.file", why=str(error))

    def _requested(self, api_key: int, version: int, outcome: str, seconds: float) -> None:
        """Count a request; unsupported APIs and versions count as `other`."""
        name = "other" if api_key < 0 else APIS[api_key].name if api_key in APIS else str(api_key)
        self._metrics.request(name, "other" if version < 0 else version, outcome, seconds)


def is_open(host: str) -> bool:
    """True if other machines can reach a listener on this host: an address, a name, or empty for every address."""
    try:
        found = [host] if host else []
        if host and not _is_address(host):
            found = [str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
        return not found or not all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found)
    except OSError:
        return True  # the name does not resolve: binding reports it


def refuse_open_http(settings: ServeSettings, listeners: Sequence[Listener], host: str) -> None:
    """Raise SettingsError if HTTP would be open without authentication, unless the settings allow it."""
    if settings.http_authentication == "none" or http_logs_in(settings, listeners) or not is_open(host):
        return
    raise SettingsError(
        f"HTTP would listen on {host or 'every address'}, open to other machines without authentication: listen on "
        "127.0.0.1, or set http.authentication=required (with users in users.file), or http.authentication=none "
        "to allow unauthenticated access"
    )


def warnings(
    settings: ServeSettings, listeners: Sequence[Listener], addresses: Sequence[str], http_host: str, http: str
) -> Iterator[str]:
    """Warnings for the ready screen; `addresses` of the listeners, `http` of HTTP."""
    everybody = "is User:ANONYMOUS" if settings.authorizer_class_name else "may do everything"
    for listener, address in zip(listeners, addresses, strict=True):
        certified = listener.tls is not None and listener.tls.settings.client_auth == "required"
        name = listener.endpoint.name
        if not listener.logs_in and not certified and is_open(listener.endpoint.host):
            yield f"warning: listener {name} has no authentication: whoever reaches {address} {everybody}"
    if not is_open(http_host):
        return
    if not http_logs_in(settings, listeners):
        yield f"warning: HTTP has no authentication: whoever reaches {http} {everybody}"
    elif settings.http_security_protocol == "PLAINTEXT":
        yield f"warning: HTTP accepts unencrypted passwords and tokens at {http}: set http.security.protocol=SSL"


def reach_of(settings: ServeSettings) -> Reach:
    """Host names and trusted proxies of HTTP."""
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


RESERVED_MAX: Final = 2048
"""File descriptors reserved for the log: a RocksDB opens at most 512 tables, and gateways have several."""


def raise_file_limit() -> int:
    """Raise the soft limit on open files to the hard limit, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # above the system limit: keep the soft limit
            hard = soft
    return UNLIMITED if hard == resource.RLIM_INFINITY else hard


def connection_counts(settings: ServeSettings) -> ConnectionCounts:
    """Connection limits of all listeners together: those of the settings, within the limit on open files."""
    limit = raise_file_limit()
    room = limit - min(RESERVED_MAX, limit // 2)
    if settings.max_connections != UNLIMITED and settings.max_connections > room:
        structlog.get_logger("topicwright").warning(
            "max.connections is more than open files allow", max_connections=settings.max_connections, allowed=room,
            open_files=limit,
        )  # fmt: skip
    return ConnectionCounts(settings.max_connections_per_ip, settings.max_connections_per_ip_overrides, room)
