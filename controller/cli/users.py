"""`topicwright users`: who can log in.

    --data DIR                 SCRAM users in the log of a stopped service: how the first one gets in
    --bootstrap HOST:PORT      SCRAM users through the admin API of a running service, or of any Kafka
    --file FILE                passwords (for PLAIN and HTTP) and tokens (for HTTP) in the file of `users.file`

A password is asked for on the terminal, or is the first line of standard input; it is never an argument, because other
users of a machine can see those. Exit codes: 0 done, 1 refused or nobody there, 2 wrong usage or no service there.
"""

from __future__ import annotations

import argparse
import getpass
import logging
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from controller.access import users_file
from controller.access.users_file import UsersFileError
from controller.brokers.kraft.quorum.files import LogCorrupted
from controller.brokers.kraft.quorum.folder import FolderError
from controller.cli.usage import complain
from controller.kafka.sasl.scram import DIGESTS, ITERATIONS
from controller.machine.access.credentials import ITERATIONS_MAX, ITERATIONS_MIN
from controller.machine.decision import Detail
from controller.release import RELEASE
from controller.serving.offline_users import OfflineUsers, offline_users
from controller.settings.load import SettingsError, load_settings
from controller.settings.properties import PropertiesError, read_values
from events.logs.log import LogError

DONE, REFUSED = 0, 1
ANSWERED_WITHIN_S = 30.0  # a broker may be restarting


class UsersError(Exception):
    """What kept the command from doing anything; the message is for whoever typed it."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("users", help="add, list and remove those who can log in", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser("add", help="add a user, or set its password")
    add.add_argument("name", metavar="NAME")
    add.add_argument("--token", action="store_true", help="a token for HTTP instead of a password; with --file")
    add.add_argument(
        "--iterations",
        type=_iterations,
        default=ITERATIONS,
        help=f"how often SCRAM hashes the password, {ITERATIONS_MIN} to {ITERATIONS_MAX}; default %(default)s",
    )
    remove = actions.add_parser("remove", help="remove a user")
    remove.add_argument("name", metavar="NAME")
    listing = actions.add_parser("list", help="list users, never what they log in with")
    for each, run in ((add, _add), (remove, _remove), (listing, _list)):
        _register_where(each)
        each.set_defaults(func=_guarded(run))
    for each in (add, remove):
        each.add_argument(
            "--mechanism",
            choices=sorted(DIGESTS),
            default="SCRAM-SHA-512",
            help="how the user logs in; default %(default)s",
        )


def _register_where(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--data", type=Path, metavar="DIR", help="the data folder of a stopped service")
    where.add_argument("--bootstrap", metavar="HOST:PORT", help="a running service")
    where.add_argument("--file", type=Path, metavar="FILE", help="the users file")
    parser.add_argument("--config", type=Path, metavar="FILE", help="with --data: the settings of the service")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="with --data: one setting")
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="with --bootstrap: client properties, as librdkafka has them",
    )


def _iterations(text: str) -> int:
    """How often to hash. Raises ArgumentTypeError for more than is taken anywhere, which would only keep us busy."""
    if not text.isdecimal() or len(text) > 5 or int(text) > ITERATIONS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return int(text)


def _guarded(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    def guarded(options: argparse.Namespace) -> int:
        try:
            return run(options)
        except (UsersError, UsersFileError, SettingsError, LogError, FolderError, LogCorrupted, OSError) as error:
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
    admin = _admin_module()

    kind = getattr(admin.ScramMechanism, options.mechanism.replace("-", "_"))
    info = admin.ScramCredentialInfo(kind, options.iterations)
    upsert = admin.UserScramCredentialUpsertion(options.name, info, password.encode())
    return _alter(options, upsert, f"set {options.mechanism} of {options.name}")


def _remove(options: argparse.Namespace) -> int:
    done = f"removed {options.name}"
    if options.file is not None:
        found = users_file.remove_user(options.file, options.name)
        return _show(Detail() if found else Detail(1, f"there is no user {options.name} in {options.file}"), done)
    if options.data is not None:
        with _offline(options) as users:
            outcome = users.remove(options.name, options.mechanism)
        return _show(outcome, f"{done} for {options.mechanism}")
    admin = _admin_module()

    kind = getattr(admin.ScramMechanism, options.mechanism.replace("-", "_"))
    return _alter(options, admin.UserScramCredentialDeletion(options.name, kind), f"{done} for {options.mechanism}")


def _list(options: argparse.Namespace) -> int:
    if options.file is not None:
        users = users_file.read_users(options.file)
        rows = [(name, "password") for name in users.passwords] + [(name, "token") for name in users.tokens.values()]
    elif options.data is not None:
        if not options.data.exists():
            raise UsersError(f"there is no folder {options.data}")
        with _offline(options) as offline:
            rows = [(user, f"{mechanism} ({count} iterations)") for user, mechanism, count in offline.mechanisms()]
    else:
        admin = _admin(options)
        rows = [
            (user, f"{info.mechanism.name.replace('_', '-')} ({info.iterations} iterations)")
            for user, described in _result(admin.describe_user_scram_credentials()).items()
            for info in described.scram_credential_infos
        ]
    for name, what in sorted(rows):
        print(f"{name}\t{what}")
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


def _admin_module() -> Any:
    """confluent-kafka, which takes 0.1 s to import; it does not say what it exports."""
    from confluent_kafka import admin

    return admin


def _admin(options: argparse.Namespace) -> Any:
    from confluent_kafka import KafkaException

    config = {"bootstrap.servers": options.bootstrap, "client.id": "topicwright-users", **_client_properties(options)}
    try:
        return _admin_module().AdminClient(config, logger=_silent())
    except KafkaException as error:
        raise UsersError(f"--command-config {options.command_config}: {error.args[0].str()}") from None


def _silent() -> logging.Logger:
    logger = logging.getLogger("topicwright.users")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def _client_properties(options: argparse.Namespace) -> dict[str, str]:
    path: Path | None = options.command_config
    if path is None:
        return {}
    try:
        return read_values(path)
    except PropertiesError as error:
        raise UsersError(f"--command-config {path}: {error}") from None


def _alter(options: argparse.Namespace, change: Any, done: str) -> int:
    from confluent_kafka import KafkaException

    admin = _admin(options)  # kept: without it the request would end
    (future,) = admin.alter_user_scram_credentials([change], request_timeout=ANSWERED_WITHIN_S).values()
    try:
        future.result(ANSWERED_WITHIN_S)
    except KafkaException as error:
        return _show(Detail(int(error.args[0].code()), error.args[0].str()), done)
    return _show(Detail(), done)


def _result(future: Future[Any]) -> Any:
    from confluent_kafka import KafkaException

    try:
        return future.result(ANSWERED_WITHIN_S)
    except KafkaException as error:
        raise UsersError(error.args[0].str()) from None
