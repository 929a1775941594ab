"""The `topicwright` command.

Exit codes: 0 done, 1 the check found something, 2 wrong usage or settings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from controller import cli_adopt, cli_demo, cli_front, cli_query, cli_replay, cli_users, cli_worker
from controller.brokers.cluster_wire import ClusterUnreachable
from controller.brokers.kraft.features import METADATA_VERSION_MAX, METADATA_VERSION_MIN
from controller.policy.loading import PolicyLoadError
from controller.release import RELEASE
from controller.runtime.entrance import Address
from controller.runtime.logs import configure_logs
from controller.runtime.serve import ServeOptions, serve
from controller.runtime.settings import ServeSettings, SettingsError, load_settings
from controller.runtime.users_file import UsersFileError
from events.log import LogError

DEFAULT_KAFKA = "127.0.0.1:9092"
DEFAULT_BROKERS = "simulated:3"
KRAFT = "kraft"
SIMULATED_BROKERS_MAX = 1000
_FLEET_HELP = "simulated:N, kraft for real brokers, or cluster:HOST:PORT[,…] for a Kafka cluster; %(default)s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    options = parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.func
    return run(options)


def parser() -> argparse.ArgumentParser:
    """What is understood on the command line."""
    parser = argparse.ArgumentParser(prog="topicwright", description="A Kafka controller you can replay.")
    parser.add_argument("--version", action="version", version=f"topicwright {RELEASE}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _register_serve(commands)
    cli_front.register(commands, _address)
    cli_worker.register(commands)
    cli_demo.register(commands)
    cli_query.register(commands)
    cli_replay.register(commands)
    cli_users.register(commands)
    cli_adopt.register(commands, RELEASE)
    return parser


def _register_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("serve", help="run a controller with its log in one process")
    parser.add_argument("--kafka", type=_address, metavar="HOST:PORT", help=f"{DEFAULT_KAFKA}, or see `listeners`")
    parser.add_argument("--http", type=_address, default="127.0.0.1:8080", metavar="HOST:PORT", help="%(default)s")
    parser.add_argument("--data", type=Path, default=Path("topicwright-data"), metavar="DIR", help="./%(default)s")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a properties file with settings by Kafka's names")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one setting; may be repeated")
    parser.add_argument("--brokers", type=_fleet, default=DEFAULT_BROKERS, metavar="FLEET", help=_FLEET_HELP)
    parser.add_argument(
        "--metadata-version",
        type=_metadata_version,
        metavar="LEVEL",
        help="with kraft: the level of metadata.version, such as 30 (the highest that all brokers share)",
    )
    parser.add_argument("--hints", action="store_true", help="say what to type next, once ready")
    parser.set_defaults(func=_serve)


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT with a port from 0 (any free one) to 65535")
    return Address(host.strip("[]"), int(port))


def _fleet(text: str) -> int | str:
    """So many simulated brokers, `kraft`, or the bootstrap addresses of a cluster."""
    kind, _, rest = text.partition(":")
    if text == KRAFT:
        return KRAFT
    if kind == "simulated" and rest.isdigit() and 1 <= int(rest) <= SIMULATED_BROKERS_MAX:
        return int(rest)
    if kind == "cluster" and all(_is_address(part) for part in rest.split(",")):
        return rest
    raise argparse.ArgumentTypeError(
        f"{text!r} is neither simulated:N with N from 1 to {SIMULATED_BROKERS_MAX} nor cluster:HOST:PORT[,HOST:PORT…] "
        "nor kraft"
    )


def _is_address(text: str) -> bool:
    host, colon, port = text.strip().rpartition(":")
    return bool(colon and host) and port.isdigit() and 1 <= int(port) <= 65535


def _metadata_version(text: str) -> int:
    if not text.isdigit() or not METADATA_VERSION_MIN <= int(text) <= METADATA_VERSION_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a level from {METADATA_VERSION_MIN} (3.7) to {METADATA_VERSION_MAX} (4.3)"
        )
    return int(text)


def _serve(options: argparse.Namespace) -> int:
    import uvloop

    try:
        settings = load_settings(options.config, options.set)
        simulated = options.brokers if isinstance(options.brokers, int) else 0
        is_kraft = options.brokers == KRAFT
        _check_node_id(settings, options.brokers)
        if settings.listeners and options.kafka is not None:
            raise SettingsError("the addresses for Kafka clients are said by --kafka or by listeners, not by both")
        if options.metadata_version is not None and not is_kraft:
            raise SettingsError("--metadata-version is of real brokers: it goes with --brokers kraft")
        configure_logs(settings.log_level)
        return uvloop.run(
            serve(
                ServeOptions(
                    kafka=options.kafka or _address(DEFAULT_KAFKA),
                    http=options.http,
                    data=options.data,
                    simulated_brokers=simulated,
                    cluster=options.brokers if isinstance(options.brokers, str) and not is_kraft else None,
                    kraft=is_kraft,
                    metadata_version=options.metadata_version,
                    settings=settings,
                    hints=options.hints,
                )
            )
        )
    except (SettingsError, UsersFileError, PolicyLoadError, LogError, ClusterUnreachable, OSError) as error:
        print(f"topicwright: {error}", file=sys.stderr)
        return 2


def _check_node_id(settings: ServeSettings, brokers: int | str) -> None:
    if isinstance(brokers, int) and settings.simulated_broker_listeners and 1 <= settings.node_id <= brokers:
        raise SettingsError(
            f"node.id={settings.node_id} is the id of a simulated broker (1 to {brokers}); with "
            "simulated.broker.listeners=true the controller is a node beside them: choose another"
        )


if __name__ == "__main__":
    sys.exit(main())
