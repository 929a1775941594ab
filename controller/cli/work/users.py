"""`topicwright users`: passwords and tokens in a log, a file, or a running service.

A running service is changed through Kafka's admin API. librdkafka retries connections silently; here the first login
failure or refused connection ends the command with its cause.
"""

from __future__ import annotations

import argparse
import getpass
import logging
import sys
import time  # noqa: TID251 - how long a person waits in front of a command
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing
from importlib import import_module
from typing import Any

from confluent_kafka import KafkaException

from controller.access import users_file
from controller.access.users_file import UsersFileError
from controller.cli.arguments import DONE, NEGATIVE, print_error, reporting
from controller.cli.context import BackendError
from controller.cli.folder import open_log
from controller.cli.output import show
from controller.machine.decision import Detail
from controller.quorum.files import LogCorrupted
from controller.quorum.folder import FolderError
from controller.release import RELEASE
from controller.serving.offline_users import OfflineUsers, mechanisms, offline_users
from controller.serving.reach_cluster import client_properties
from controller.settings.load import SettingsError, load_settings
from controller.store.store import TopicStore
from events.logs.log import LogError

admin: Any = import_module("confluent_kafka.admin")  # it exports nothing by its types


class UsersError(Exception):
    """The command could not run, or the service refused it; `code` is Kafka's error if the service answered."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


_reporting = reporting(
    UsersError, BackendError, UsersFileError, SettingsError, LogError, FolderError, LogCorrupted, OSError
)


# --- actions


@_reporting
def add(options: argparse.Namespace) -> int:
    if options.token:
        if options.file is None:
            raise UsersError("--token needs --file: tokens exist only in users files")
        print(users_file.add_token(options.file, options.name))
        print(f"this token is shown only once; it logs in as User:{options.name}", file=sys.stderr)
        return DONE
    password = _password(options.name)
    if options.file is not None:
        known = users_file.set_password(options.file, options.name, password)
        print(f"{'changed' if known else 'added'} {options.name} in {options.file}")
        return DONE
    if options.data is not None:
        with _offline(options) as users:
            outcome = users.add(options.name, options.mechanism, password, options.iterations)
        return _report(outcome, f"set {options.mechanism} of {options.name}")
    info = admin.ScramCredentialInfo(_kind(options), options.iterations)
    upsert = admin.UserScramCredentialUpsertion(options.name, info, password.encode())
    return _report(Admin(options).alter(upsert), f"set {options.mechanism} of {options.name}")


@_reporting
def remove(options: argparse.Namespace) -> int:
    done = f"removed {options.name}"
    if options.file is not None:
        found = users_file.remove_user(options.file, options.name)
        return _report(Detail() if found else Detail(1, f"there is no user {options.name} in {options.file}"), done)
    if options.data is not None:
        with _offline(options) as users:
            outcome = users.remove(options.name, options.mechanism)
        return _report(outcome, f"{done} for {options.mechanism}")
    deletion = admin.UserScramCredentialDeletion(options.name, _kind(options))
    return _report(Admin(options).alter(deletion), f"{done} for {options.mechanism}")


def _kind(options: argparse.Namespace) -> Any:
    return getattr(admin.ScramMechanism, options.mechanism.replace("-", "_"))


@_reporting
def list_(options: argparse.Namespace) -> int:
    users: list[tuple[str, str, int | None]]
    if options.file is not None:
        known = users_file.read_users(options.file)
        users = [(name, "password", None) for name in known.passwords]
        users += [(name, "token", None) for name in known.tokens.values()]
    elif options.data is not None:
        if not options.data.exists():
            raise UsersError(f"there is no folder {options.data}")
        with closing(open_log(options.data)) as log:
            users = [*mechanisms(TopicStore(log).durable_cluster)]
    else:
        users = list(Admin(options).users())
    users.sort(key=lambda one: (one[0], one[1]))
    rows = [(name, how, "-" if iterations is None else iterations) for name, how, iterations in users]
    show(
        options,
        {"users": [dict(zip(("name", "login", "iterations"), one, strict=True)) for one in users]},
        lambda style: style.table(("USER", "LOGIN", "ITERATIONS"), rows) if rows else ["There are no users."],
        lambda: dict.fromkeys(name for name, _, _ in users),
    )
    return DONE


def _report(outcome: Detail, done: str) -> int:
    if outcome.code:
        return print_error(outcome.message, NEGATIVE)
    print(done)
    return DONE


def _offline(options: argparse.Namespace) -> AbstractContextManager[OfflineUsers]:
    return offline_users(options.data, load_settings(options.config, options.set), RELEASE)


# --- passwords


def _password(name: str) -> str:
    """Read a password from the terminal (twice) or standard input. Raises UsersError."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"password of {name}: ")
        if getpass.getpass("repeat the password: ") != password:
            raise UsersError("the passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise UsersError("the password is empty: type one, or write it to the first line of standard input")
    return password


# --- the admin API


CONFIG = "--command-config"
TIMEOUT_S = 30.0
"""The timeout of a request once connected: a broker may be restarting."""
POLL_S = 0.05
RECONNECT: Mapping[str, int] = {"reconnect.backoff.ms": 1000, "reconnect.backoff.max.ms": 1000}
"""Slow enough that a wrong password is tried only once."""
FATAL = ("_AUTHENTICATION", "_SSL")
DOWN, ALL_DOWN = "_TRANSPORT", "_ALL_BROKERS_DOWN"
FATAL_AFTER: Mapping[str, int] = {**dict.fromkeys(FATAL, 1), DOWN: 2, ALL_DOWN: 3}
"""By error, the number of occurrences that ends the command. A host name may have two addresses of which one works, and
each attempt tries the next one. If a service closes each connection (it expects a login or TLS), the client only
reports all brokers down."""


class Admin:
    """A connection to a service. Raises UsersError, also for properties that librdkafka rejects."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._bootstrap: str = options.bootstrap
        self._seen: list[Any] = []
        properties = client_properties(options.command_config, CONFIG)
        config = {"bootstrap.servers": self._bootstrap, "client.id": "topicwright-users", **properties, **RECONNECT}
        try:
            self._client = admin.AdminClient({**config, "error_cb": self._seen.append}, logger=_silent())
        except KafkaException as error:
            raise UsersError(f"{CONFIG}={options.command_config}: {error.args[0].str()}") from None

    def alter(self, change: object) -> Detail:
        """Set or remove a SCRAM credential; returns the outcome."""
        futures = self._client.alter_user_scram_credentials([change], request_timeout=TIMEOUT_S)
        try:
            (future,) = futures.values()
            self._result(future)
        except UsersError as error:
            if not error.code:
                raise
            return Detail(error.code, str(error))
        return Detail()

    def users(self) -> list[tuple[str, str, int]]:
        """All users with their mechanisms and iterations."""
        found = self._result(self._client.describe_user_scram_credentials(request_timeout=TIMEOUT_S))
        return [
            (user, info.mechanism.name.replace("_", "-"), info.iterations)
            for user, described in found.items()
            for info in described.scram_credential_infos
        ]

    def _result(self, future: Future[Any]) -> Any:
        """Wait for a result, until a fatal error or the timeout."""
        deadline = time.monotonic() + TIMEOUT_S
        while not future.done():
            self._client.poll(POLL_S)
            if future.done():
                break
            names = [seen.name() for seen in self._seen]
            if any(names.count(name) >= often for name, often in FATAL_AFTER.items()):
                raise UsersError(self._why())
            if time.monotonic() > deadline:
                raise UsersError(f"no answer from {self._bootstrap} within {TIMEOUT_S:.0f} s; {self._why()}")
        try:
            return future.result(0)
        except KafkaException as error:
            raise UsersError(error.args[0].str(), int(error.args[0].code())) from None

    def _why(self) -> str:
        """The first error of the client, without its connection names."""
        causes = [seen.str() for seen in self._seen if seen.name() != ALL_DOWN]
        if self._seen and not causes:
            return (
                f"{self._bootstrap} closes each connection: it may require a login or TLS; configure them with "
                "--command-config FILE, for example security.protocol=SASL_SSL"
            )
        if not causes:
            return f"no connection to {self._bootstrap}"
        refused = any(seen.name() == "_AUTHENTICATION" for seen in self._seen)
        what = "the login was refused by" if refused else "no service at"
        cause = causes[0].partition("/bootstrap: ")[2] or causes[0]
        return f"{what} {self._bootstrap}: {cause}"


def _silent() -> logging.Logger:
    logger = logging.getLogger("topicwright.users")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
