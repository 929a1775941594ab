"""The configs in force of a topic, with where each comes from: now, or as they were."""

from __future__ import annotations

from controller.machine.configs.views import described_configs
from controller.machine.state import BROKERS, Settings, settings_from_pairs
from events.catalog import Configs, ResourceConfigsChanged
from projections.queries.backwards import newest_of_cluster
from projections.queries.query import Query
from projections.views import overview_types as types
from projections.views import to_json


def topic_configs(part: Query, configs: Configs, settings: Settings, end: int) -> types.TopicConfigsView:
    """What is in force of a topic that sets these configs itself, by these settings."""
    builtin = {entry.name: entry.value for entry in described_configs((), ())}
    shown = tuple(
        types.ConfigView(
            name=entry.name,
            value=entry.value,
            source=entry.source.name,
            default=None if entry.sensitive else builtin.get(entry.name),
            sensitive=entry.sensitive,
        )
        for entry in described_configs(configs, settings.topic_defaults, settings.dynamic_defaults)
    )
    return types.TopicConfigsView(shown, to_json.as_of(part.as_of(end)))


def topic_configs_at(part: Query, name: str, at: str | None) -> types.TopicConfigsView:
    """The same of a topic as it was. Raises NoTopic, BadMoment."""
    end = part.end(at)
    row, cluster = part.topic_at(name, end), part.cluster_at(end)
    settings = settings_from_pairs(cluster.settings)
    static = Settings(topic_defaults=settings.topic_defaults, dynamic_defaults=_dynamic_defaults(part, end))
    return topic_configs(part, row.configs, static, end)


def _dynamic_defaults(part: Query, end: int) -> Configs:
    """What all brokers had as dynamic configs."""
    for record in newest_of_cluster(part, end):
        event = record.event
        if isinstance(event, ResourceConfigsChanged) and (event.kind, event.name) == (BROKERS, ""):
            return event.configs
    return ()
