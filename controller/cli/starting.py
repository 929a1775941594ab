"""What `serve`, `worker` and `gateway` have in common on the command line: their flags, and how a start is refused."""

from __future__ import annotations

import argparse
import errno
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.cli.commands import COMMANDS, Parsers
from controller.cli.terminal.usage import complain, in_words

if TYPE_CHECKING:
    from controller.serving.client_listeners import Address
    from controller.settings.load import ServeSettings

Start = Callable[[argparse.Namespace, "ServeSettings"], Coroutine[Any, Any, int]]
"""Makes the main loop of a process, which gives its exit code, of flags and settings."""

DEFAULT_LISTEN = "127.0.0.1:9093"
"""Where a voter listens, where nothing else is said."""


def register_process(
    commands: Parsers[argparse.ArgumentParser], name: str, start: Start, *, http: str, data: str, kept: str
) -> argparse.ArgumentParser:
    """Add a command that runs until it is stopped, with the flags that all of them have; `kept` is what is in its
    data folder."""
    parser = commands.add_parser(name, description=f"{COMMANDS[name].headline}.")
    parser.add_argument(
        "--http", type=address, default=http, metavar="HOST:PORT", help="where to answer HTTP; default %(default)s"
    )
    parser.add_argument(
        "--data", type=Path, default=Path(data), metavar="DIR", help=f"the folder of {kept}; default ./%(default)s"
    )
    register_settings(parser)
    parser.set_defaults(func=lambda options: _run(start, options))
    return parser


def register_settings(parser: argparse.ArgumentParser) -> None:
    """Add where settings come from."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="a properties file with settings by Kafka's names")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one setting; may be repeated")


def register_kafka(parser: argparse.ArgumentParser) -> None:
    """Add where the Kafka is that holds the log, and how to reach it."""
    parser.add_argument(
        "--bootstrap", type=bootstrap, required=True, metavar="HOST:PORT[,…]", help="the Kafka that holds the log"
    )
    parser.add_argument("--kafka-properties", metavar="FILE", help="librdkafka properties for reaching that Kafka")


def _run(start: Start, options: argparse.Namespace) -> int:
    import uvloop

    from controller.access.users_file import UsersFileError
    from controller.brokers.cluster.wire import ClusterUnreachable
    from controller.brokers.kraft.quorum.files import LogCorrupted
    from controller.brokers.kraft.quorum.folder import FolderError
    from controller.brokers.kraft.quorum.joining import QuorumError
    from controller.policy.loading import PolicyLoadError
    from controller.serving.log_lines import configure_logs
    from controller.serving.process import warn_of_ignored, warn_of_readers
    from controller.settings.load import SettingsError, load_settings
    from events.logs.log import LogError

    why_refused = (SettingsError, UsersFileError, PolicyLoadError, LogError, ClusterUnreachable, QuorumError)
    try:
        settings = load_settings(options.config, options.set)
        configure_logs(settings.log_level)
        warn_of_ignored(options.config, settings)
        warn_of_readers(options.data, settings)
        return uvloop.run(start(options, settings))
    except (*why_refused, FolderError, LogCorrupted, OSError) as error:
        return complain(in_words(error))


def refuse_taken(settings: ServeSettings, **places: Address | None) -> None:
    """Raise SettingsError for an address that this process cannot listen on, before a folder is made; `places` are by
    the flag that names them."""
    from controller.serving.client_listeners import Address
    from controller.settings.load import SettingsError

    named = [(f"--{flag}", place) for flag, place in places.items() if place is not None]
    named += [(f"listener {one.name}", Address(one.host, one.port)) for one in settings.listeners]
    for who, place in named:
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(
                place.host or None, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind, protocol) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(where)
                tried.listen(1)
        except OSError as error:
            raise SettingsError(f"cannot listen on {place} ({who}): {_why_not_listening(error)}") from None


def _why_not_listening(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another process listens there; name another address, with port 0 for any free one"
    if error.errno == errno.EACCES:
        return "this user may not listen there; ports from 1024 on need no rights"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"this machine has no such address ({error.strerror})"
    return error.strerror or str(error)


def address(text: str) -> Address:
    """Where to listen. Raises ArgumentTypeError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT with a port from 0 (any free one) to 65535")
    from controller.serving.client_listeners import Address

    return Address(host.strip("[]"), int(port))


def bootstrap(text: str) -> str:
    """The addresses of a Kafka's brokers. Raises ArgumentTypeError."""
    for each in text.split(","):
        host, colon, port = each.strip().rpartition(":")
        if not colon or not host or not port.isdigit() or not 1 <= int(port) <= 65535:
            raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, several separated by commas")
    return text


def simulated_brokers(text: str) -> int | None:
    """The number of brokers in `simulated:N`; None for another text, or number."""
    from controller.brokers.simulated import SIMULATED_BROKERS_MAX

    kind, _, count = text.partition(":")
    is_count = kind == "simulated" and count.isdigit() and 1 <= int(count) <= SIMULATED_BROKERS_MAX
    return int(count) if is_count else None
