"""`topicwright restore-topic`: the events topic that Kafka lost, from folders of workers and gateways.

Exit codes: 0 done; 2 wrong usage, or the topic cannot be restored.
"""

from __future__ import annotations

import argparse
import asyncio
from functools import partial

from controller.cli.terminal.usage import complain
from controller.serving.process import reached
from controller.serving.reach_cluster import security_in
from controller.settings.load import SettingsError, load_settings
from controller.stream.log.restoring import NotRestored, restore_topic
from controller.stream.log.topics import KafkaUnreachable, RequiredTopics
from events.logs.log import LogError
from projections.replay.errors import ReplayError


def restore(options: argparse.Namespace) -> int:
    """Write the topic; the exit code."""
    try:
        wanted = RequiredTopics.of(load_settings(options.config, options.set))
        security = security_in(options.kafka_properties, "--kafka-properties")
        restoring = partial(restore_topic, options.bootstrap, security, wanted, options.folders)
        restored = asyncio.run(
            reached("Kafka", partial(asyncio.to_thread, restoring), KafkaUnreachable, bootstrap=options.bootstrap)
        )
    except (SettingsError, NotRestored, ReplayError, LogError, OSError) as error:
        return complain(str(error))
    for one in restored:
        lost = f"; Kafka lost {one.commands_lost} commands that were not decided" if one.commands_lost else ""
        print(f"partition {one.partition}: {one.events} events of {one.folder}{lost}")
    print(f"topic {wanted.events} is restored: start workers and gateways with empty folders")
    return 0
