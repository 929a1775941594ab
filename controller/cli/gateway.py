"""`topicwright gateway`: answers Kafka clients and HTTP beside any number of others, while workers decide."""

from __future__ import annotations

import argparse
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from controller.cli.commands import Parsers
from controller.cli.starting import address, refuse_taken, register_kafka, register_process

if TYPE_CHECKING:
    from controller.settings.load import ServeSettings


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = register_process(
        commands,
        "gateway",
        _start,
        http="127.0.0.1:8080",
        data="topicwright-gateway",
        kept="what was read of the log, so that the next start is quick",
    )
    register_kafka(parser)
    parser.add_argument(
        "--kafka",
        type=address,
        default="127.0.0.1:9092",
        metavar="HOST:PORT",
        help="where to answer Kafka clients; default %(default)s",
    )


def _start(options: argparse.Namespace, settings: ServeSettings) -> Coroutine[Any, Any, int]:
    from controller.serving.reach_cluster import security_in
    from controller.stream.gateway.service import GatewayOptions, run_gateway

    _refuse_decisions(options.set)
    security = security_in(options.kafka_properties, "--kafka-properties")
    refuse_taken(settings, kafka=None if settings.listeners else options.kafka, http=options.http)
    file = settings.cluster_client_properties_file
    return run_gateway(
        GatewayOptions(
            bootstrap=options.bootstrap,
            kafka=options.kafka,
            http=options.http,
            data=options.data,
            settings=settings,
            security=security,
            cluster_security=security if file is None else security_in(file),
        )
    )


def _refuse_decisions(overrides: list[str]) -> None:
    """Raise SettingsError for settings that decide, which workers have to be given; in a file that a gateway shares
    with them they do no harm."""
    from controller.settings.load import SettingsError
    from controller.settings.server import BY_KEY

    for override in overrides:
        key = override.partition("=")[0].strip()
        if key in BY_KEY and BY_KEY[key].decides:
            raise SettingsError(f"setting {key} (--set) is for those who decide: give it to `topicwright worker`")
