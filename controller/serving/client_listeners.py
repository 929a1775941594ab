"""Listeners of `serve`, gateways and workers: Kafka, single brokers, HTTP; with TLS, authentication, and SIGHUP.

A process creates its listeners first, so that every settings error is reported before a folder is opened.

Only processes on this machine can connect to loopback. Any other address is open to the network: there HTTP must have
authentication, unless the settings explicitly allow access without it. For other open listeners, the lines printed at
the start contain a warning.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from controller.access.authorizer import StandardAuthorizer
from controller.access.users import SECRET_BYTES, Users, UsersFileError
from controller.apis.tables import HandlerTable, cluster_listener, controller_listener
from controller.brokers.cluster.access import ClusterAcls
from controller.brokers.cluster.link import ClusterLink
from controller.brokers.port import InternalCommands, stamp
from controller.brokers.simulated import SimulatedBrokers
from controller.controller_api import ControllerApi
from controller.http.gate import Hosts, Logins
from controller.http.metrics import Metrics
from controller.kafka.server.tls import TlsError
from controller.machine.commands.access import DrawLoginSecret
from controller.machine.state import Cluster
from controller.serving.broker_listeners import BrokerListeners, SimulatedBrokerListeners
from controller.serving.listeners import KafkaListeners, Listener, http_logs_in, http_tls
from controller.settings.load import ServeSettings, SettingsError
from controller.settings.server import CLUSTER_ACLS
from events.catalog import Endpoint
from events.logs.tree_heads import HeadSigner
from projections.queries.proving import unsigned
from projections.queries.query import Queries

if TYPE_CHECKING:
    from controller.http.browser_login import BrowserLogin
    from controller.http.server import HttpServer


Background = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a task until the process stops."""


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ClientListeners(KafkaListeners):
    """The listeners and their authentication. `listen` accepts connections, whose requests wait until `open`.
    The constructor raises SettingsError and UsersFileError."""

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
        super().__init__(settings, Endpoint(name, default.host, default.port), metrics, cluster)
        self.http_address = http
        refuse_open_http(settings, self.listeners, http.host)
        self.http_tls = http_tls(settings)
        self._browser = browser_login(settings, self.users)
        self._acls = ClusterAcls(time.monotonic) if settings.authorizer_class_name == CLUSTER_ACLS else None
        self._of_brokers: BrokerListeners | SimulatedBrokerListeners | None = None
        self._http: HttpServer | None = None

    async def listen_for_cluster(self, data: Path) -> None:
        """Listen at the ports that the data folder has stored for the target cluster's brokers. Requests wait for
        `open_for_cluster`. Raises SettingsError."""
        self._of_brokers = BrokerListeners(data, self._settings.cluster_broker_ports, self)
        await self._of_brokers.start()

    def reserve_for_simulated(self, brokers: SimulatedBrokers) -> None:
        """Reserve a port for each simulated broker, if the settings enable their listeners."""
        brokers.default_endpoints = self.advertised
        if self._settings.simulated_broker_listeners:
            self._of_brokers = SimulatedBrokerListeners(brokers, self)

    async def open(
        self, api: ControllerApi, make_handlers: Callable[[ControllerApi], HandlerTable] = controller_listener
    ) -> None:
        """Accept requests for the Kafka APIs that `make_handlers` returns handlers for. Raises SettingsError for
        settings that need a target cluster."""
        if self._logins is not None and self._logins.link is None:
            raise SettingsError("authorizer.class.name=ClusterAcls needs a target cluster: --brokers cluster:HOST:PORT")
        for server, address in zip(self.servers, self.advertised, strict=True):
            server.handlers = make_handlers(api.at_listener(address))
        if isinstance(self._of_brokers, SimulatedBrokerListeners):
            await self._of_brokers.open(api)

    async def open_for_cluster(
        self, api: ControllerApi, link: ClusterLink, background: Background, hidden_group: str | None = None
    ) -> None:
        """Accept requests. Requests that are not about topics go to the target cluster, whose `hidden_group` is not
        listed. Raises SettingsError if its brokers need more ports than the settings allow, and ClusterUnreachable if
        its ACLs are needed and cannot be read."""
        if self._acls is not None and self._logins is not None:
            self._acls.link = link
            if any(each.logs_in for each in self.listeners) and not link.security.mechanism:
                needed = "needs security.protocol=sasl_plaintext or sasl_ssl in the properties for the cluster"
                raise SettingsError(f"authorizer.class.name=ClusterAcls, by which the cluster checks logins, {needed}")
            await self._acls.read()
            self._logins.reach(link)
            background(self._acls.follow(self._settings.cluster_watch_interval_ms / 1000))
            age, help_text = self._acls.age_s, "Since the target cluster's ACLs were read."
            self._metrics.watch(lambda: [("cluster_acls_age_seconds", help_text, age())])
        assert isinstance(self._of_brokers, BrokerListeners), "listen_for_cluster was called before"
        handlers = partial(cluster_listener, link=link, has_own_access=self._acls is None, hidden_group=hidden_group)
        self._of_brokers.open(api, handlers)
        await self.open(api, handlers)

    async def start_http(
        self, api: ControllerApi, brokers: SimulatedBrokers | None, queries: Queries, signer: HeadSigner | None
    ) -> None:
        """Serve HTTP, which controls simulated `brokers`. Raises OSError for an unavailable address."""
        required = http_logs_in(self._settings, self.listeners)
        delay_ms = self._settings.connection_failed_authentication_delay_ms
        # In a thread, because importing the HTTP framework takes as long as all other imports together.
        http = (await asyncio.to_thread(import_module, "controller.http.server")).HttpServer(
            api,
            brokers,
            queries,
            self._metrics,
            tls=self.http_tls,
            logins=Logins(self.users, required, delay_ms, self._metrics.login, self._browser),
            hosts=hosts_of(self._settings),
            counts=self.counts,
            sign=unsigned if signer is None else signer.signed,
        )
        host = self.http_address.host
        self.http_address = Address(host, await http.start(host, self.http_address.port))
        self._http = http

    async def stop(self, drain_s: float) -> None:
        """Stop all listeners. Kafka requests in flight may take `drain_s`."""
        stopping = [each.stop(drain_s) for each in self.servers]
        stopping += [each.stop() for each in (self._of_brokers, self._http) if each is not None]
        await asyncio.gather(*stopping)
        self.users.close()

    def gauges(self) -> list[tuple[str, str, float]]:
        of_all = (*self.servers, self._of_brokers)
        open_now = sum(each.connections for each in of_all if each is not None)
        return [("connections", "Kafka connections that are open.", open_now)]

    @property
    def address(self) -> Address:
        return Address(self.listeners[0].endpoint.host, self.servers[0].port)

    def authorizer(self) -> StandardAuthorizer | None:
        """The authorizer of the settings; None if everything is allowed."""
        settings = self._settings
        if not settings.authorizer_class_name:
            return None
        return StandardAuthorizer(
            (lambda: self._cluster().acls) if self._acls is None else self._acls.current,
            super_users=settings.super_users,
            allow_everyone_if_no_acl_found=settings.allow_everyone_if_no_acl_found,
            of_cluster=None if self._acls is None else self._acls.applied_to,
        )

    def draw_login_secret(self, controller: InternalCommands) -> None:
        """Submit a secret for the fake SCRAM salts of unknown users, if a listener needs one. Until it is in the log,
        a secret of this process is used."""
        if not self._cluster().login_secret and any(each.logs_in for each in self.listeners):
            stamped, secret = stamp(controller, "login-secret"), os.urandom(SECRET_BYTES)
            controller.submit_internal(DrawLoginSecret(**stamped, secret=secret))

    def ready_line(self) -> str:
        """The line printed when requests are accepted: listeners, and warnings about open ones."""
        http = str(self.http_address)
        ready = f"ready kafka={self.address} http={http}"
        if self._settings.listeners:
            ready += f" listeners={','.join(f'{each.listener}://{each.host}:{each.port}' for each in self.servers)}"
        addresses = [f"{server.host or '*'}:{server.port}" for server in self.servers]
        return "\n".join([ready, *warnings(self._settings, self.listeners, addresses, self.http_address.host, http)])

    def reload(self) -> None:
        """Read certificates and users again (SIGHUP). Open connections are unchanged, and so is a listener whose files
        cannot be read."""
        log = structlog.get_logger("topicwright")
        for tls, name in (*((each.tls, each.endpoint.name) for each in self.listeners), (self.http_tls, "HTTP")):
            try:
                if tls is not None:
                    tls.reload()
                    log.info("reloaded", listener=name)
            except TlsError as error:
                log.error("reload failed", listener=name, why=str(error))
        try:
            self.users.reload()
        except UsersFileError as error:
            log.error("reload failed", listener="users.file", why=str(error))


def browser_login(settings: ServeSettings, users: Users) -> BrowserLogin | None:
    """The login of browsers by an identity provider; None if the settings have none. Raises SettingsError."""
    client_id, redirect_url = settings.http_oauth_client_id, settings.http_oauth_redirect_url
    issuer, tokens = settings.sasl_oauthbearer_expected_issuer, users.tokens
    if client_id is None:
        return None
    if redirect_url is None or issuer is None or issuer == "*" or tokens is None:
        needed = "http.oauth.redirect.url, sasl.oauthbearer.jwks.endpoint.url and one sasl.oauthbearer.expected.issuer"
        raise SettingsError(f"http.oauth.client.id needs {needed}")
    from controller.http.browser_login import BrowserLogin, OAuthClient

    client = OAuthClient(issuer, client_id, settings.http_oauth_client_secret, redirect_url, settings.http_oauth_scope)
    return BrowserLogin(client, tokens.for_audience(client_id), time.time)


def is_open(host: str) -> bool:
    """True if other machines can reach a listener on this host: an address, a name, or empty for every address."""
    if not host:
        return True
    try:
        found = [str(each[4][0]).partition("%")[0] for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError:
        return True  # the name does not resolve: binding reports it
    return not all(ipaddress.ip_address(each).is_loopback for each in found)


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
    """Warnings to print at the start. `addresses` belong to the Kafka listeners, `http` to the HTTP listener."""
    everybody = "is User:ANONYMOUS" if settings.authorizer_class_name else "may do everything"
    for listener, address in zip(listeners, addresses, strict=True):
        certified = listener.tls is not None and listener.tls.client_auth == "required"
        name = listener.endpoint.name
        if not listener.logs_in and not certified and is_open(listener.endpoint.host):
            yield f"warning: listener {name} has no authentication: anyone who can reach {address} {everybody}"
    if not is_open(http_host):
        return
    if not http_logs_in(settings, listeners):
        yield f"warning: HTTP has no authentication: anyone who can reach {http} {everybody}"
    elif settings.http_security_protocol == "PLAINTEXT":
        yield f"warning: HTTP accepts unencrypted passwords and tokens at {http}: set http.security.protocol=SSL"


def hosts_of(settings: ServeSettings) -> Hosts:
    advertised = {endpoint.host.lower() for endpoint in settings.advertised_listeners}
    listened = {endpoint.host.lower() for endpoint in settings.listeners}
    return Hosts(frozenset({*advertised, *listened, *settings.http_allowed_hosts}), settings.http_trusted_proxies)
