"""Finds config values in the metadata log that Kafka cannot read, before a Kafka voter has to lead with them.

Each such value is logged with the command that repairs it: when the value is found, and again when this process becomes
leader. The metric `topicwright_configs_unreadable` counts the values. `kraft_brokers` is the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import structlog

from controller.brokers.port import CommandSink, EventTypes
from controller.machine.configs.changes import TOPICS, repair, unreadable
from controller.store.store import TopicStore, topic_slices
from events.catalog import (
    Configs,
    Event,
    ResourceConfigsChanged,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
    TopicDiscovered,
    TopicVanished,
)
from events.logs.log import LogClosed

NAMED_MAX: Final = 20
"""The maximum number of values to log when this process becomes leader; all were logged when they were found."""
RECOVERY_S: Final = 1.0
"""The pause between attempts while the log is recovered."""

logger = structlog.get_logger("topicwright.kraft")


class UnreadableConfigs:
    """The unreadable configs of one cluster, updated with each event."""

    handles: EventTypes = frozenset(
        {TopicCreated, TopicDiscovered, TopicConfigsChanged, TopicDeleted, TopicVanished, ResourceConfigsChanged}
    )

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], Configs] = {}

    @property
    def count(self) -> int:
        return sum(map(len, self._found.values()))

    async def scan(self, controller: CommandSink) -> None:
        """Find the unreadable configs already in the log."""
        while True:
            try:
                for _ in self.walk(lambda: controller.store):
                    await asyncio.sleep(0)
            except LogClosed:  # during recovery
                await asyncio.sleep(RECOVERY_S)
            else:
                return

    def walk(self, store: Callable[[], TopicStore]) -> Iterator[None]:
        """Check all durable configs, one slice a step."""
        for (kind, name), configs in store().durable_cluster.resource_configs.items():
            self._update(kind, name, configs)
        for topics in topic_slices(store):
            for topic in topics:
                self._update(TOPICS, topic.name, topic.configs)
            yield

    def on_event(self, event: Event) -> None:
        match event:
            case TopicCreated() | TopicDiscovered() | TopicConfigsChanged():
                self._update(TOPICS, event.topic, event.configs)
            case TopicDeleted() | TopicVanished():
                self._found.pop((TOPICS, event.topic), None)
            case ResourceConfigsChanged():
                self._update(event.kind, event.name, event.configs)

    def warn(self) -> None:
        """Log the unreadable configs again: a Kafka voter may lead next."""
        if self._found:
            logger.warning("config values that Kafka cannot read", count=self.count)
        for (kind, resource), configs in islice(self._found.items(), NAMED_MAX):
            _warn(kind, resource, configs)

    def lines(self) -> list[str]:
        """A line for each unreadable config, with the command that repairs it."""
        return [
            f"Kafka cannot read {name}={text!r}" + (f" of {resource}" if resource else "") + f"; repair it: {command}"
            for (kind, resource), configs in self._found.items()
            for name, text in configs
            for command in (repair(kind, resource, name, text),)
        ]

    def _update(self, kind: int, resource: str, configs: Configs) -> None:
        found = unreadable(kind, configs) if configs else ()
        before = self._found.pop((kind, resource), ())
        if found:
            self._found[kind, resource] = found
        if found != before:
            _warn(kind, resource, found)


def _warn(kind: int, resource: str, configs: Configs) -> None:
    for name, text in configs:
        logger.warning(
            "Kafka cannot read a config value, and could not lead with it",
            resource=resource,
            config=name,
            value=text,
            repair=repair(kind, resource, name, text),
        )
