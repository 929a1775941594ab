"""`topicwright worker`: one of any number of processes that decide, over Kafka."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from controller.policy.loading import PolicyLoadError
from controller.runtime.entrance import Address
from controller.runtime.logs import configure_logs
from controller.runtime.reaching import security_in
from controller.runtime.settings import SettingsError, load_settings
from controller.runtime.stream.brokers import PartitionBrokers
from controller.runtime.stream.foreign_logs import forward_foreign_logs
from controller.runtime.stream.topics import TopicsMismatch
from controller.runtime.stream.watching import MakeFleet
from controller.runtime.stream.worker import MakeDriver, WorkerOptions, work

DRIVERS = ("faust", "plain")
SIMULATED_BROKERS_MAX = 1000


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("worker", help="decide, over Kafka; any number of them share the work")
    parser.add_argument("--bootstrap", type=_bootstrap, required=True, metavar="HOST:PORT[,…]", help="Kafka's brokers")
    parser.add_argument("--driver", choices=DRIVERS, default=DRIVERS[0], help="%(default)s")
    parser.add_argument("--http", type=_address, default="127.0.0.1:8081", metavar="HOST:PORT", help="%(default)s")
    parser.add_argument("--data", type=Path, default=Path("topicwright-worker"), metavar="DIR", help="./%(default)s")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a properties file with settings by Kafka's names")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one setting; may be repeated")
    parser.add_argument(
        "--brokers",
        type=_fleet,
        default="cluster",
        metavar="FLEET",
        help="who carries decisions out: cluster (of --bootstrap), cluster:HOST:PORT[,…] or simulated:N; %(default)s",
    )
    parser.add_argument("--kafka-properties", metavar="FILE", help="librdkafka properties for reaching Kafka")
    parser.set_defaults(func=_work)


def _work(options: argparse.Namespace) -> int:
    import uvloop

    try:
        settings = load_settings(options.config, options.set)
        configure_logs(settings.log_level)
        forward_foreign_logs()
        return uvloop.run(
            work(
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
        )
    except (SettingsError, PolicyLoadError, TopicsMismatch, OSError) as error:
        print(f"topicwright: {error}", file=sys.stderr)
        return 2


def _driver(name: str) -> MakeDriver:
    """The driver of a name; Faust is only imported where it is used."""
    if name == "plain":
        from controller.runtime.stream.driver_plain import PlainDriver

        return PlainDriver
    from controller.runtime.stream.driver_faust import FaustDriver

    return FaustDriver


class _Fleet(NamedTuple):
    """Simulated brokers, or the addresses of a cluster, empty for that of --bootstrap."""

    simulated: MakeFleet | None = None
    cluster: str = ""


def _fleet(text: str) -> _Fleet:
    kind, colon, rest = text.partition(":")
    if kind == "simulated" and rest.isdigit() and 1 <= int(rest) <= SIMULATED_BROKERS_MAX:
        return _Fleet(simulated=lambda partition: PartitionBrokers(int(rest), partition.log))
    if kind == "cluster":
        return _Fleet(cluster=_bootstrap(rest) if colon else "")
    raise argparse.ArgumentTypeError(
        f"{text!r} is neither cluster, nor cluster:HOST:PORT[,HOST:PORT…], nor simulated:N with N from 1 to "
        f"{SIMULATED_BROKERS_MAX}"
    )


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT with a port from 0 (any free one) to 65535")
    return Address(host.strip("[]"), int(port))


def _bootstrap(text: str) -> str:
    for each in text.split(","):
        host, colon, port = each.strip().rpartition(":")
        if not colon or not host or not port.isdigit() or not 1 <= int(port) <= 65535:
            raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, several separated by commas")
    return text
