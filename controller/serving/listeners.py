"""Turns the listener settings into Kafka listeners with protocol, TLS, users and limits, and starts their servers.

Invalid settings are reported before anything listens: names without a protocol, TLS without files, authentication
without users.

A process whose file descriptors are all used by idle clients cannot write its log. Connections are therefore limited so
that the log, its indexes and our own sockets always have descriptors.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from controller.access.users import Users
from controller.brokers.cluster.access import ClusterLogins
from controller.http.metrics import Metrics
from controller.kafka.connections import Address
from controller.kafka.messages import APIS
from controller.kafka.sasl import StartConversation, check_bearer, check_plain, start_scram
from controller.kafka.sasl_gate import SaslRules
from controller.kafka.server.server import UNLIMITED, ConnectionCounts, KafkaServer, Limits
from controller.kafka.server.tls import Tls, TlsError
from controller.machine.state import Cluster
from controller.settings.load import ServeSettings, SettingsError
from controller.settings.server import CLUSTER_ACLS
from events.catalog import Endpoint

if TYPE_CHECKING:
    from controller.access.tokens import Tokens

_MECHANISMS: Mapping[str, StartConversation] = {
    "OAUTHBEARER": lambda users, address: partial(check_bearer, users, address),
    "PLAIN": lambda users, address: partial(check_plain, users, address),
    "SCRAM-SHA-256": lambda users, _: start_scram(users, "SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda users, _: start_scram(users, "SCRAM-SHA-512"),
}
_logger = structlog.get_logger("topicwright")


class Listener(msgspec.Struct, frozen=True):
    """A listener of the settings: its name and address, its protocol, and its TLS."""

    endpoint: Endpoint
    protocol: str
    tls: Tls | None

    @property
    def logs_in(self) -> bool:
        """True if clients authenticate by SASL."""
        return self.protocol.startswith("SASL_")


def plan(settings: ServeSettings, default: Endpoint) -> tuple[Listener, ...]:
    """The listeners of the settings, or `default` if they name none. Raises SettingsError."""
    endpoints = settings.listeners or (default,)
    names = {endpoint.name for endpoint in endpoints}
    for given, prefix in ((settings.of_listeners, "listener.name."), (advertised(settings), "advertised.listeners=")):
        unknown = sorted(given.keys() - names)
        if unknown:
            name = unknown[0].lower() if prefix.endswith(".") else unknown[0]
            raise SettingsError(
                f"setting {prefix}{name}: there is no such listener; listeners: {', '.join(sorted(names))}"
            )
    if len(endpoints) > 1 and settings.simulated_broker_listeners:
        raise SettingsError("simulated.broker.listeners=true needs a single listener; listeners has several")
    return tuple(_planned(settings, endpoint) for endpoint in endpoints)


def advertised(settings: ServeSettings) -> dict[str, Endpoint]:
    """The address in `advertised.listeners` by listener name; listeners without one are left out."""
    return {endpoint.name: endpoint for endpoint in settings.advertised_listeners}


def _planned(settings: ServeSettings, endpoint: Endpoint) -> Listener:
    name = endpoint.name
    unmapped = None if settings.listeners else "PLAINTEXT"  # as Kafka does for a controller listener
    protocol = settings.listener_security_protocol_map.get(name, unmapped)
    if protocol is None:
        raise SettingsError(f"listener {name} has no protocol: set {name}:PROTOCOL in listener.security.protocol.map")
    if protocol.startswith("SASL_"):
        mechanisms = settings.of_listener(name, "sasl_enabled_mechanisms")
        at_cluster = settings.authorizer_class_name == CLUSTER_ACLS
        url = settings.sasl_oauthbearer_jwks_endpoint_url
        for mechanism, what, needed, given in (
            ("PLAIN", "passwords", "users.file", settings.users_file),
            ("OAUTHBEARER", "tokens", "sasl.oauthbearer.jwks.endpoint.url", url),
        ):
            if mechanism in mechanisms and given is None and not at_cluster:
                raise SettingsError(f"listener {name}: sasl.enabled.mechanisms has {mechanism}, which needs {needed}")
            if mechanism in mechanisms and protocol == "SASL_PLAINTEXT":
                _logger.warning(f"{what} are sent unencrypted: {mechanism} without TLS", listener=name)
    return Listener(endpoint, protocol, _tls(settings, name, protocol) if protocol.endswith("SSL") else None)


def _tls(settings: ServeSettings, name: str, protocol: str) -> Tls:
    of = partial(settings.of_listener, name)
    keystore, truststore = of("ssl_keystore_location"), of("ssl_truststore_location")
    if keystore is None:
        raise SettingsError(f"listener {name} speaks {protocol}, which needs ssl.keystore.location")
    client_auth = of("ssl_client_auth")
    if protocol == "SASL_SSL":  # client certificates only if set for this listener (KIP-684)
        client_auth = settings.of_listeners.get(name, {}).get("ssl_client_auth", "none")
    own = partial(
        Tls,
        keystore=Path(keystore),
        key_password=of("ssl_key_password"),
        truststore=None if truststore is None else Path(truststore),
        client_auth=client_auth,
        versions=of("ssl_enabled_protocols"),
        principal_rules=of("ssl_principal_mapping_rules"),
    )
    return _read(own, f"listener {name}")


def http_tls(settings: ServeSettings) -> Tls | None:
    """The TLS of HTTP; None for plain HTTP. Raises SettingsError."""
    if settings.http_security_protocol == "PLAINTEXT":
        return None
    if settings.ssl_keystore_location is None:
        raise SettingsError("http.security.protocol=SSL needs ssl.keystore.location")
    password, versions = settings.ssl_key_password, settings.ssl_enabled_protocols
    own = partial(Tls, keystore=Path(settings.ssl_keystore_location), key_password=password, versions=versions)
    return _read(own, "HTTP")


def _read(tls: Callable[[], Tls], of: str) -> Tls:
    """Read the TLS files. Raises SettingsError."""
    try:
        return tls()
    except TlsError as error:
        raise SettingsError(f"{of}: {error}") from None


def http_logs_in(settings: ServeSettings, listeners: Sequence[Listener]) -> bool:
    if settings.http_authentication != "auto":
        return settings.http_authentication == "required"
    by_certificate = any(each.tls is not None and each.tls.client_auth == "required" for each in listeners)
    has_logins = settings.users_file is not None or settings.sasl_oauthbearer_jwks_endpoint_url is not None
    return has_logins or by_certificate or any(each.logs_in for each in listeners)


def tokens(settings: ServeSettings) -> Tokens | None:
    """Validates the tokens of the identity provider; None without one. Raises SettingsError."""
    url = settings.sasl_oauthbearer_jwks_endpoint_url
    if url is None:
        return None
    issuer, audiences = settings.sasl_oauthbearer_expected_issuer, settings.sasl_oauthbearer_expected_audience
    for expected, what in ((issuer, "issuer"), (audiences, "audience")):
        if not expected:
            needed = f"needs sasl.oauthbearer.expected.{what}; * accepts every {what}"
            raise SettingsError(f"sasl.oauthbearer.jwks.endpoint.url {needed}")
    if settings.sasl_oauthbearer_scope_roles and not settings.authorizer_class_name:
        raise SettingsError("sasl.oauthbearer.scope.roles needs authorizer.class.name")
    from controller.access.tokens import Jwks, TokenRules, Tokens

    if url.startswith("http:"):
        _logger.warning("the identity provider's keys are fetched without TLS", url=url)
    jwks = Jwks(
        url,
        refresh_s=settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000,
        backoff_s=settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / 1000,
        backoff_max_s=settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / 1000,
    )
    rules = TokenRules(
        issuer=None if issuer == "*" else issuer,
        audiences=None if audiences == ("*",) else audiences,
        clock_skew_s=settings.sasl_oauthbearer_clock_skew_seconds,
        sub_claim=settings.sasl_oauthbearer_sub_claim_name,
        scope_claim=settings.sasl_oauthbearer_scope_claim_name,
        roles=settings.sasl_oauthbearer_scope_roles,
    )
    return Tokens(rules, jwks, time.time)


def reachable(host: str) -> str:
    """The address at which this machine reaches a server that is bound to a host, or to all addresses."""
    return "127.0.0.1" if host in {"0.0.0.0", "::", ""} else host


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
    per_ip, overrides = settings.max_connections_per_ip, settings.max_connections_per_ip_overrides
    return ConnectionCounts(per_ip, overrides, room, settings.max_connection_creation_rate)


class KafkaListeners:
    """The listeners of the settings, or `default`, and the users that authenticate there. Raises SettingsError and
    UsersFileError."""

    def __init__(
        self, settings: ServeSettings, default: Endpoint, metrics: Metrics, cluster: Callable[[], Cluster]
    ) -> None:
        self._settings, self._metrics, self._cluster = settings, metrics, cluster
        self.listeners = plan(settings, default)
        self.counts = connection_counts(settings)
        file = None if settings.users_file is None else Path(settings.users_file)
        self.users = Users(cluster, file, tokens(settings))
        self._logins: ClusterLogins | None = None
        if settings.authorizer_class_name == CLUSTER_ACLS:
            self.users.cluster_users = self._logins = ClusterLogins(settings.sasl_oauthbearer_sub_claim_name, time.time)
        self.servers: list[KafkaServer] = []
        """The server of each listener, once it listens; `advertised` has the addresses for clients."""
        self.advertised: tuple[Endpoint, ...] = ()

    async def listen(self) -> None:
        """Listen for Kafka clients; their requests wait for `open`. Raises OSError for an unavailable address."""
        self.users.start()
        for listener in self.listeners:
            server = self.make_server(listener, listener.endpoint.host, listener.endpoint.port)
            await server.start()
            self.servers.append(server)
        given = advertised(self._settings)
        self.advertised = tuple(
            given.get(each.listener, Endpoint(each.listener, reachable(each.host), each.port)) for each in self.servers
        )

    def make_server(self, listener: Listener, host: str, port: int) -> KafkaServer:
        """A server with the protocol of this listener, not started."""
        settings, name = self._settings, listener.endpoint.name
        limits = Limits(
            request_bytes_max=settings.socket_request_max_bytes,
            held_bytes_max=settings.queued_max_request_bytes,
            connections_max=settings.max_connections,
            idle_ms_max=settings.connections_max_idle_ms,
            requests_in_flight_max=settings.max_in_flight_requests_per_connection,
            authentication_ms_max=settings.authentication_timeout_ms,
        )
        # perf_counter, because uvloop's own clock counts in ms, and does not advance within an iteration of the loop.
        return KafkaServer(
            host,
            port,
            {},
            listener=name,
            tls=listener.tls,
            sasl=self.sasl(listener),
            limits=limits,
            counts=self.counts,
            on_request=self._requested,
            clock=time.perf_counter,
        )

    def sasl(self, listener: Listener, at: Callable[[], Address] | None = None) -> SaslRules | None:
        """The mechanisms and limits with which clients of a listener authenticate; None without SASL. If the target
        cluster checks the logins, this process repeats them at the broker with the address `at`."""
        if not listener.logs_in:
            return None
        of, settings, logins = partial(self._settings.of_listener, listener.endpoint.name), self._settings, self._logins
        return SaslRules(
            on_login=self._metrics.login,
            mechanisms={
                each: _MECHANISMS[each] if logins is None else logins.start(each, at)
                for each in of("sasl_enabled_mechanisms")
            },
            users=self.users,
            now=time.time,
            session_ms_max=of("connections_max_reauth_ms"),
            failed_delay_ms=settings.connection_failed_authentication_delay_ms,
            frame_bytes_max=settings.sasl_server_max_receive_size,
        )

    def _requested(self, api_key: int, version: int, outcome: str, seconds: float) -> None:
        """Count a request; unsupported APIs and versions count as `other`."""
        name = "other" if api_key < 0 else APIS[api_key].name if api_key in APIS else str(api_key)
        self._metrics.request(name, "other" if version < 0 else version, outcome, seconds)
