"""What `topicwright users` does: passwords and tokens, in a log, a file or a running service."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

from controller.access import users_file
from controller.access.users_file import UsersFileError
from controller.brokers.kraft.quorum.files import LogCorrupted
from controller.brokers.kraft.quorum.folder import FolderError
from controller.cli.sources.admin import Admin, AdminError, admin_module
from controller.cli.sources.folder import open_log
from controller.cli.sources.http import SourceError
from controller.cli.terminal.printing import show
from controller.cli.terminal.usage import complain
from controller.machine.decision import Detail
from controller.release import RELEASE
from controller.serving.offline_users import OfflineUsers, mechanisms, offline_users
from controller.settings.load import SettingsError, load_settings
from controller.settings.properties import PropertiesError, read_values
from events.logs.log import LogError
from projections.store.store import TopicStore

DONE, REFUSED = 0, 1


class UsersError(Exception):
    """What kept the command from doing anything; the message is for whoever typed it."""


def _guarded(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    def guarded(options: argparse.Namespace) -> int:
        try:
            return run(options)
        except (
            UsersError,
            SourceError,
            AdminError,
            UsersFileError,
            SettingsError,
            LogError,
            FolderError,
            LogCorrupted,
            OSError,
        ) as error:
            return complain(str(error))

    return guarded


# What is done.


def _add(options: argparse.Namespace) -> int:
    if options.token:
        if options.file is None:
            raise UsersError("--token goes with --file: tokens are in no other place")
        print(users_file.add_token(options.file, options.name))
        print(f"the token of {options.name} is shown this once; who has it is User:{options.name}", file=sys.stderr)
        return DONE
    password = _password(options.name)
    if options.file is not None:
        known = users_file.set_password(options.file, options.name, password)
        print(f"{'changed' if known else 'added'} {options.name} in {options.file}")
        return DONE
    if options.data is not None:
        with _offline(options) as users:
            outcome = users.add(options.name, options.mechanism, password, options.iterations)
        return _show(outcome, f"set {options.mechanism} of {options.name}")
    admin = admin_module()
    info = admin.ScramCredentialInfo(_kind(options), options.iterations)
    upsert = admin.UserScramCredentialUpsertion(options.name, info, password.encode())
    return _show(_admin(options).alter(upsert), f"set {options.mechanism} of {options.name}")


def _remove(options: argparse.Namespace) -> int:
    done = f"removed {options.name}"
    if options.file is not None:
        found = users_file.remove_user(options.file, options.name)
        return _show(Detail() if found else Detail(1, f"there is no user {options.name} in {options.file}"), done)
    if options.data is not None:
        with _offline(options) as users:
            outcome = users.remove(options.name, options.mechanism)
        return _show(outcome, f"{done} for {options.mechanism}")
    deletion = admin_module().UserScramCredentialDeletion(options.name, _kind(options))
    return _show(_admin(options).alter(deletion), f"{done} for {options.mechanism}")


def _kind(options: argparse.Namespace) -> Any:
    return getattr(admin_module().ScramMechanism, options.mechanism.replace("-", "_"))


def _list(options: argparse.Namespace) -> int:
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
        users = list(_admin(options).users())
    users.sort(key=lambda one: (one[0], one[1]))
    rows = [(name, how, "-" if iterations is None else iterations) for name, how, iterations in users]
    show(
        options,
        {"users": [dict(zip(("name", "login", "iterations"), one, strict=True)) for one in users]},
        lambda look: look.table(("USER", "LOGIN", "ITERATIONS"), rows) if rows else ["There are no users."],
        lambda: dict.fromkeys(name for name, _, _ in users),
    )
    return DONE


def _show(outcome: Detail, done: str) -> int:
    if outcome.code:
        return complain(outcome.message, REFUSED)
    print(done)
    return DONE


def _offline(options: argparse.Namespace) -> AbstractContextManager[OfflineUsers]:
    return offline_users(options.data, load_settings(options.config, options.set), RELEASE)


# Passwords.


def _password(name: str) -> str:
    """The password of a user, from the terminal (twice) or from standard input. Raises UsersError."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"password of {name}: ")
        if getpass.getpass("once more: ") != password:
            raise UsersError("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise UsersError("the password is empty: type one, or give it as the first line of standard input")
    return password


# The admin API.


def _admin(options: argparse.Namespace) -> Admin:
    properties = _client_properties(options)
    try:
        return Admin(options.bootstrap, properties)
    except AdminError as error:
        raise UsersError(f"--command-config {options.command_config}: {error}") from None


def _client_properties(options: argparse.Namespace) -> dict[str, str]:
    path: Path | None = options.command_config
    if path is None:
        return {}
    try:
        return read_values(path)
    except PropertiesError as error:
        raise UsersError(f"--command-config {path}: {error}") from None


add, remove, list_ = map(_guarded, (_add, _remove, _list))
"""The actions of the command: each returns its exit code."""
