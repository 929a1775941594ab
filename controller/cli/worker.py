"""`topicwright worker`, one of any number of processes that decide, over Kafka; and `restore-topic`."""

from __future__ import annotations

import argparse
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from controller.cli import starting
from controller.cli.commands import COMMANDS, Parsers, later

if TYPE_CHECKING:
    from controller.settings.load import ServeSettings
    from controller.stream.worker.owner_tasks import MakeBrokers
    from controller.stream.worker.service import MakeDriver

DRIVERS = ("faust", "plain")


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = starting.register_process(
        commands,
        "worker",
        _start,
        http="127.0.0.1:8081",
        data="topicwright-worker",
        kept="what was read of the log, so that the next start is quick",
    )
    starting.register_kafka(parser)
    parser.add_argument(
        "--driver", choices=DRIVERS, default=DRIVERS[0], help="what fetches commands from Kafka; default %(default)s"
    )
    parser.add_argument(
        "--brokers",
        type=_fleet,
        default="cluster",
        metavar="FLEET",
        help="who carries decisions out: cluster (that of --bootstrap), cluster:HOST:PORT[,…] or simulated:N; "
        "default %(default)s",
    )

    restore = commands.add_parser("restore-topic", description=f"{COMMANDS['restore-topic'].summary.capitalize()}.")
    starting.register_kafka(restore)
    restore.add_argument(
        "folders", type=Path, nargs="+", metavar="DIR", help="a data folder; of each partition the furthest is used"
    )
    starting.register_settings(restore)
    restore.set_defaults(func=later("work.restore_topic", "restore"))


def _start(options: argparse.Namespace, settings: ServeSettings) -> Coroutine[Any, Any, int]:
    from controller.serving.log_lines import forward_foreign_logs
    from controller.serving.reach_cluster import security_in
    from controller.stream.worker.service import WorkerOptions, work

    starting.refuse_taken(settings, http=options.http)
    forward_foreign_logs()
    return work(
        WorkerOptions(
            bootstrap=options.bootstrap,
            http=options.http,
            data=options.data,
            settings=settings,
            make_driver=_driver(options.driver),
            make_fleet=options.brokers.simulated,
            cluster=options.brokers.cluster,
            security=security_in(options.kafka_properties, "--kafka-properties"),
        )
    )


def _driver(name: str) -> MakeDriver:
    """The driver of a name; Faust is only imported where it is used."""
    if name == "plain":
        from controller.stream.worker.driver import PlainDriver

        return PlainDriver
    from controller.stream.worker.driver_faust import FaustDriver

    return FaustDriver


class _Fleet(NamedTuple):
    """Simulated brokers, or the addresses of a cluster, empty for that of --bootstrap."""

    simulated: MakeBrokers | None = None
    cluster: str = ""


def _fleet(text: str) -> _Fleet:
    count = starting.simulated_brokers(text)
    if count is not None:
        from controller.stream.worker.partition_brokers import PartitionBrokers

        return _Fleet(simulated=lambda partition: PartitionBrokers(count, partition))
    kind, colon, rest = text.partition(":")
    if kind == "cluster":
        return _Fleet(cluster=starting.bootstrap(rest) if colon else "")
    from controller.brokers.simulated import SIMULATED_BROKERS_MAX

    raise argparse.ArgumentTypeError(
        f"{text!r} is neither cluster, nor cluster:HOST:PORT[,HOST:PORT…], nor simulated:N with N from 1 to "
        f"{SIMULATED_BROKERS_MAX}"
    )
