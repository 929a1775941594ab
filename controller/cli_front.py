"""`topicwright front`: answers Kafka clients and HTTP beside any number of others, while workers decide."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from controller.runtime.entrance import Address
from controller.runtime.logs import configure_logs
from controller.runtime.reaching import security_in
from controller.runtime.settings import SettingsError, load_settings
from controller.runtime.settings_table import BY_KEY
from controller.runtime.stream.folder import hold_folder
from controller.runtime.stream.front_service import FrontOptions, run_front, stop_when_told
from controller.runtime.stream.front_topics import prepare_fronts_topic
from controller.runtime.stream.topics import KafkaUnreachable, TopicsMismatch, Wanted, prepare_topics
from controller.runtime.stream.transport import Topics
from events.log import LogError

TRY_AGAIN_S = 1.0


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser], address: Callable[[str], Address]) -> None:
    """Add the command; `address` reads HOST:PORT."""
    parser = commands.add_parser("front", help="answer clients, while stream workers decide")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT[,…]", help="the Kafka that holds the log")
    parser.add_argument("--kafka", type=address, default="127.0.0.1:9092", metavar="HOST:PORT", help="%(default)s")
    parser.add_argument("--http", type=address, default="127.0.0.1:8080", metavar="HOST:PORT", help="%(default)s")
    parser.add_argument("--data", type=Path, default=Path("topicwright-front"), metavar="DIR", help="./%(default)s")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a properties file with settings by Kafka's names")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one setting; may be repeated")
    parser.add_argument("--kafka-properties", metavar="FILE", help="librdkafka properties for reaching Kafka")
    parser.set_defaults(func=_front)


def _front(options: argparse.Namespace) -> int:
    import uvloop

    try:
        settings = load_settings(options.config, options.set)
        _refuse_decisions(options.set)
        configure_logs(settings.log_level)
        security = security_in(options.kafka_properties, "--kafka-properties")
        file = settings.cluster_client_properties_file
        return uvloop.run(
            _run(
                FrontOptions(
                    bootstrap=options.bootstrap,
                    kafka=options.kafka,
                    http=options.http,
                    data=options.data,
                    settings=settings,
                    security=security,
                    cluster_security=security if file is None else security_in(file),
                )
            )
        )
    except (SettingsError, TopicsMismatch, LogError, OSError) as error:
        print(f"topicwright: {error}", file=sys.stderr)
        return 2


def _refuse_decisions(overrides: list[str]) -> None:
    """What decides is the workers' to say; in a file that both share it does no harm."""
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key in BY_KEY and BY_KEY[key].decides:
            raise SettingsError(f"setting {key} (--set) is for those who decide: give it to `topicwright worker`")


async def _run(options: FrontOptions) -> int:
    told = stop_when_told()
    with hold_folder(options.data):
        topics = await _topics(options, told)
        return 0 if topics is None else await run_front(options, topics, told)


async def _topics(options: FrontOptions, told: asyncio.Event) -> Topics | None:
    """The topics, as soon as Kafka answers; None if told to stop before it does."""
    settings, said = options.settings, ""
    while not told.is_set():
        try:
            topics = await asyncio.to_thread(prepare_topics, options.properties, Wanted.by(settings))
            name, factor = settings.stream_fronts_topic, settings.stream_replication_factor
            await asyncio.to_thread(prepare_fronts_topic, options.properties, name, factor)
            return topics
        except KafkaUnreachable as error:
            if said != str(error):
                said = str(error)
                log = structlog.get_logger("topicwright")
                log.warning("waiting for Kafka", bootstrap=options.bootstrap, why=said)
        with suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), TRY_AGAIN_S)
    return None
