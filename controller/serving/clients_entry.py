"""Listeners of a controller or a gateway: Kafka, HTTP with TLS, authentication, and reload on SIGHUP.

Made before anything else, so that all that settings can get wrong is found before a folder is opened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from controller.access.authorizer import Authorizer, StandardAuthorizer
from controller.access.users import SECRET_BYTES, Users
from controller.access.users_file import UsersFileError
from controller.http.metrics import Metrics
from controller.http.reach import Logins
from controller.kafka.messages import APIS
from controller.machine.commands.access import DrawLoginSecret
from controller.machine.commands.commands import AnyCommand
from controller.machine.state import Cluster
from controller.serving.exposure import reach_of, refuse_open_http, warnings
from controller.serving.file_limits import connection_counts
from controller.serving.listeners import Listening, http_logs_in, http_tls, plan, reload_tls
from controller.settings.load import ServeSettings
from events.catalog import Endpoint
from events.names import RequestId


class _Observing(Protocol):
    """Who takes commands that nobody waits for."""

    def now_ms(self) -> int: ...

    def new_request_id(self, origin: str = "") -> RequestId: ...

    def submit_internal(self, command: AnyCommand) -> None: ...


class Address(msgspec.Struct, frozen=True):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Entrance:
    """The ways in, with who may use them. Raises SettingsError and UsersFileError when made."""

    def __init__(
        self,
        settings: ServeSettings,
        default: Address,
        http: Address,
        metrics: Metrics,
        cluster: Callable[[], Cluster],
        name: str = "PLAINTEXT",
    ) -> None:
        """`default`, called `name`, is the listener of settings that name none; `cluster` gives what is durable of the
        cluster."""
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
        """Where the first listener listens."""
        return Address(self.listeners[0].endpoint.host, self.listening.servers[0].port)

    @property
    def advertised(self) -> Endpoint:
        """Where clients reach the first listener."""
        return self.listening.advertised[0]

    def authorizer(self) -> Authorizer | None:
        """Who may do what, by settings and the entries of the log; None where everything is allowed."""
        settings = self._settings
        if not settings.authorizer_class_name:
            return None
        return StandardAuthorizer(
            lambda: self._cluster().acls,
            super_users=settings.super_users,
            allow_everyone_if_no_acl_found=settings.allow_everyone_if_no_acl_found,
        )

    def draw_login_secret(self, controller: _Observing) -> None:
        """See to it that salts of unknown users are made up from a secret of the log, where logins show any. Nobody
        waits for that: until it is in the log they are made up from a secret of the process."""
        if not self._cluster().login_secret and any(each.logs_in for each in self.listeners):
            request_id, secret = controller.new_request_id("login-secret"), os.urandom(SECRET_BYTES)
            controller.submit_internal(DrawLoginSecret(request_id=request_id, at_ms=controller.now_ms(), secret=secret))

    def http_logins(self) -> Logins:
        """How clients log in to HTTP."""
        settings = self._settings
        required = http_logs_in(settings, self.listeners)
        return Logins(self.users, required, settings.connection_failed_authentication_delay_ms, self._metrics.login)

    def ready_line(self, http: Address) -> str:
        """What is printed once requests are taken; with each listener, if the settings name them, and with what is open
        to others."""
        ready = f"ready kafka={self.address} http={http}{self.listening.shown if self._settings.listeners else ''}"
        addresses = [f"{server.host or '*'}:{server.port}" for server in self.listening.servers]
        return "\n".join([ready, *warnings(self._settings, self.listeners, addresses, self._http_host, str(http))])

    def reload(self) -> None:
        """Read certificates and users anew (SIGHUP). Connections that there are stay as they are."""
        self.listening.reload()
        if self.http_tls is not None:
            reload_tls(self.http_tls, "HTTP")
        try:
            self.users.reload()
        except UsersFileError as error:
            structlog.get_logger("topicwright").error("reload failed", listener="users.file", why=str(error))

    def _requested(self, api_key: int, version: int, outcome: str, seconds: float) -> None:
        """Count a request; what is not spoken goes by `other`."""
        name = "other" if api_key < 0 else APIS[api_key].name if api_key in APIS else str(api_key)
        self._metrics.request(name, "other" if version < 0 else version, outcome, seconds)
