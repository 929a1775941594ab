"""`topicwright worker` and `gateway`, which share a log in Kafka, and `restore-topic`.

Workers own partitions of the commands topic and decide commands; gateways answer clients. Any number of each may run.
"""

from __future__ import annotations

import argparse
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.cli import serve
from controller.cli.commands import COMMANDS, Parsers

if TYPE_CHECKING:
    from controller.settings.load import ServeSettings

DRIVERS = ("faust", "plain")
CLUSTER = "cluster"
"""Value of `--brokers`: the target cluster is the Kafka cluster of `--bootstrap`."""


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    cache = "a cache of the log, which makes the next start fast"
    places = {"http": "127.0.0.1:8081", "data": "topicwright-worker", "content": cache}
    parser = serve.register_process(commands, "worker", _start, **places)
    serve.register_kafka(parser)
    parser.add_argument("--driver", choices=DRIVERS, default=DRIVERS[0], help="Kafka library; default %(default)s")
    what = (
        "cluster: the Kafka of --bootstrap is the target cluster; cluster:HOST:PORT[,…]: another Kafka; or "
        "simulated:N: N simulated brokers; default %(default)s"
    )
    kinds = partial(serve.brokers, other=CLUSTER)
    parser.add_argument("--brokers", type=kinds, default=CLUSTER, metavar="BROKERS", help=what)
    places = {"http": "127.0.0.1:8080", "data": "topicwright-gateway", "content": cache}
    parser = serve.register_process(commands, "gateway", _start_gateway, **places)
    serve.register_kafka(parser)
    what = "listen here for Kafka clients; default %(default)s"
    parser.add_argument("--kafka", type=serve.address, default="127.0.0.1:9092", metavar="HOST:PORT", help=what)
    restore = commands.add_parser("restore-topic", description=COMMANDS["restore-topic"].description)
    serve.register_kafka(restore)
    what = "a data folder; the longest log of each partition is used"
    restore.add_argument("folders", type=Path, nargs="+", metavar="DIR", help=what)
    serve.register_settings(restore)
    restore.set_defaults(func=_restore_topic)


def _start(options: argparse.Namespace, settings: ServeSettings) -> Coroutine[Any, Any, int]:
    from controller.serving.log_lines import KAFKA_CLIENTS, forward_logs
    from controller.serving.reach_cluster import security_in
    from controller.stream.worker.service import WorkerOptions, work

    serve.refuse_taken(settings, http=options.http)
    forward_logs(*KAFKA_CLIENTS)
    return work(
        WorkerOptions(
            bootstrap=options.bootstrap,
            http=options.http,
            data=options.data,
            settings=settings,
            driver=options.driver,
            brokers="" if options.brokers == CLUSTER else options.brokers,
            security=security_in(options.kafka_properties, "--kafka-properties"),
        )
    )


def _start_gateway(options: argparse.Namespace, settings: ServeSettings) -> Coroutine[Any, Any, int]:
    from controller.serving.reach_cluster import security_in
    from controller.stream.gateway.service import GatewayOptions, run_gateway

    _refuse_decisions(options.set)
    security = security_in(options.kafka_properties, "--kafka-properties")
    serve.refuse_taken(settings, kafka=None if settings.listeners else options.kafka, http=options.http)
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
    """Raise SettingsError if `--set` has a setting that only workers use. A settings file may have such settings,
    because gateways and workers may share it."""
    from controller.settings.load import SettingsError
    from controller.settings.server import BY_KEY

    for override in overrides:
        key = override.partition("=")[0].strip()
        if key in BY_KEY and (BY_KEY[key].decides or key == "topic.rules.file"):
            raise SettingsError(f"--set {key}: decisions depend on it, so give it to `topicwright worker`")


def _restore_topic(options: argparse.Namespace) -> int:
    import asyncio

    from controller.serving.process import reached
    from controller.serving.reach_cluster import security_in
    from controller.settings.load import load_settings
    from controller.stream.log.restoring import restore_topic
    from controller.stream.log.topics import KafkaUnavailable

    settings = load_settings(options.config, options.set)
    security = security_in(options.kafka_properties, "--kafka-properties")
    restoring = partial(restore_topic, options.bootstrap, security, settings, options.folders)
    restored = asyncio.run(
        reached("Kafka", partial(asyncio.to_thread, restoring), KafkaUnavailable, bootstrap=options.bootstrap)
    )
    for one in restored:
        lost = f"; Kafka lost {one.commands_lost} undecided commands" if one.commands_lost else ""
        print(f"partition {one.partition}: {one.events} events from {one.folder}{lost}")
    print(f"topic {settings.stream_events_topic} is restored: start workers and gateways with empty folders")
    return 0
