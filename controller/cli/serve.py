"""`topicwright serve`: a controller with its log in one process."""

from __future__ import annotations

import argparse
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from controller.cli.commands import Parsers
from controller.cli.starting import (
    address,
    bootstrap,
    refuse_taken,
    register_process,
    simulated_brokers,
)

if TYPE_CHECKING:
    from controller.settings.load import ServeSettings

DEFAULT_KAFKA = "127.0.0.1:9092"
KRAFT = "kraft"


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = register_process(
        commands,
        "serve",
        _serve,
        http="127.0.0.1:8080",
        data="topicwright-data",
        kept="the log",
    )
    parser.add_argument(
        "--kafka",
        type=address,
        metavar="HOST:PORT",
        help=f"where to answer Kafka clients, unless the setting listeners says it; default {DEFAULT_KAFKA}",
    )
    parser.add_argument(
        "--brokers",
        type=_brokers,
        default="simulated:3",
        metavar="FLEET",
        help="who carries decisions out: simulated:N, kraft for real brokers, or cluster:HOST:PORT[,…] for a Kafka "
        "cluster; default %(default)s",
    )
    parser.add_argument(
        "--metadata-version",
        type=_metadata_version,
        metavar="LEVEL",
        help="with kraft: the level of metadata.version, such as 30; default the highest that all brokers share",
    )
    parser.add_argument("--hints", action="store_true", help="say what to type next, once ready")


def _brokers(text: str) -> int | str:
    """So many simulated brokers, `kraft`, or the bootstrap addresses of a cluster."""
    kind, _, rest = text.partition(":")
    count = simulated_brokers(text)
    if text == KRAFT or count is not None:
        return count or KRAFT
    if kind == "cluster":
        try:
            return bootstrap(rest)
        except argparse.ArgumentTypeError:
            pass
    from controller.brokers.simulated import SIMULATED_BROKERS_MAX

    raise argparse.ArgumentTypeError(
        f"{text!r} is neither simulated:N with N from 1 to {SIMULATED_BROKERS_MAX} nor cluster:HOST:PORT[,HOST:PORT…] "
        "nor kraft"
    )


def _metadata_version(text: str) -> int:
    from controller.brokers.kraft.features import METADATA_VERSION_MAX, METADATA_VERSION_MIN

    if not text.isdigit() or not METADATA_VERSION_MIN <= int(text) <= METADATA_VERSION_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a level from {METADATA_VERSION_MIN} (3.7) to {METADATA_VERSION_MAX} (4.4)"
        )
    return int(text)


def _serve(options: argparse.Namespace, settings: ServeSettings) -> Coroutine[Any, Any, int]:
    from controller.serving.serve import ServeOptions, serve
    from controller.settings.load import SettingsError

    is_kraft = options.brokers == KRAFT
    _check_node_id(settings, options.brokers)
    if settings.listeners and options.kafka is not None:
        raise SettingsError("the addresses for Kafka clients are given by --kafka or by listeners, not by both")
    if options.metadata_version is not None and not is_kraft:
        raise SettingsError("--metadata-version is of real brokers: it goes with --brokers kraft")
    kafka = options.kafka or address(DEFAULT_KAFKA)
    refuse_taken(settings, kafka=None if settings.listeners else kafka, http=options.http)
    return serve(
        ServeOptions(
            kafka=kafka,
            http=options.http,
            data=options.data,
            simulated_brokers=options.brokers if isinstance(options.brokers, int) else 0,
            cluster=options.brokers if isinstance(options.brokers, str) and not is_kraft else None,
            kraft=is_kraft,
            metadata_version=options.metadata_version,
            settings=settings,
            hints=options.hints,
        )
    )


def _check_node_id(settings: ServeSettings, brokers: int | str) -> None:
    from controller.settings.load import SettingsError

    if isinstance(brokers, int) and settings.simulated_broker_listeners and 1 <= settings.node_id <= brokers:
        raise SettingsError(
            f"node.id={settings.node_id} is the id of a simulated broker (1 to {brokers}); with "
            "simulated.broker.listeners=true the controller is a node beside them: choose another"
        )
